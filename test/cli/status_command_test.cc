// Tests of `baton status`: a router's answer as text, once and repeatedly.
#include "cli/status_command.h"

#include <algorithm>
#include <deque>
#include <sstream>

#include "await.h"
#include "base/strings.h"
#include "catch.h"
#include "shell/router_cluster.h"

namespace baton {
namespace {

v1::Worker& AddWorker(v1::GetServerInfoResponse& info, const std::string& address, bool attached = true) {
  v1::Worker& worker = *info.add_workers();
  worker.set_role(v1::Worker::ROLE_DECODE);
  worker.set_address(address);
  worker.set_attached(attached);
  return worker;
}

v1::GetServerInfoResponse Info(int32_t live = 1) {
  v1::GetServerInfoResponse info;
  info.set_version("9.9");
  info.set_live_requests(live);
  AddWorker(info, "d:1");
  return info;
}

// A watch with one answer for each question. It ends after the last answer.
struct Watched {
  std::deque<absl::StatusOr<v1::GetServerInfoResponse>> answers;
  std::optional<TerminalSize> terminal{};
  std::ostringstream out{};

  absl::Status Run() {
    const auto ask = [this] {
      REQUIRE_FALSE(answers.empty());
      auto answer = answers.front();
      answers.pop_front();
      return answer;
    };
    return WatchStatus({.address = "r:7",
                        .ask = ask,
                        .now = [] { return absl::UnixEpoch(); },
                        .terminal = [this] { return terminal; },
                        .pause = [this] { return !answers.empty(); }},
                       out);
  }
};

size_t CountOf(const std::string& part, const std::string& text) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
  return count;
}

TEST_CASE("StatusText shows the state of each worker, with its reason") {
  v1::GetServerInfoResponse info = Info();
  info.set_active_sessions(2);
  info.set_waiting_sessions(1);
  info.set_cached_tokens(30);
  info.set_prompt_tokens(40);
  info.set_completion_tokens(7);
  AddWorker(info, "d:2").set_draining(true);
  info.mutable_workers(1)->set_blocks_quarantined(7);
  AddWorker(info, "d:3", /*attached=*/false).set_problem("cannot attach: UNAVAILABLE: no route");
  AddWorker(info, "d:4", /*attached=*/false).set_problem("refused: protocol version 1, expected 2");
  AddWorker(info, "d:5").set_health("silent");
  info.mutable_workers(4)->set_health_reason("no report for 1s");
  AddWorker(info, "d:6").set_health("well");
  const std::string text = StatusText("r:7", info);
  INFO(text);
  CHECK(text.find("d:5                     silent ") != std::string::npos);
  CHECK(text.find("\n         no report for 1s\n") != std::string::npos);
  CHECK(text.find("d:6                     ready ") != std::string::npos);
  CHECK(text.starts_with("baton 9.9 at r:7: 1 live requests"));
  CHECK(text.find("\n2 sessions active, 1 waiting; 30 of 40 prompt tokens were cached; 7 tokens generated\n") !=
        std::string::npos);
  CHECK(text.find("d:1                     ready ") != std::string::npos);
  CHECK(text.find("d:2                     draining ") != std::string::npos);
  CHECK(text.find("\n         7 blocks are in quarantine, because a prefill worker may still write them\n") !=
        std::string::npos);
  CHECK(text.find("d:3                     gone ") != std::string::npos);
  CHECK(text.find("\n         cannot attach: UNAVAILABLE: no route\n") != std::string::npos);
  CHECK(text.find("d:4                     refused ") != std::string::npos);
  CHECK(text.find("\n         refused: protocol version 1, expected 2\n") != std::string::npos);
}

TEST_CASE("A router marks a worker as refused when its protocol version differs") {
  const ManualClock clock;  // the router does not attach the worker again
  Cluster c(PatientLimits(), Schedule::kFirstCome, "", &clock);
  const auto prefill = [&] {
    grpc::ClientContext context;
    v1::GetServerInfoResponse info;
    REQUIRE(c.stub->GetServerInfo(&context, {}, &info).ok());
    return *std::ranges::find(info.workers(), v1::Worker::ROLE_PREFILL, &v1::Worker::role);
  };
  Await("the prefill worker to attach", [&] { return prefill().attached(); });
  CHECK(prefill().problem().empty());
  worker::v1::PrefillEvent event;
  *event.mutable_info() = ToProto(FakeInfo(WorkerRole::kPrefill, c.prefill->address(), 11));
  event.mutable_info()->set_version(kWorkerProtocolVersion + 1);
  c.prefill->Send(event);
  Await("the prefill worker to be shown as refused", [&] { return std::string(StateOf(prefill())) == "refused"; });
  CHECK(
      prefill().problem().starts_with(StrCat("refused: protocol version ", kWorkerProtocolVersion + 1, ", expected ")));
}

TEST_CASE("A router marks a worker as draining when the worker reports it") {
  Cluster c;
  worker::v1::DecodeEvent load;
  load.mutable_load()->set_draining(true);
  Call call(c);
  PassPrefill(c);  // attaches the workers
  c.decode->Send(load);
  Await("the decode worker to be shown as draining", [&] {
    grpc::ClientContext context;
    v1::GetServerInfoResponse info;
    REQUIRE(c.stub->GetServerInfo(&context, {}, &info).ok());
    return std::ranges::any_of(info.workers(), [](const v1::Worker& worker) {
      return worker.role() == v1::Worker::ROLE_DECODE && std::string(StateOf(worker)) == "draining";
    });
  });
  call.context.TryCancel();
}

TEST_CASE("StatusText replaces terminal commands in a router's texts") {
  v1::GetServerInfoResponse info = Info();
  AddWorker(info, "evil\x1b[2J\n").set_model("\x1b]0;x\a");
  const std::string text = StatusText("r:7", info);
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(text.find("evil?[2J? ") != std::string::npos);
}

TEST_CASE("WatchStatus prints answers one below the other without a terminal") {
  Watched w{.answers = {Info(1), Info(2), Info(3)}};
  CHECK(w.Run().ok());
  const std::string text = w.out.str();
  INFO(text);
  CHECK(text.find('\x1b') == std::string::npos);
  for (const char* live : {": 1 live", ": 2 live", ": 3 live"}) CHECK(CountOf(live, text) == 1);
  CHECK(CountOf("\n\n", text) == 2);
}

TEST_CASE("WatchStatus draws each answer over the last one and fits the terminal") {
  v1::GetServerInfoResponse many = Info();
  for (int i = 0; i < 50; ++i) AddWorker(many, absl::StrCat("w", i));
  Watched w{.answers = {Info(1), many}, .terminal = TerminalSize{.rows = 10, .columns = 40}};
  CHECK(w.Run().ok());
  const std::string text = w.out.str();
  CHECK(CountOf("\x1b[2J", text) == 1);
  CHECK(text.starts_with("\x1b[2J\x1b[H"));
  REQUIRE(CountOf("\x1b[H", text) == 2);
  CHECK(text.ends_with("\n\x1b[J"));  // the cursor is below, at the start of a line
  const std::string last = text.substr(text.rfind("\x1b[H"));
  CHECK(CountOf("\n", last) == 9);
  CHECK(last.find("... and 47 more lines") != std::string::npos);
  std::istringstream lines(last);
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 40 + std::string("\x1b[H\x1b[K").size());
}

