#include "server/program.h"

#include <csignal>
#include <iostream>

#include "base/logging.h"
#include "base/status.h"
#include "base/strings.h"

namespace baton {

int RunProgram(const std::string& program, const CommonOptions& options, const std::function<absl::Status()>& run) {
  absl::Status status = InitLogging(program, options.log_level);
  if (status.ok()) status = run();
  if (!status.ok()) {
    std::cerr << program << ": " << absl::StatusCodeToString(status.code()) << ": " << Message(status) << "\n";
    return 1;
  }
  if (options.check) std::cout << program << ": the options, the model and the memory are fine\n";
  return 0;
}

absl::Status ServeMetrics(Metrics& metrics, const CommonOptions& options) {
  if (options.metrics.empty() || options.metrics == "off" || options.metrics == "0") return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string address, metrics.Serve(options.metrics));
  spdlog::info("metrics on http://{}/metrics", address);
  return absl::OkStatus();
}

void RunUntilSignal(ShutdownSignal& signal, const std::string& address) {
  std::cout << "listening on " << address << std::endl;
  spdlog::info("{}: shutting down", strsignal(signal.Await()));
}

}  // namespace baton
