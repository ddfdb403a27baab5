// baton-router: connects clients to prefill and decode workers. See node/router_program.cc.
#include "node/program.h"
#include "node/program_flags.h"
#include "node/programs.h"

namespace baton {
namespace {

int Main(int argc, char** argv) {
  ShutdownSignal signal;  // must precede all threads
  RouterOptions options;
  ReloadOptions reload_options;
  if (const auto code = ParseRouterFlags(argc, argv, options, reload_options)) return *code;
  // A router reads no weights.
  return RunProgram("baton-router", options.common, "options, keys, tokenizers and chat templates",
                    [&] { return RunRouter(options, reload_options, signal); });
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) { return baton::Main(argc, argv); }
