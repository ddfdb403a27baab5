// The times of a prefill worker's load.
#include "catch.h"
#include "engine/prefill/engine.h"
#include "request/priority.h"

namespace baton {
namespace {

TEST_CASE("PrefillEngine reports the running step's time and the longest wait for a step") {
  PrefillEngine engine({.blocks = 8, .vocab = 10, .context = 100, .sender = {}});
  absl::Time now = absl::UnixEpoch();
  const auto add = [&](const RequestId& id, int32_t priority) {
    PrefillJob job;
    job.request_id = id;
    job.spec.tokens = std::vector<TokenId>(20, 1);
    job.spec.priority = priority;
    job.decode_worker = priority == 0 ? "d" : "";
    REQUIRE_FALSE(engine.Add(std::move(job), now).has_value());
  };
  add("low", kLowPriority);
  now += absl::Seconds(1);
  CHECK(engine.load(now).longest_wait == absl::ZeroDuration());
  add("a", 0);
  now += absl::Seconds(2);
  CHECK(engine.load(now).longest_wait == absl::Seconds(2));
  CHECK(engine.load(now).step_time == absl::ZeroDuration());

  REQUIRE(engine.StartStep(now) != nullptr);
  add("b", 0);
  now += absl::Seconds(3);
  CHECK(engine.load(now).longest_wait == absl::Seconds(3));  // of "b"
  CHECK(engine.load(now).step_time == absl::Seconds(3));
  CHECK(engine.load(now).step_forecast == absl::ZeroDuration());
  CHECK(engine.load().step_time == absl::ZeroDuration());

  engine.FinishStep(absl::OkStatus(), now);
  CHECK(engine.load(now).step_time == absl::ZeroDuration());
  CHECK(engine.load(now).totals.steps == 1);
}

}  // namespace
}  // namespace baton
