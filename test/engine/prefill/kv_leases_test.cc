#include "engine/prefill/kv_leases.h"

#include "catch.h"
#include "world/prefill_world.h"

namespace baton {
namespace {

constexpr LeaseHolder kRouter(1), kOther(2);

// A prefill worker and a decode worker. Messages arrive at once.
struct LeaseWorld {
  PrefillWorld world;

  explicit LeaseWorld(int64_t blocks, int64_t step_tokens = 512)
      : world(
            {.blocks = blocks, .step_tokens = step_tokens, .sender = {}}, [](Envelope e) { e.arrive(); },
            [](const std::string&) {}) {
    world.AddDecode("d", 64);
    world.lease_holder = kRouter;
  }

  // Returns a prompt of `blocks` blocks of KV. Prompts with different `first` tokens share no
  // block.
  static std::vector<TokenId> Prompt(TokenId first, int64_t blocks) {
    std::vector<TokenId> prompt(static_cast<size_t>(blocks * kBlockTokens + 1), first);
    return prompt;
  }
  void RunAll() {
    while (world.Begin()) world.End();
    world.CheckInvariants();
  }
  // Computes the prompt, and leases its first `leased` tokens if there are any.
  PrefillDone Run(const RequestId& id, std::vector<TokenId> prompt, int32_t leased = 0, const WorkerAddress& to = "",
                  absl::Duration duration = absl::Seconds(60)) {
    world.lease = {.tokens = leased, .duration = duration};
    world.Submit(id, std::move(prompt), to);
    RunAll();
    REQUIRE(world.requests().at(id).done.has_value());
    return *world.requests().at(id).done;
  }
  int64_t leased() { return world.engine().load().leased_blocks; }
  int64_t referenced() { return world.engine().load().blocks.referenced; }
};

TEST_CASE("A leased prompt stays cached until its lease ends when others fill the cache") {
  for (const bool with_lease : {true, false}) {
    LeaseWorld w(16);
    CHECK(w.Run("a", w.Prompt(1, 4), with_lease ? 65 : 0).computed_tokens == 64);
    CHECK(w.leased() == (with_lease ? 4 : 0));
    for (TokenId i = 2; i < 12; ++i) w.Run(absl::StrCat("other", i), w.Prompt(i, 6));
    CHECK(w.Run("again", w.Prompt(1, 4)).computed_tokens == (with_lease ? 0 : 64));
    w.world.Advance(absl::Seconds(59));
    CHECK(w.leased() == (with_lease ? 4 : 0));
    w.world.Advance(absl::Seconds(1));
    CHECK(w.leased() == 0);
    CHECK(w.referenced() == 0);
  }
}

TEST_CASE("A lease of a longer or equal prompt replaces the earlier lease") {
  LeaseWorld w(32);
  w.Run("a", w.Prompt(1, 2), 33, "", absl::Hours(1));
  w.world.Advance(absl::Seconds(40));
  w.Run("b", w.Prompt(1, 5), 81);
  CHECK(w.leased() == 5);
  w.world.Advance(absl::Seconds(40));
  CHECK(w.leased() == 5);
  w.Run("c", w.Prompt(1, 5), 81);
  w.world.Advance(absl::Seconds(40));
  CHECK(w.leased() == 5);
  w.world.Advance(absl::Seconds(20));
  CHECK(w.leased() == 0);
}

TEST_CASE("A handed-off prompt is leased, also when the decode worker holds its blocks") {
  LeaseWorld w(32);
  w.Run("a", w.Prompt(1, 4), 40, "d");
  CHECK(w.leased() == 2);
  w.world.Advance(absl::Seconds(60));
  CHECK(w.leased() == 0);
  CHECK(w.Run("b", w.Prompt(1, 4), 40, "d").computed_tokens == 0);
  CHECK(w.leased() == 2);
}

TEST_CASE("A streaming prompt is leased when it is done") {
  LeaseWorld w(32);
  w.world.lease = {.tokens = 50, .duration = absl::Seconds(60)};
  w.world.Open("a", w.Prompt(1, 2));
  w.RunAll();
  CHECK(w.leased() == 0);
  w.world.Append("a", std::vector<TokenId>(40, 1), true, "");
  w.RunAll();
  CHECK(w.leased() == 3);
}

TEST_CASE("Leases hold at most half of the pool, and the first to expire ends early") {
  LeaseWorld w(16);
  w.Run("a", w.Prompt(1, 3), 100, "", absl::Seconds(30));
  w.Run("b", w.Prompt(2, 3), 100, "", absl::Seconds(10));
  w.Run("c", w.Prompt(3, 3), 100, "", absl::Seconds(20));
  CHECK(w.leased() == 6);
  w.world.Advance(absl::Seconds(10));  // b's lease would end now, but it ended for c's
  CHECK(w.leased() == 6);
  w.Run("d", w.Prompt(4, 12), 1000);
  CHECK(w.leased() == 8);  // the prompt's first blocks
}

TEST_CASE("Leases end for a request that needs the room, but not before that helps it") {
  LeaseWorld w(8, /*step_tokens=*/48);
  w.Run("a", w.Prompt(1, 4), 100);
  w.world.lease = {};
  w.world.Submit("running", w.Prompt(2, 4), "");
  REQUIRE(w.world.Begin());
  w.world.Submit("large", w.Prompt(3, 8), "");
  w.world.End();
  REQUIRE(w.world.Begin());  // computes one block of "running"; the step has room for more
  CHECK(w.leased() == 4);
  w.world.End();
  w.RunAll();
  CHECK(w.world.requests().at("large").done.has_value());
  CHECK(w.leased() == 0);
  CHECK(w.referenced() == 0);
}

TEST_CASE("Leases end with their holder and the worker, and a failed request gets none") {
  LeaseWorld w(32);
  w.Run("a", w.Prompt(1, 3), 100);
  w.world.lease_holder = kOther;
  w.Run("b", w.Prompt(1, 2), 100);
  w.Run("c", w.Prompt(2, 2), 100);
  CHECK(w.leased() == 5);
  w.world.engine().EndLeases(kRouter);
  w.world.CheckInvariants();
  CHECK(w.leased() == 4);
  w.world.Submit("d", w.Prompt(5, 3), "");
  REQUIRE(w.world.Begin());
  w.world.Cancel("d");
  w.world.End();
  CHECK(w.leased() == 4);
  w.world.engine().FailAll(absl::UnavailableError("down"), w.world.Now());
  w.world.CheckInvariants();
  CHECK(w.referenced() == 0);
}

}  // namespace
}  // namespace baton
