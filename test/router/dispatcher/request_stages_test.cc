// Tests of request outcomes: the parties of a request, and the times of its stages.
#include <fstream>
#include <sstream>

#include "base/strings.h"
#include "source_path.h"
#include "world/dispatcher_world.h"

namespace baton {
namespace {

TEST_CASE("Dispatcher reports how long a request waited for its session's admission") {
  Driven d(false, SessionLimits{.sessions = 1, .shortest_linger = {}, .longest_linger = {}});
  ClientRequest first = d.Request("first", "p"), second = d.Request("second", "p");
  first.session = "one";
  second.session = "two";
  const auto running = d.Submit(first), waiting = d.Submit(second);
  REQUIRE((running.ok() && waiting.ok()));
  d.Take();
  d.now += absl::Seconds(3);
  (*d).Cancel(*running, d.now);
  (*d).Tick(d.now);
  d.Take();
  d.now += absl::Seconds(5);
  (*d).Cancel(*waiting, d.now);
  for (const DispatchAction& action : (*d).TakeActions()) {
    if (const auto* ended = std::get_if<RequestEnded>(&action)) {
      CHECK(ended->outcome.session_wait == absl::Seconds(3));
      CHECK(ended->outcome.total == absl::Seconds(8));
    }
  }
}

// Returns the outcome of the request that ends with these actions.
RequestOutcome EndedOf(const std::vector<DispatchAction>& actions) {
  for (const DispatchAction& action : actions) {
    if (const auto* ended = std::get_if<RequestEnded>(&action)) return ended->outcome;
  }
  FAIL("no request ended");
  return {};
}

PrefillDone DoneAfter(absl::Duration compute, absl::Duration handoff) {
  PrefillDone done;
  done.compute = compute;
  done.handoff = handoff;
  return done;
}

TEST_CASE("Dispatcher divides a request's time into its stages") {
  Driven d;
  d.now += absl::Seconds(7);  // the router has run for a while
  REQUIRE(d.Submit(d.Request("r", "prompt")).ok());
  d.Take();
  PrefillDone done = DoneAfter(absl::Milliseconds(20), absl::Milliseconds(3));
  done.copied = absl::Milliseconds(4);
  d.now += absl::Milliseconds(40);
  d.Prefilled("r", done);
  d.Take();
  d.now += absl::Milliseconds(100);
  const absl::Duration queued = GENERATE(absl::Milliseconds(90), absl::Hours(1), absl::Milliseconds(-5));
  const absl::Duration queue = std::clamp(queued, absl::ZeroDuration(), absl::Milliseconds(100));
  d.Made(d.NameOf("r"), "x", std::nullopt, queued);
  d.Take();
  d.now += absl::Milliseconds(30);
  SECTION("it is done") { d.Made(d.NameOf("r"), "y", FinishReason::kStop, absl::Milliseconds(1)); }
  SECTION("its worker fails") {
    (*d).Reported(kD, RequestFailed{d.NameOf("r"), absl::InternalError("broken"), {}}, d.now);
  }
  const RequestOutcome outcome = EndedOf((*d).TakeActions());
  CHECK(outcome.times.upstream == absl::ZeroDuration());
  CHECK(outcome.times.queue == absl::Milliseconds(13));
  CHECK(outcome.times.prefill == absl::Milliseconds(24));
  CHECK(outcome.times.handoff == absl::Milliseconds(3));
  CHECK(outcome.times.decode_queue == queue);
  CHECK(outcome.times.first_step == absl::Milliseconds(100) - queue);
  CHECK(outcome.times.decode == absl::Milliseconds(30));
  CHECK(outcome.first_token == absl::Milliseconds(140));
  CHECK(outcome.total == absl::Milliseconds(170));
}

TEST_CASE("Dispatcher adds the time of an early end to the last stage reached") {
  Driven d;
  ClientRequest down = d.Request("down", "");
  down.prompt.segments = {std::vector<TokenId>{'c'}, Reference{.upstream = "up", .announced = true}};
  enum class Stage { kUpstream, kQueue, kPrefill, kDecodeQueue, kFirstStep };
  const Stage stage =
      GENERATE(Stage::kUpstream, Stage::kQueue, Stage::kPrefill, Stage::kDecodeQueue, Stage::kFirstStep);
  const auto ticket = d.Submit(stage == Stage::kUpstream ? down : d.Request("r", "prompt"));
  REQUIRE(ticket.ok());
  d.Take();
  d.now += absl::Milliseconds(5);
  StageTimes expected;
  if (stage == Stage::kUpstream) {
    expected.upstream = absl::Milliseconds(5);
  } else if (stage == Stage::kQueue || stage == Stage::kPrefill) {
    expected.queue = absl::Milliseconds(5);
    if (stage == Stage::kPrefill) {
      (*d).Reported(kP, PrefillStarted{d.NameOf("r")}, d.now);
      d.now += absl::Milliseconds(7);
      expected.prefill = absl::Milliseconds(7);
    }
  } else {
    d.Prefilled("r", DoneAfter(absl::ZeroDuration(), absl::Milliseconds(2)));
    d.Take();
    d.now += absl::Milliseconds(6);
    expected.queue = absl::Milliseconds(3);
    expected.handoff = absl::Milliseconds(2);
    expected.decode_queue = absl::Milliseconds(6);
    if (stage == Stage::kFirstStep) {
      d.Made(d.NameOf("r"), "", {}, absl::Milliseconds(4));
      CHECK((*d).TakeActions().empty());  // the client gets nothing
      d.now += absl::Milliseconds(8);
      expected.decode_queue = absl::Milliseconds(4);
      expected.first_step = absl::Milliseconds(2 + 8);
    }
  }
  (*d).Cancel(*ticket, d.now);
  const RequestOutcome outcome = EndedOf((*d).TakeActions());
  for (const StageRow& row : kStageTable) {
    INFO(row.name);
    CHECK(outcome.times.*row.time == expected.*row.time);
  }
}

TEST_CASE("Dispatcher counts the time at a full worker as queue") {
  Driven d;
  REQUIRE(d.Submit(d.Request("r", "prompt")).ok());
  d.Take();
  (*d).Reported(kP, PrefillStarted{d.NameOf("r")}, d.now);
  d.now += absl::Milliseconds(50);
  RequestFailed full{d.NameOf("r"), absl::ResourceExhaustedError("full"), absl::Milliseconds(1), true};
  (*d).Reported(kP, full, d.now);
  d.Take();
  d.now = std::max(d.now, (*d).NextTick()) + absl::Milliseconds(10);
  (*d).Tick(d.now);
  REQUIRE(d.Take() == Lines{"prefill-1: prefill r#ab.2 prompt"});
  const absl::Duration waited = d.now - absl::UnixEpoch();
  d.now += absl::Milliseconds(9);
  d.Prefilled("r", DoneAfter(absl::Milliseconds(9), absl::ZeroDuration()));
  d.Take();
  d.Made(d.NameOf("r"), "x", FinishReason::kStop);
  const RequestOutcome outcome = EndedOf((*d).TakeActions());
  CHECK(outcome.times.queue == waited);
  CHECK(outcome.times.prefill == absl::Milliseconds(9));
  CHECK(outcome.total == waited + absl::Milliseconds(9));
}

TEST_CASE("The page on observability shows each stage as its table does") {
  std::ifstream file(SourcePath("docs/observability.md"));
  std::stringstream page;
  page << file.rdbuf();
  std::string rows;
  for (const StageRow& stage : kStageTable) rows += StrCat("| `", stage.name, "_ms` | ", stage.meaning, " |\n");
  CHECK(page.str().find(rows) != std::string::npos);
}

TEST_CASE("Dispatcher names the parties of a request in its outcome") {
  Driven d;
  ClientRequest request = d.Request("r", "p");
  request.call = "call";
  request.spec.tenant = "owner";
  request.spec.traceparent = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01";
  REQUIRE(d.Submit(request).ok());
  d.Take();
  d.Prefilled("r");
  (*d).TakeActions();
  d.Made(d.NameOf("r"), "x", FinishReason::kStop);
  const std::vector<DispatchAction> actions = (*d).TakeActions();
  REQUIRE(std::holds_alternative<RequestEnded>(actions.back()));
  const RequestOutcome& outcome = std::get<RequestEnded>(actions.back()).outcome;
  CHECK(outcome.id == "r");
  CHECK(outcome.call == "call");
  CHECK(outcome.tenant == "owner");
  CHECK(outcome.model == "bytes");
  CHECK(outcome.trace_id == "0123456789abcdef0123456789abcdef");
  CHECK(outcome.prefill_worker == kP);
  CHECK(outcome.decode_worker == kD);
  CHECK_FALSE(outcome.prefill_only);
}

}  // namespace
}  // namespace baton
