// baton-router: clients on one side, prefill and decode workers on the other.
#include "base/clock.h"
#include "base/status.h"
#include "server/flags.h"
#include "server/program.h"
#include "server/router_node.h"
#include "server/tls.h"

namespace baton {
namespace {

absl::Status Run(const RouterOptions& options, const ReadAgain& read_again, ShutdownSignal& signal) {
  RETURN_IF_ERROR(Validate(options));
  WarnOfKeys(options);
  ASSIGN_OR_RETURN(std::vector<ServedModel> models, LoadServedModels(options.models));
  if (options.common.check) return KeyRing::Load(options.keys).status();
  const SteadyClock clock;
  Metrics metrics;
  RETURN_IF_ERROR(ServeMetrics(metrics, options.common));
  ASSIGN_OR_RETURN(const auto node,
                   RouterNode::Start(options, std::move(models), DialBy(options.common.peer), clock, metrics));
  const auto shutdown = [&] { node->Shutdown(absl::Seconds(options.common.grace_seconds)); };
  RunUntilSignal(
      signal, {node->server().address(), [&] { node->CheckAlive(); }, shutdown, ReloadOf(options, *node, read_again)});
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  ShutdownSignal signal;  // before any thread
  CLI::App app("Joins clients, prefill workers and decode workers.", "baton-router");
  RouterOptions options;
  AddFlags(app, options);
  if (const auto code = ParseFlags(app, argc, argv)) return *code;
  ReadAgain read_again;
  if (app.count("--config") > 0) read_again = [=] { return ReadRouterOptions(argc, argv); };
  return RunProgram("baton-router", options.common, [&] { return Run(options, read_again, signal); });
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) { return baton::Main(argc, argv); }
