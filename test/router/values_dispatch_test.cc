// Values in a dispatcher: outputs that clients write, beside those of requests.
#include <algorithm>

#include "world/dispatcher_world.h"

namespace baton {
namespace {

ValueTicket BeginValue(Driven& d, const RequestId& id) {
  ValueTicket ticket;
  REQUIRE((*d).ChangeValues(
                  [&](Values& values) {
                    auto begun = values.Begin({.id = id, .workflow = "w", .agent = "tool"}, nullptr, d.now);
                    if (begun.ok()) ticket = *begun;
                    return begun.status();
                  },
                  d.now)
              .ok());
  return ticket;
}

absl::Status WriteValue(Driven& d, const ValueTicket& ticket, std::string_view text) {
  return (*d).ChangeValues([&](Values& values) { return values.AppendText(ticket, text, d.now); }, d.now);
}

void EndValue(Driven& d, const ValueTicket& ticket, const absl::Status& status = absl::OkStatus()) {
  const auto end = [&](Values& values) {
    values.End(ticket, status, d.now);
    return absl::OkStatus();
  };
  REQUIRE((*d).ChangeValues(end, d.now).ok());
}

ClientRequest ReaderOf(Driven& d, const RequestId& id, const RequestId& value, const std::string& session = "") {
  ClientRequest request = d.Request(id, "");
  request.session = session;
  request.prompt.segments = {std::vector<TokenId>{'c'}, Reference{.upstream = value, .announced = true}};
  return request;
}

TEST_CASE("Dispatcher completes a prompt with a value, also in a session that waits") {
  Driven d(false, SessionLimits{.sessions = 1});
  const ValueTicket value = BeginValue(d, "v");
  REQUIRE(d.Submit(ReaderOf(d, "down", "v", "s")).ok());
  CHECK(d.Take() == Lines{"prefill-1: open down#ab.1 "});
  REQUIRE(d.Submit(ReaderOf(d, "waits", "v", "t")).ok());
  CHECK(d.Take().empty());
  CHECK(SessionsOf(*d).waiting == 1);
  REQUIRE(WriteValue(d, value, "xy").ok());
  EndValue(d, value);
  CHECK(d.Take() == Lines{"a value ends OK", "prefill-1: close down#ab.1 cxy"});
}

TEST_CASE("Dispatcher refuses a request with the id of a value, and the reverse") {
  Driven d;
  const ValueTicket value = BeginValue(d, "v");
  CHECK(absl::IsAlreadyExists(d.Submit(d.Request("v", "ab")).status()));
  EndValue(d, value);
  CHECK(absl::IsAlreadyExists(d.Submit(d.Request("v", "ab")).status()));
  REQUIRE(d.Submit(d.Request("r", "ab")).ok());
  const auto begin = [&](Values& values) { return values.Begin({.id = "r"}, nullptr, d.now).status(); };
  CHECK(absl::IsAlreadyExists((*d).ChangeValues(begin, d.now)));
  CHECK((*d).core().slots().counts().running == 1);  // a value takes no slot
}

TEST_CASE("Dispatcher ends values in time, and all of them at its end") {
  Driven d;
  BeginValue(d, "late");
  CHECK((*d).NextTick() == d.now + ValueLimits{}.time);
  d.now += absl::Minutes(5);
  BeginValue(d, "live");
  d.now += absl::Minutes(5);
  (*d).Tick(d.now);
  CHECK(d.Take() == Lines{"a value ends DEADLINE_EXCEEDED"});
  (*d).EndAll(d.now);
  CHECK(d.Take() == Lines{"a value ends UNAVAILABLE"});
  CHECK((*d).values().counts() == Values::Counts{});
}

TEST_CASE("Dispatcher ends the values of a workflow with its requests") {
  Driven d;
  ClientRequest limited = d.Request("limited", "ab", 40);
  limited.workflow = "w";
  limited.workflow_limits = {.deadline = absl::Seconds(5), .max_tokens = 3};
  REQUIRE(d.Submit(limited).ok());
  const ValueTicket value = BeginValue(d, "v");
  ClientRequest reader = ReaderOf(d, "down", "v");
  reader.workflow = "w";
  REQUIRE(d.Submit(reader).ok());
  d.Take();
  const std::string deadline = "DEADLINE_EXCEEDED: the deadline of workflow 'w' (5s after its first request) ";
  SECTION("that is cancelled") {
    CHECK((*d).CancelWorkflow({"", "w"}, d.now) == 3);
    const Lines lines = d.Take();
    CHECK(std::ranges::count(lines, "a value ends CANCELLED") == 1);
    // Not ABORTED, because of the value.
    CHECK(d.errors["down"] == "CANCELLED: its workflow was cancelled");
    CHECK((*d).CancelWorkflow({"", "w"}, d.now) == 0);
    BeginValue(d, "later");
  }
  SECTION("at its deadline") {
    (*d).Tick(d.now += absl::Seconds(5));
    const Lines lines = d.Take();
    CHECK(std::ranges::count(lines, "a value ends DEADLINE_EXCEEDED") == 1);
    CHECK(d.errors["down"] == deadline + "passed while the request waited for the output of 'v'");
    CHECK((*d).lives().Of("w", "", d.now)[0]->outcome.status.message() ==
          deadline.substr(deadline.find("the ")) + "passed before the value was complete");
    const auto begin = [&](Values& values) {
      return values.Begin({.id = "late", .workflow = "w"}, nullptr, d.now).status();
    };
    CHECK(CodeAndMessage((*d).ChangeValues(begin, d.now)) == deadline + "had passed when the request arrived");
  }
  SECTION("at its deadline, when no request is live") {
    (*d).CancelWorkflow({"", "other"}, d.now);
    d.Prefilled("limited");
    d.Made(d.NameOf("limited"), "x", FinishReason::kStop);
    d.Take();
    (*d).Tick(d.now += absl::Seconds(5));
    CHECK(std::ranges::count(d.Take(), "a value ends DEADLINE_EXCEEDED") == 1);
  }
  SECTION("at its token limit") {
    d.Prefilled("limited");
    d.Made(d.NameOf("limited"), "xyz", std::nullopt);
    const Lines lines = d.Take();
    CHECK(std::ranges::count(lines, "a value ends FAILED_PRECONDITION") == 1);
    CHECK(d.errors["down"].starts_with("FAILED_PRECONDITION: "));
  }
  CHECK(WriteValue(d, value, "x").code() == absl::StatusCode::kAborted);
  (*d).CheckInvariants();
}

TEST_CASE("Dispatcher lists values among the requests of their workflow") {
  Driven d;
  const ValueTicket ended = BeginValue(d, "ended");
  d.now += absl::Seconds(1);
  BeginValue(d, "live");
  EndValue(d, ended, absl::CancelledError("left"));
  const Timeline::Lives lives = (*d).lives().Of("w", "", d.now);
  REQUIRE(lives.size() == 2);
  CHECK(lives[0]->outcome.id == "ended");
  CHECK(lives[0]->agent == "tool");
  CHECK(absl::IsCancelled(lives[0]->outcome.status));
  CHECK(lives[0]->stages.ended == d.now);
  CHECK_FALSE(lives[1]->stages.over());
  const std::vector<PhaseSpan> spans = SpansOf(*lives[0], d.now);
  REQUIRE(spans.size() == 1);
  CHECK(spans[0].phase == Phase::kWaiting);
  const std::vector<WorkflowView> views = (*d).lives().Workflows("", 9, d.now);
  REQUIRE(views.size() == 1);
  CHECK(views[0].requests == 2);
  CHECK(views[0].live == 1);
}

TEST_CASE("Dispatcher numbers the attempts of a value") {
  Driven d;
  EndValue(d, BeginValue(d, "v"), absl::AbortedError("broken"));
  d.now += absl::Seconds(1);
  const ValueTicket second = BeginValue(d, "v");
  CHECK((*d).lives().Of("w", "", d.now)[1]->outcome.attempt == 2);
  EndValue(d, second);
  CHECK((*d).lives().Of("w", "", d.now)[1]->outcome.attempt == 2);
}

}  // namespace
}  // namespace baton
