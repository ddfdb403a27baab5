// Tests of request outcomes: the parties of a request, and the times of its stages.
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
