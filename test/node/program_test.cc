#include "node/program.h"

#include <sys/resource.h>
#include <unistd.h>

#include <iostream>
#include <new>
#include <stdexcept>
#include <thread>

#include "absl/strings/match.h"
#include "catch.h"
#include "child_process.h"
#include "grpc/support/log.h"

namespace baton {
namespace {

// Ends the process as an exception that leaves main() does.
void Run(const std::function<absl::Status()>& run) noexcept { RunProgram("baton-test", {}, "options", run); }

TEST_CASE("Option --check states only what was checked") {
  const ChildEnd end = RunInChild([] {
    std::cout.rdbuf(std::cerr.rdbuf());
    CommonOptions common;
    common.check = true;
    RunProgram("baton-test", common, "options and keys", [] { return absl::OkStatus(); });
  });
  CHECK(end.stderr_text == "baton-test: options and keys are valid\n");
}

TEST_CASE("A program names ulimit -u and pids.max when no thread starts") {
  const ChildEnd end = RunInChild([] {
    // The limit does not bind root.
    if (getuid() == 0 && setresuid(65534, 65534, 65534) != 0) return;
    const rlimit limit{.rlim_cur = 1, .rlim_max = 1};
    setrlimit(RLIMIT_NPROC, &limit);
    Run([]() -> absl::Status {
      std::thread([] {}).join();
      return absl::OkStatus();
    });
  });
  INFO(end.stderr_text);
  CHECK_FALSE(end.aborted);
  CHECK(absl::StrContains(end.stderr_text, "baton-test: RESOURCE_EXHAUSTED: cannot start a thread: "));
  CHECK(absl::StrContains(end.stderr_text, "(ulimit -u) is 1. Raise it, pids.max of the control group or ulimit -v"));
}

TEST_CASE("A program names ulimit -u and pids.max when no thread of gRPC starts") {
  const ChildEnd end = RunInChild([] {
    Run([] {
      gpr_log(GPR_ERROR, "Could not create grpc_sync_server worker-thread");
      return absl::OkStatus();
    });
  });
  INFO(end.stderr_text);
  CHECK(absl::StrContains(end.stderr_text, "gRPC: Could not create grpc_sync_server worker-thread. The user's limit"));
}

TEST_CASE("A program names the limits on memory when memory is short") {
  const ChildEnd end = RunInChild([] { Run([]() -> absl::Status { throw std::bad_alloc(); }); });
  INFO(end.stderr_text);
  CHECK_FALSE(end.aborted);
  CHECK(absl::StrContains(end.stderr_text, "baton-test: RESOURCE_EXHAUSTED: out of memory. Lower "));
  CHECK(absl::StrContains(end.stderr_text, "ulimit -v"));
}

TEST_CASE("A program aborts at an exception that is no shortage") {
  CHECK(RunInChild([] { Run([]() -> absl::Status { throw std::runtime_error("bug"); }); }).aborted);
}

}  // namespace
}  // namespace baton
