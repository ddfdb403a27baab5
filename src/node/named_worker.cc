#include "node/named_worker.h"

#include <string_view>

#include "node/program.h"
#include "node/program_flags.h"
#include "node/programs.h"

namespace baton {
namespace {

struct NamedWorker {
  const char* name;
  std::optional<int> (*parse)(int argc, const char* const* argv, WorkerOptions& options);
  absl::Status (*run)(WorkerOptions options, ShutdownSignal& signal);
};
constexpr NamedWorker kWorkers[] = {{"baton-prefill", ParsePrefillFlags, RunPrefill},
                                    {"baton-decode", ParseDecodeFlags, RunDecode}};

}  // namespace

std::optional<int> RunNamedWorker(int argc, char** argv) {
  const std::string_view path = argc > 0 ? argv[0] : "";
  for (const NamedWorker& worker : kWorkers) {
    if (path.substr(path.rfind('/') + 1) != worker.name) continue;
    ShutdownSignal signal;  // must precede all threads
    WorkerOptions options;
    if (const auto code = worker.parse(argc, argv, options)) return *code;
    return RunProgram(worker.name, options.common, kCheckedByWorkers, [&] { return worker.run(options, signal); });
  }
  return std::nullopt;
}

}  // namespace baton
