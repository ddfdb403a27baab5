// One prefill worker on this machine's CPU or a GPU; it pushes blocks over UCX.
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
  ASSIGN_OR_RETURN(const WorkerBackend made, MakeBackend(model, options, /*lm_head=*/false, transports));
  const std::string name = ModelName(options.model);
  const ModelConfig config = model.weights->config;
  const Digest digest = model.weights->digest;
  model.weights.reset();  // the backend has packed them

  ASSIGN_OR_RETURN(const auto node,
                   PrefillNode::Start({options, name, config, digest, *made.backend, *made.connector, clock, metrics},
                                      options.listen, "", DialBy(options.common.peer)));
  // After the node listens: a free port for metrics must not be the one that --listen names.
  RETURN_IF_ERROR(ServeMetrics(metrics, options.common));
  return RunWorkerNode(*node, options, metrics, signal);
}

}  // namespace baton
