// The program baton-decode: one decode worker on this machine's CPU or GPUs. It receives blocks
// over UCX, or over gRPC with --guard-kv.
#include "base/clock.h"
#include "base/status.h"
#include "model/served_model.h"
#include "node/decode_node.h"
#include "node/program.h"
#include "node/programs.h"
#include "node/registration.h"
#include "node/transports.h"
#include "node/worker_backend.h"

namespace baton {

absl::Status RunDecode(WorkerOptions options, ShutdownSignal& signal) {
  ASSIGN_OR_RETURN(LoadedModel model, LoadModel(options, {.decode = 1}));
  ASSIGN_OR_RETURN(const auto tokenizer, LoadTokenizer(options.model, model));
  ASSIGN_OR_RETURN(const Digest digest, KvDigest(options, model, *tokenizer));
  const Digest weights_digest = model.weights->digest;
  ASSIGN_OR_RETURN(const Transports transports, MakeTransports(options));
  if (options.common.check) return absl::OkStatus();

  const SteadyClock clock;
  Metrics metrics;
  // The argument `true` requests the LM head.
  ASSIGN_OR_RETURN(const WorkerBackend made, MakeBackend(model, options, true, transports));
  const std::string name = ModelName(options.model);
  const ModelConfig config = model.weights->config;
  model.weights.reset();  // the backend has a packed copy

  ThreadPool sampling(Threads(options));
  ASSIGN_OR_RETURN(const auto node,
                   DecodeNode::Start({options, name, config, digest, *made.backend, *made.connector, clock, metrics},
                                     {*tokenizer, weights_digest, ParallelForOn(sampling)}, options.listen, ""));
  // Start the metrics server last. A free port for metrics must not be the port that --listen
  // names.
  RETURN_IF_ERROR(ServeMetrics(metrics, options.common));
  return RunWorkerNode(*node, options, metrics, signal);
}

}  // namespace baton
