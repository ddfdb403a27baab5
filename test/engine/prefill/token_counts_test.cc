#include "engine/prefill/token_counts.h"

#include "catch.h"
#include "world/prefill_world.h"

namespace baton {
namespace {

// A prefill worker whose steps compute two blocks. Messages arrive at once. The world checks the
// counts of each request that ends.
class Counted {
 public:
  explicit Counted(int64_t blocks = 32, int64_t decode_blocks = 16)
      : world_(
            {.blocks = blocks, .step_tokens = 32, .sender = {}}, [this](Envelope e) { mail_.Post(std::move(e)); },
            [](const std::string&) {}) {
    world_.AddDecode("d", decode_blocks);
  }

  PrefillWorld* operator->() { return &world_; }
  void Deliver() { mail_.DeliverAll(); }
  void Run() {
    Deliver();
    while (world_.Begin()) {
      world_.End();
      Deliver();
    }
  }
  PrefillTotals totals() { return world_.engine().load().totals; }
  PrefillTokens tokens() { return totals().tokens; }

 private:
  Mail mail_;
  PrefillWorld world_;
};

std::vector<TokenId> PromptOf(int64_t tokens, TokenId token = 1) {
  return std::vector<TokenId>(static_cast<size_t>(tokens), token);
}

TEST_CASE("Tokens that the decode worker holds count as held") {
  Counted w;
  w->Submit("first", PromptOf(33), "d");
  w.Run();
  REQUIRE(w->FirstToken("first").ok());
  for (const char* again : {"second", "third"}) {
    w->Submit(again, PromptOf(33), "d");
    w.Run();
    CHECK(w->requests().at(again).done->held_tokens == 32);
    REQUIRE(w->FirstToken(again).ok());
  }
  CHECK(w.tokens().computed == 32);
  CHECK(w.tokens().held == 64);
  CHECK(w.tokens().cached == 0);
  CHECK(w.totals().wasted_tokens == 0);
}

TEST_CASE("Computed tokens count as wasted when their request is cancelled or fails") {
  Counted w;
  w->Submit("a", PromptOf(100), "");
  REQUIRE(w->Begin());
  SECTION("when it is cancelled between steps") {
    w->End();
    w->Cancel("a");
  }
  SECTION("when it is cancelled in its first step") {
    w->Cancel("a");
    w->End();
  }
  SECTION("when a later step fails") {
    w->End();
    REQUIRE(w->Begin());
    w->End(/*failing_after=*/0);
  }
  CHECK(w.tokens().computed == 32);
  CHECK(w.tokens().not_reached == 67);
  CHECK(w.totals().wasted_tokens == 32);
}

TEST_CASE("Computed tokens count as refused and not as wasted without room to decode") {
  Counted w(/*blocks=*/32, /*decode_blocks=*/4);
  w->Submit("fills", PromptOf(50), "d");
  w.Run();
  w->Submit("a", PromptOf(50, 2), "d");
  REQUIRE(w->Begin());
  w.Deliver();
  CHECK(w->requests().at("a").failed->no_room_to_decode);
  w->End();
  CHECK(w.tokens().computed == 49 + 32);
  CHECK(w.totals().refused_tokens == 32);
  CHECK(w.totals().wasted_tokens == 0);
  // This worker gets no report of a client that leaves while the router waits for room.
  SECTION("when the client leaves") { w->Cancel("a"); }
  SECTION("when the router sends the request again") {
    REQUIRE(w->FirstToken("fills").ok());
    w->Submit("a again", PromptOf(50, 2), "d");
    w.Run();
    CHECK(w->requests().at("a again").done->cached_tokens == 32);
    CHECK(w.tokens().computed == 49 + 49);
  }
  CHECK(w.totals().refused_tokens == 32);
  CHECK(w.totals().wasted_tokens == 0);
}

TEST_CASE("Computed tokens count as wasted when a prompt restarts or gives blocks back") {
  Counted w(/*blocks=*/4);
  w->Open("a", PromptOf(49));
  w.Run();
  int64_t taken = 0;
  SECTION("when it restarts") {
    const bool last = true, restart = true;
    w->Append("a", PromptOf(49, 2), last, "", restart);
  }
  SECTION("when it gives blocks back") {
    taken = 64;
    w->Submit("takes", PromptOf(taken + 1, 2), "");
    w.Run();
    w->Append("a", {}, /*last=*/true, "");
  }
  w.Run();
  CHECK(w.tokens().computed == 48 + taken);
  CHECK(w.tokens().dropped == 48);
  CHECK(w.totals().wasted_tokens == 48);
  CHECK(w->requests().at("a").done->computed_tokens == 48);
}

TEST_CASE("Tokens of low-priority jobs are counted apart") {
  Counted w;
  w->Submit("shadow", PromptOf(33), "", kLowPriority);
  w.Run();
  w->Submit("hint", PromptOf(65, 2), "", kLowPriority);
  REQUIRE(w->Begin());
  w->End();
  w->Cancel("hint");
  CHECK(w.totals().low_priority.computed == 64);
  CHECK(w.totals().low_priority.not_reached == 32);
  CHECK(w.totals().wasted_tokens == 0);
  CHECK(w.tokens().computed == 0);
  w->Submit("next turn", PromptOf(33), "");
  w.Run();
  CHECK(w.tokens().cached == 32);
}

}  // namespace
}  // namespace baton
