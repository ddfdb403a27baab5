// A decode worker keeps a prompt's tokens in the buffer of its job, and the output in another
// buffer.
#include "catch.h"
#include "world/decode_world.h"

namespace baton {

TEST_CASE("DecodeEngine reads the prompt's last token from the job's buffer") {
  DecodeWorld world(TestOptions(16));
  DecodeJob job = TestJob("r", {1, 2, 3, 4}, 5);
  const TokenBuffer tokens = job.spec.tokens;
  world.StartJob(std::move(job));
  DecodeStep* step = world.Begin();
  REQUIRE(step != nullptr);
  CHECK(step->batch.slices[0].tokens.data() == tokens.data() + 3);
  world.Finish(*step);
  world.RunAll();
  CHECK(tokens == std::vector<TokenId>{1, 2, 3, 4});
}

}  // namespace baton
