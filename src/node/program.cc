#include "node/program.h"

#include <sys/resource.h>

#include <csignal>
#include <iostream>

#include "base/logging.h"
#include "base/loopback.h"
#include "base/status.h"
#include "base/strings.h"
#include "google/protobuf/stubs/logging.h"
#include "grpc/support/log.h"
#include "metrics/metrics.h"
#include "node/service_manager.h"

namespace baton {
namespace {

// Sends the messages of gRPC and protobuf to the debug log. These libraries would print every error
// of a peer to stderr. Baton returns such errors as a status and counts them in metrics.
void LogLibraries() {
  gpr_set_log_function([](gpr_log_func_args* args) { spdlog::debug("gRPC: {}", args->message); });
  google::protobuf::SetLogHandler([](google::protobuf::LogLevel, const char*, int, const std::string& message) {
    spdlog::debug("protobuf: {}", message);
  });
}

// Reports why the program ends, at any log level.
void ReportFailure(const std::string& program, LogFormat format, const absl::Status& status) {
  const std::string why = StrCat(absl::StatusCodeToString(status.code()), ": ", Message(status));
  if (format == LogFormat::kText) {
    std::cerr << program << ": " << why << "\n";
  } else {
    spdlog::set_level(spdlog::level::critical);
    spdlog::critical("{}", why);
  }
}

// Raises the limit of open files to the system's maximum. Each client connection takes a file
// descriptor, and shells usually allow 1,024.
void RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int RunProgram(const std::string& program, const CommonOptions& options, const std::string& checked,
               const std::function<absl::Status()>& run) {
  const LogFormat format = options.log_format == "json" ? LogFormat::kJson : LogFormat::kText;
  absl::Status status = InitLogging(program, options.log_level, format);
  LogLibraries();
  RaiseFileLimit();
  if (status.ok() && options.open && !options.check) {
    spdlog::warn("--open: without keys or certificates, any client that reaches an address of this program may use it");
  }
  if (status.ok()) status = run();
  if (!status.ok()) {
    ReportFailure(program, format, status);
    return 1;
  }
  if (options.check) std::cout << program << ": " << checked << " are valid\n";
  return 0;
}

void WarnIfKeysUnencrypted(const RouterOptions& options) {
  const std::string clear = UnencryptedKeysWarning(options);
  if (!clear.empty()) spdlog::warn("{}", clear);
}

void WarnIfSharedMemoryShort(int64_t bytes) {
  const std::string shortage = SharedMemoryShortage("/dev/shm", bytes);
  if (!shortage.empty()) spdlog::warn("{}", shortage);
}

absl::Status ServeMetrics(Metrics& metrics, const CommonOptions& options) {
  if (options.metrics.empty() || options.metrics == "off" || options.metrics == "0") return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string address, metrics.Serve(options.metrics));
  spdlog::info("metrics on http://{}/metrics", address);
  return absl::OkStatus();
}

void RunUntilSignal(ShutdownSignal& signal, const Serving& serving) {
  std::cout << "listening on " << serving.address << std::endl;
  if (IsLoopback(serving.address)) spdlog::info("only this machine can reach {}", serving.address);
  const ServiceManager manager = FindServiceManager();
  const auto notify = [&manager](const char* state) {
    const absl::Status status = Notify(manager, state);
    if (!status.ok()) spdlog::warn("{}", Message(status));
  };
  const auto watchdog = StartWatchdogNotifier(manager, serving.check_alive);
  notify("READY=1");
  int got = signal.Await();
  // SIGHUP from a service manager means reload, even if there is nothing to reload. SIGHUP from a
  // terminal means that the terminal has closed.
  for (; got == SIGHUP && (serving.reload || !manager.socket.empty()); got = signal.Await()) {
    if (serving.reload) serving.reload();
  }
  spdlog::info("{}: shutting down", strsignal(got));
  notify("STOPPING=1");
  serving.shutdown();
}

}  // namespace baton
