// Deadlines, and cancellation and limits of workflows.
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
      {{.outputs = Outputs({{"a", true, "UNAVAILABLE: lost", 1, absl::Seconds(11)}})},
       "the output of 'a' (attempt 1 failed: UNAVAILABLE: lost; another attempt is awaited for 11s)"},
      {{.outputs = Outputs({{"a", true, "UNAVAILABLE: full", 0, absl::Seconds(11)}})},
       "the output of 'a' (refused: UNAVAILABLE: full; another attempt is awaited for 11s)"},
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
  (*d).Refused({.id = "late", .status = absl::InvalidArgumentError("bad")}, d.now);
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

ClientRequest InWorkflow(const Driven& d, const RequestId& id, const std::string& workflow,
                         WorkflowLimits limits = {}) {
  ClientRequest request = d.Request(id, "ab", 40);
  request.workflow = workflow;
  request.workflow_limits = limits;
  return request;
}

ClientRequest Reader(const Driven& d, const RequestId& id, const std::string& workflow, const RequestId& upstream,
                     OnFailure on_failure) {
  ClientRequest request = InWorkflow(d, id, workflow);
  request.spec.tokens = {};
  request.prompt.segments = {std::vector<TokenId>{'c'},
                             Reference{.upstream = upstream, .announced = true, .on_failure = on_failure}};
  return request;
}

// Returns the number of requests that the core has.
int32_t Live(Driven& d) { return (*d).core().live_requests(); }

TEST_CASE("Dispatcher cancels the requests of one workflow in one cache domain") {
  Driven d(false, SessionLimits{.sessions = 1}, RouterLimits{.live_requests = 2});
  ClientRequest held = InWorkflow(d, "held", "w");
  ClientRequest active = InWorkflow(d, "active", "v");
  active.session = "s";
  held.session = "t";
  ClientRequest salted = InWorkflow(d, "salted", "w");
  salted.spec.cache_domain = "other";
  for (ClientRequest* request : {&active, &held, &salted}) REQUIRE(d.Submit(*request).ok());
  for (const OnFailure on_failure : {OnFailure::kAbort, OnFailure::kPartial, OnFailure::kSubstitute}) {
    const RequestId id = absl::StrCat("reads", static_cast<int>(on_failure));
    REQUIRE(d.Submit(Reader(d, id, "w", "held", on_failure)).ok());
    REQUIRE(d.Submit(Reader(d, "announces" + id, "w", "never", on_failure)).ok());
  }
  d.Take();
  CHECK((*d).CancelWorkflow({"", "w"}, d.now) == 7);
  d.Take();
  CHECK(d.errors.size() == 7);
  for (const auto& [id, error] : d.errors) CHECK(error == "CANCELLED: its workflow was cancelled");
  CHECK(Live(d) == 2);
  CHECK((*d).graph().counts().announced == 0);
  CHECK((*d).CancelWorkflow({"", "w"}, d.now) == 0);
  CHECK((*d).CancelWorkflow({"", "unknown"}, d.now) == 0);
  CHECK((*d).CancelWorkflow({"", ""}, d.now) == 0);
  CHECK((*d).CancelWorkflow({"other", "w"}, d.now) == 1);
  CHECK((*d).CancelWorkflow({"", "v"}, d.now) == 1);
  d.Take();
  CHECK(Live(d) == 0);
  CHECK((*d).core().slots().counts() == RequestSlots::Counts{});
}

TEST_CASE("Dispatcher refuses a request that was read while its workflow was cancelled") {
  Driven d;
  REQUIRE(d.Submit(Reader(d, "reads", "v", "long", OnFailure::kAbort)).ok());
  ClientRequest request = InWorkflow(d, "long", "w");
  request.received = d.now;
  d.now += absl::Seconds(1);
  CHECK((*d).CancelWorkflow({"", "w"}, d.now) == 0);
  d.now += absl::Seconds(1);
  CHECK(CodeAndMessage(d.Submit(request).status()) ==
        "CANCELLED: workflow 'w' was cancelled while the request was read");
  d.Take();
  CHECK(d.errors["reads"].starts_with("ABORTED: output_of 'long': CANCELLED: "));
  request.received = d.now;
  CHECK(d.Submit(request).ok());
}

