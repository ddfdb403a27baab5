// Tests of the messages that each program sends to systemd from start to end, and of health checks
// by a load balancer.
#include <signal.h>

#include <cstdlib>

#include "catch.h"
#include "notify_socket.h"
#include "programs.h"
#include "raw_call.h"

namespace baton {
namespace {

// Sets the environment of programs that start during its lifetime.
struct Environment {
  explicit Environment(const std::string& socket) {
    setenv("NOTIFY_SOCKET", socket.c_str(), 1);
    setenv("WATCHDOG_USEC", "600000", 1);
  }
  ~Environment() {
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
  }
};

// Returns the next state that the watchdog did not send.
std::string NextState(const NotifySocket& manager) {
  std::string state = "WATCHDOG=1";
  while (state == "WATCHDOG=1") state = manager.Next();
  return state;
}

TEST_CASE("A program sends systemd READY, WATCHDOG and STOPPING") {
  const TempDir directory;
  const NotifySocket manager(directory / "notify");
  const std::string program = GENERATE("baton-router", "baton-prefill", "baton-decode", "baton");
  std::vector<std::string> arguments{"--listen", "127.0.0.1:0", "--model", kModel, "--grace", "1"};
  if (program == "baton-router") {
    for (const char* word : {"--prefill-workers", "127.0.0.1:1", "--decode-workers", "127.0.0.1:2"}) {
      arguments.push_back(word);
    }
  } else {
    arguments.insert(arguments.end(), {"--threads", "1", "--kv-memory-mb", "8"});
  }
  if (program == "baton") arguments.insert(arguments.begin(), "serve");
  if (program == "baton" || program == "baton-router") arguments.insert(arguments.end(), {"--http", "off"});

  const Environment environment(directory / "notify");
  Process process(program, arguments);
  INFO(program);
  CHECK(manager.Next() == "READY=1");
  std::string health;
  REQUIRE(RawCall(DialTcp(process.Await("listening on ")), "/grpc.health.v1.Health/Check", "", health).ok());
  // A router serves only after it has found workers.
  const bool serves = program == "baton-prefill" || program == "baton-decode";
  if (serves) CHECK(health == "\x08\x01");
  CHECK(manager.Next() == "WATCHDOG=1");
  process.Signal(SIGTERM);
  CHECK(NextState(manager) == "STOPPING=1");
  CHECK(process.Wait() == 0);
}

}  // namespace
}  // namespace baton