TEST_CASE("WatchStatus waits for a lost router after a first answer") {
  const absl::Status away = absl::UnavailableError("no router at r:7");
  Watched w{.answers = {Info(1), away, Info(2)}};
  CHECK(w.Run().ok());
  CHECK(CountOf("no router at r:7\n", w.out.str()) == 1);
  CHECK(CountOf(": 2 live", w.out.str()) == 1);

  Watched never{.answers = {away, Info(2)}};
  CHECK(never.Run() == away);
  CHECK(never.out.str().empty());

  // The status that a stopping router returns.
  const absl::Status stopping = absl::CancelledError("CANCELLED");
  Watched restarted{.answers = {Info(1), stopping, away, Info(2)}};
  CHECK(restarted.Run().ok());
  CHECK(CountOf(": 2 live", restarted.out.str()) == 1);

  const absl::Status denied = absl::PermissionDeniedError("not yours");
  Watched changed{.answers = {Info(1), denied, Info(2)}};
  CHECK(changed.Run() == denied);
}

TEST_CASE("WatchStatus ends when its output is closed") {
  Watched w{.answers = {Info(1), Info(2), Info(3)}};
  w.out.setstate(std::ios::badbit);
  CHECK(w.Run().ok());
  CHECK(w.answers.size() == 2);
}

}  // namespace
}  // namespace baton
