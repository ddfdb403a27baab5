// The program baton-prefill: one prefill worker on this machine's CPU or GPUs. It pushes blocks
// over UCX, or over gRPC with --guard-kv.
#include "base/clock.h"
#include "base/status.h"
#include "model/served_model.h"
#include "node/prefill_node.h"
#include "node/program.h"
#include "node/programs.h"
#include "node/registration.h"
#include "node/transports.h"
#include "node/worker_backend.h"
#include "rpc/tls.h"

namespace baton {

absl::Status RunPrefill(WorkerOptions options, ShutdownSignal& signal) {
  ASSIGN_OR_RETURN(LoadedModel model, LoadModel(options, {.prefill = 1}));
  ASSIGN_OR_RETURN(const Transports transports, MakeTransports(options));
  if (options.common.check) return absl::OkStatus();

  const SteadyClock clock;
  Metrics metrics;
  // The argument `false` omits the LM head, because a prefill worker never samples.
  ASSIGN_OR_RETURN(const WorkerBackend made, MakeBackend(model, options, false, transports));
  const std::string name = ModelName(options.model);
  const ModelConfig config = model.weights->config;
  const Digest digest = model.weights->digest;
  model.weights.reset();  // the backend has a packed copy

  ASSIGN_OR_RETURN(const auto node,
                   PrefillNode::Start({options, name, config, digest, *made.backend, *made.connector, clock, metrics},
                                      options.listen, "", DialBy(options.common.peer)));
  // Start the metrics server last. A free port for metrics must not be the port that --listen
  // names.
  RETURN_IF_ERROR(ServeMetrics(metrics, options.common));
  return RunWorkerNode(*node, options, metrics, signal);
}

}  // namespace baton
