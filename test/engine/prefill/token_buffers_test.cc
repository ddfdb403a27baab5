// A prefill worker holds the tokens of a prompt in one buffer, from the job to the step's batch.
#include "catch.h"
#include "engine/prefill/engine.h"

namespace baton {
namespace {

constexpr absl::Time kNow = absl::UnixEpoch();

PrefillJob BufferJob(TokenBuffer tokens, bool streaming) {
  return {.request_id = "r", .spec = {.tokens = std::move(tokens)}, .streaming = streaming};
}

TEST_CASE("A step of PrefillEngine reads the job's tokens without a copy") {
  PrefillEngine engine({.blocks = 8, .vocab = 10, .context = 100, .increment = 16, .sender = {}});
  const TokenBuffer tokens = std::vector<TokenId>(40, 1);
  const bool streams = GENERATE(false, true);
  REQUIRE_FALSE(engine.Add(BufferJob(tokens, streams), kNow).has_value());
  const Batch* step = engine.StartStep(kNow);
  REQUIRE(step != nullptr);
  REQUIRE(step->slices.size() == 1);
  CHECK(step->slices[0].tokens.data() == tokens.data());
  engine.FinishStep(absl::OkStatus(), kNow);
}

TEST_CASE("A running step keeps the tokens that it reads when an increment arrives") {
  PrefillEngine engine({.blocks = 8, .vocab = 10, .context = 100, .increment = 16, .sender = {}});
  std::vector<TokenId> first(17, 1);
  const bool has_room = GENERATE(false, true);
  if (has_room) first.reserve(40);
  const TokenId* memory = first.data();
  REQUIRE_FALSE(engine.Add(BufferJob(std::move(first), /*streaming=*/true), kNow).has_value());
  const Batch* running = engine.StartStep(kNow);
  REQUIRE(running != nullptr);
  engine.Append({.request_id = "r", .tokens = std::vector<TokenId>(20, 2), .last = true}, kNow);
  CHECK(running->slices[0].tokens.data() == memory);
  CHECK(std::ranges::equal(running->slices[0].tokens, std::vector<TokenId>(16, 1)));
  engine.FinishStep(absl::OkStatus(), kNow);
  const Batch* next = engine.StartStep(kNow);
  REQUIRE(next != nullptr);
  CHECK((next->slices[0].tokens.data() == memory + 16) == has_room);
  CHECK(next->slices[0].tokens.front() == 1);
  CHECK(next->slices[0].tokens.back() == 2);
  engine.FinishStep(absl::OkStatus(), kNow);
}

}  // namespace
}  // namespace baton
