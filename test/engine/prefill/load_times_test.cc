// The times of a prefill worker's load.
#include "absl/strings/str_cat.h"
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

TEST_CASE("PrefillEngine counts no staged copies as step time once they are complete") {
  PrefillEngineOptions options{.blocks = 2, .vocab = 10, .context = 100, .staging = {.host = 8}, .sender = {}};
  options.sender.self.layout = {.layers = 1, .kv_heads = 1, .head_dim = 16, .format = KvFormat::kBf16};
  PrefillEngine engine(options);
  absl::Time now = absl::UnixEpoch();
  for (const TokenId token : {1, 2}) {
    PrefillJob job;
    job.request_id = absl::StrCat(token);
    job.spec.tokens = std::vector<TokenId>(33, token);
    REQUIRE_FALSE(engine.Add(std::move(job), now).has_value());
    REQUIRE(engine.StartStep(now) != nullptr);
    if (token == 1) engine.FinishStep(absl::OkStatus(), now += absl::Milliseconds(10));
  }
  // The second prompt evicts both blocks of the first.
  REQUIRE(engine.copies().out.size() == 2);
  CHECK(engine.load(now).step_forecast > absl::Milliseconds(10));
  now += absl::Seconds(3);
  CHECK(engine.load(now).step_time == absl::Seconds(3));
  engine.CopiesDone(absl::Seconds(3));
  CHECK(engine.load(now).step_time == absl::ZeroDuration());
  CHECK(engine.load(now).step_forecast == absl::Milliseconds(10));
  CHECK(engine.load(now + absl::Seconds(2)).step_time == absl::Seconds(2));
}

}  // namespace
}  // namespace baton
