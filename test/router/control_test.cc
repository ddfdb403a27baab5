// Deadlines of requests.
#include <string>
#include <vector>

#include "router/wait_state.h"
#include "world/dispatcher_world.h"

namespace baton {
namespace {

using WaitsFor = WaitState::Stage;

AwaitedOutputs Outputs(std::vector<AwaitedOutput> first, int64_t more = 0) {
  const int64_t count = std::ssize(first) + more;
  return {std::move(first), count};
}

TEST_CASE("TextOf names what a request waits for") {
  const struct {
    WaitState state;
    std::string text;
  } rows[] = {
      {{.outputs = Outputs({{"a"}})}, "the output of 'a'"},
      {{.outputs = Outputs({{"a"}, {"b", true}})}, "the outputs of 'a' and 'b' (announced, not submitted)"},
      {{.outputs = Outputs({{"a"}, {"b"}, {"c"}})}, "the outputs of 'a', 'b' and 'c'"},
      {{.outputs = Outputs({{"a"}, {"b"}, {"c"}, {"d"}})}, "the outputs of 'a', 'b', 'c' and 1 more"},
      {{.outputs = Outputs({{"a"}, {"b"}, {"c"}}, 4000)}, "the outputs of 'a', 'b', 'c' and 4000 more"},
      {{.session = "s"}, "admission of its session 's'"},
      {{.session = "s", .outputs = Outputs({{"a"}})}, "admission of its session 's' and the output of 'a'"},
      {{.stage = WaitsFor::kSlot}, "a request slot"},
      {{.stage = WaitsFor::kWorker}, "a worker"},
      {{.stage = WaitsFor::kWorker, .reason = "no decode worker"}, "a worker: no decode worker"},
      {{.stage = WaitsFor::kPrefill, .prompt_tokens = 812}, "prefill of 812 tokens"},
      {{.stage = WaitsFor::kScoring, .prompt_tokens = 9}, "log probabilities of 9 prompt tokens"},
      {{.stage = WaitsFor::kFirstToken}, "its first token"},
      {{.stage = WaitsFor::kDecode, .generated_tokens = 17}, "the rest of its output, after 17 tokens"},
  };
  for (const auto& [state, text] : rows) CHECK(TextOf(state) == text);
}

constexpr char kPassed[] = "DEADLINE_EXCEEDED: the deadline passed while the request waited for ";

TEST_CASE("Dispatcher names at a deadline what the request waits for") {
  Driven d(false, SessionLimits{.sessions = 1}, RouterLimits{.live_requests = 3});
  const auto submit = [&](const RequestId& id, std::vector<PromptSegment> segments, const std::string& session) {
    ClientRequest request = d.Request(id, segments.empty() ? "ab" : "");
    request.prompt.segments = std::move(segments);
    request.session = session;
    request.deadline = d.now + absl::Seconds(id == "queued" ? 4 : 5);
    REQUIRE(d.Submit(std::move(request)).ok());
  };
  submit("prefills", {}, "s");
  submit("held", {}, "t");
  submit("decodes", {}, "");
  submit("starts", {}, "");
  submit(
      "reads",
      {std::vector<TokenId>{'c'}, Reference{.upstream = "decodes"}, Reference{.upstream = "never", .announced = true}},
      "");
  // All slots are taken when its prompt becomes complete.
  submit(
      "queued",
      {std::vector<TokenId>{'q'}, Reference{.upstream = "late", .announced = true, .on_failure = OnFailure::kPartial}},
      "");
  d.Take();
  (*d).Refused("late", "", absl::InvalidArgumentError("bad"), absl::ZeroDuration(), d.now);
  d.Take();
  d.Prefilled("decodes");
  d.Prefilled("starts");
  d.Made(d.NameOf("decodes"), "xyz", std::nullopt);
  d.Take();
  // Before a request ends that has a slot.
  (*d).Tick(d.now += absl::Seconds(4));
  d.Take();
  CHECK(d.errors["queued"] == std::string(kPassed) + "a request slot");
  d.now += absl::Seconds(1);
  (*d).Tick(d.now);
  d.Take();
  CHECK(d.errors["prefills"] == std::string(kPassed) + "prefill of 2 tokens");
  CHECK(d.errors["held"] == std::string(kPassed) + "admission of its session 't'");
  CHECK(d.errors["starts"] == std::string(kPassed) + "its first token");
  CHECK(d.errors["decodes"] == std::string(kPassed) + "the rest of its output, after 3 tokens");
  CHECK(d.errors["reads"] == std::string(kPassed) + "the outputs of 'decodes' and 'never' (announced, not submitted)");
  CHECK((*d).core().live_requests() == 0);
}

TEST_CASE("Dispatcher ends a request like a deadline when its call ends by one") {
  Driven d;
  ClientRequest request = d.Request("r", "");
  request.prompt.segments = {Reference{.upstream = "up", .announced = true}};
  request.workflow = "w";
  const auto ticket = d.Submit(request);
  REQUIRE(ticket.ok());
  const std::string waits = "the output of 'up' (announced, not submitted)";
  const Timeline::Lives lives = (*d).lives().Of("w", "", d.now);
  REQUIRE(lives.size() == 1);
  CHECK(lives[0]->waits_for == waits);
  CHECK(lives[0]->awaited == std::vector<RequestId>{"up"});
  (*d).Cancel(*ticket, d.now, CallEnd::kDeadline);
  d.Take();
  CHECK(d.errors["r"] == kPassed + waits);
  CHECK((*d).lives().Of("w", "", d.now)[0]->waits_for.empty());
  (*d).Cancel(*ticket, d.now, CallEnd::kDeadline);
  CHECK(d.Take().empty());
}

}  // namespace
}  // namespace baton
