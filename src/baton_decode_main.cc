// baton-decode: one decode worker on this machine's CPU or GPUs. See node/decode_program.cc.
#include "node/program.h"
#include "node/program_flags.h"
#include "node/programs.h"

namespace baton {
namespace {

int Main(int argc, char** argv) {
  ShutdownSignal signal;  // must precede all threads
  WorkerOptions options;
  if (const auto code = ParseDecodeFlags(argc, argv, options)) return *code;
  return RunProgram("baton-decode", options.common, kCheckedByWorkers, [&] { return RunDecode(options, signal); });
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) { return baton::Main(argc, argv); }
