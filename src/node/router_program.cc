// The program baton-router: connects clients to prefill and decode workers.
#include "base/clock.h"
#include "base/status.h"
#include "frontend/tools/tool_format.h"
#include "node/program.h"
#include "node/programs.h"
#include "node/router_node.h"
#include "rpc/tls.h"

namespace baton {

absl::Status RunRouter(const RouterOptions& options, const ReloadOptions& reload_options, ShutdownSignal& signal) {
  RETURN_IF_ERROR(Validate(options));
  WarnIfKeysUnencrypted(options);
  for (const std::string& directory : options.models) RETURN_IF_ERROR(CheckModelDirectory("model", directory));
  ASSIGN_OR_RETURN(std::vector<ServedModel> models, LoadServedModels(options.models));
  for (ServedModel& model : models) DropUnknownToolTemplate(model);
  if (options.common.check) return KeyRing::Load(options.keys).status();
  const SteadyClock clock;
  Metrics metrics;
  ASSIGN_OR_RETURN(const auto node,
                   RouterNode::Start(options, std::move(models), DialBy(options.common.peer), clock, metrics));
  // Start the metrics server last. A free port for metrics must not be the port that --listen
  // names.
  RETURN_IF_ERROR(ServeMetrics(metrics, options.common));
  const auto shutdown = [&] { node->Shutdown(absl::Seconds(options.common.grace_seconds)); };
  RunUntilSignal(signal, {node->server().address(), [&] { node->CheckAlive(); }, shutdown,
                          ReloadOf(options, *node, reload_options)});
  return absl::OkStatus();
}

}  // namespace baton
