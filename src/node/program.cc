#include "node/program.h"

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>
#include <system_error>

#include "base/logging.h"
#include "base/loopback.h"
#include "base/status.h"
#include "base/strings.h"
#include "google/protobuf/stubs/logging.h"
#include "grpc/support/log.h"
#include "metrics/metrics.h"
#include "node/memory_limit.h"
#include "node/service_manager.h"

namespace baton {
namespace {

// Returns the end of an error message about a thread that does not start.
std::string ThreadRemedy() {
  rlimit limit{};
  const bool limited = getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return StrCat(". The user's limit of threads (ulimit -u) is ", limited ? StrCat(limit.rlim_cur) : "unlimited",
                ". Raise it, pids.max of the control group or ulimit -v, or lower --threads");
}

// Sends the messages of gRPC and protobuf to the debug log. These libraries would print every error
// of a peer to stderr. Baton returns such errors as a status and counts them in metrics. gRPC
// aborts the process if its first threads do not start.
void LogLibraries() {
  gpr_set_log_function([](gpr_log_func_args* args) {
    const std::string_view message = args->message;
    if (message.starts_with("Could not create") && message.ends_with("thread")) {
      spdlog::error("gRPC: {}{}", message, ThreadRemedy());
    } else {
      spdlog::debug("gRPC: {}", message);
    }
  });
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

// Returns the error of an exception that no code handles, or OK if the exception is a bug.
absl::Status Shortage(const std::exception_ptr& thrown) {
  try {
    if (thrown != nullptr) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(StrCat("out of memory", kMemoryRemedy));
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::resource_unavailable_try_again) {
      return absl::ResourceExhaustedError(StrCat("cannot start a thread: ", error.code().message(), ThreadRemedy()));
    }
  } catch (...) {
  }
  return absl::OkStatus();
}

// Lets the process end with an error if memory is short or no thread starts. The exception may come
// from any thread and any library, so no status carries it.
void ReportShortages(const std::string& program, LogFormat format) {
  static std::string name;
  static LogFormat name_format;
  static std::terminate_handler otherwise;
  name = program;
  name_format = format;
  otherwise = std::set_terminate([] {
    std::set_terminate(otherwise);
    if (const absl::Status status = Shortage(std::current_exception()); !status.ok()) {
      ReportFailure(name, name_format, status);
      _exit(1);
    }
    otherwise();
    std::abort();
  });
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
  ReportShortages(program, format);
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
