// baton-router: connects clients to prefill and decode workers. See node/router_program.cc.
#include "node/program.h"
#include "node/program_flags.h"
#include "node/programs.h"

namespace baton {
namespace {

int Main(int argc, char** argv) {
  ShutdownSignal signal;  // must precede all threads
  RouterOptions options;
  ReadAgain read_again;
  if (const auto code = ParseRouterFlags(argc, argv, options, read_again)) return *code;
  return RunProgram("baton-router", options.common, [&] { return RunRouter(options, read_again, signal); });
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) { return baton::Main(argc, argv); }