TEST_CASE("Dispatcher cancels a workflow while a hand-off of it is being committed") {
  Driven d;
  REQUIRE(d.Submit(InWorkflow(d, "r", "w")).ok());
  d.Take();
  CHECK((*d).CancelWorkflow({"", "w"}, d.now) == 1);
  d.Take();
  d.Prefilled("r");
  CHECK(d.Take() == Lines{"decode-1: cancel " + d.NameOf("r")});
  CHECK(Live(d) == 0);
}

TEST_CASE("Dispatcher ends a workflow at its deadline with what each request waits for") {
  Driven d(false, {}, RouterLimits{.live_requests = 1});
  REQUIRE(d.Submit(InWorkflow(d, "runs", "w", {.deadline = absl::Seconds(5)})).ok());
  REQUIRE(d.Submit(Reader(d, "reads", "w", "runs", OnFailure::kPartial)).ok());
  // Its prompt is complete, and it gets the slot of the request that ends first.
  REQUIRE(d.Submit(Reader(d, "queued", "w", "bad", OnFailure::kPartial)).ok());
  (*d).Refused({.id = "bad", .status = absl::InvalidArgumentError("bad")}, d.now);
  d.Take();
  CHECK((*d).NextTick() == d.now + absl::Seconds(5));
  (*d).Tick(d.now += absl::Seconds(5));
  d.Take();
  const std::string passed = "DEADLINE_EXCEEDED: the deadline of workflow 'w' (5s after its first request) ";
  CHECK(d.errors["runs"] == passed + "passed while the request waited for prefill of 2 tokens");
  CHECK(d.errors["reads"] == passed + "passed while the request waited for the output of 'runs'");
  CHECK(d.errors["queued"] == passed + "passed while the request waited for a request slot");
  CHECK(Live(d) == 0);
  CHECK(CodeAndMessage(d.Submit(InWorkflow(d, "late", "w")).status()) ==
        passed + "had passed when the request arrived");
  // The refusal is final, so a prompt that waits for the request fails at once.
  REQUIRE(d.Submit(Reader(d, "waits", "v", "late2", OnFailure::kAbort)).ok());
  CHECK_FALSE(d.Submit(InWorkflow(d, "late2", "w")).ok());
  d.Take();
  CHECK(d.errors["waits"].starts_with("ABORTED: output_of 'late2': DEADLINE_EXCEEDED: "));
}

TEST_CASE("Dispatcher ends a workflow at its token limit, except a request that is complete") {
  Driven d;
  REQUIRE(d.Submit(InWorkflow(d, "a", "w", {.max_tokens = 5})).ok());
  REQUIRE(d.Submit(InWorkflow(d, "b", "w")).ok());
  REQUIRE(d.Submit(Reader(d, "waits", "w", "never", OnFailure::kAbort)).ok());
  REQUIRE(d.Submit(Reader(d, "takes", "v", "b", OnFailure::kPartial)).ok());
  d.Take();
  for (const char* id : {"a", "b"}) d.Prefilled(id);
  d.Take();
  d.Made(d.NameOf("b"), "xy", std::nullopt);
  CHECK(Live(d) == 4);
  d.Made(d.NameOf("a"), "xyz", FinishReason::kStop);
  d.Take();
  CHECK(d.errors["a"] == "OK");
  const std::string spent =
      "FAILED_PRECONDITION: workflow 'w' has generated 5 tokens, limit 5 (max_tokens of its limits)";
  CHECK(d.errors["b"] == spent);
  CHECK(d.errors["waits"] == spent);
  CHECK(Live(d) == 1);
  CHECK(CodeAndMessage(d.Submit(InWorkflow(d, "late", "w")).status()) == spent);
  // The refused request did not take its id, and a workflow of another cache domain is another one.
  ClientRequest salted = InWorkflow(d, "late", "w");
  salted.spec.cache_domain = "other";
  CHECK(d.Submit(salted).ok());
  CHECK(d.Submit(InWorkflow(d, "late", "u")).ok());
}

TEST_CASE("Dispatcher keeps no limits of a request that it refuses") {
  Driven d(false, {}, RouterLimits{.live_requests = 1});
  REQUIRE(d.Submit(InWorkflow(d, "runs", "v")).ok());
  CHECK(absl::IsResourceExhausted(d.Submit(InWorkflow(d, "full", "w", {.deadline = absl::Seconds(1)})).status()));
  (*d).CancelWorkflow({"", "v"}, d.now);
  d.now += absl::Seconds(2);
  CHECK(d.Submit(InWorkflow(d, "full", "w")).ok());
}

}  // namespace
}  // namespace baton
