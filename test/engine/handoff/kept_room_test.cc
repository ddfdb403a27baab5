#include "engine/handoff/kept_room.h"

#include "catch.h"

namespace baton {
namespace {

constexpr RouterStream kRouter{1}, kOther{2};
constexpr int64_t kUsable = 20;

struct Kept {
  void Keep(RouterStream router, const RequestId& id, int32_t kv_tokens, absl::Duration waited) {
    room.Keep(router, {.request_id = id, .kv_tokens = kv_tokens, .expected_new_tokens = 16, .waited = waited}, now);
  }
  RequestId Take(bool fits = true) {
    room.CheckInvariants();
    return room.TakeFitting(kUsable, [&](const KeepRoom&) { return fits; });
  }
  void Advance(absl::Duration time) { room.Tick(now += time); }

  absl::Time now = absl::UnixEpoch();
  KeptRoom room{absl::Seconds(10)};
};

}  // namespace

TEST_CASE("KeptRoom keeps the blocks of the request that has waited longest") {
  Kept k;
  CHECK(k.room.BlocksBeside("x", kUsable) == 0);
  CHECK_FALSE(k.room.Keeps(kUsable));
  k.Keep(kRouter, "young", 96, absl::Seconds(3));
  CHECK(k.room.BlocksBeside("x", kUsable) == 7);
  k.Advance(absl::Seconds(1));
  k.Keep(kOther, "old", 112, absl::Seconds(5));
  CHECK(k.room.BlocksBeside("young", kUsable) == 8);
  CHECK(k.room.BlocksBeside("old", kUsable) == 0);
  CHECK(k.Take() == "old");
  SECTION("its reservation is granted") { k.room.Granted("old"); }
  SECTION("its router drops it") { k.room.Drop(kOther); }
  SECTION("it does not fit even into an idle worker") {
    CHECK(k.room.BlocksBeside("old", 7) == 7);
    return;
  }
  CHECK(k.room.BlocksBeside("x", kUsable) == 7);
  k.Keep(kRouter, "next", 16, absl::Seconds(3));
  CHECK(k.room.BlocksBeside("x", kUsable) == 2);
}

TEST_CASE("KeptRoom reports room for a request once") {
  Kept k;
  k.Keep(kRouter, "r", 96, absl::Seconds(3));
  CHECK(k.Take(/*fits=*/false).empty());
  CHECK(k.room.NextTick() == absl::InfiniteFuture());
  CHECK(k.Take() == "r");
  CHECK(k.Take().empty());
  k.Keep(kRouter, "r again", 96, absl::Seconds(4));
  CHECK(k.Take() == "r again");
}

TEST_CASE("KeptRoom drops a request that does not use reported room within a lease") {
  Kept k;
  k.Advance(absl::Seconds(1));
  k.Keep(kRouter, "r", 96, absl::Seconds(3));
  CHECK(k.Take() == "r");
  CHECK(k.room.NextTick() == k.now + absl::Seconds(10));
  CHECK_FALSE(k.room.Tick(k.now + absl::Seconds(9)));
  CHECK(k.room.Keeps(kUsable));
  CHECK(k.room.Tick(k.now + absl::Seconds(10)));
  CHECK_FALSE(k.room.Keeps(kUsable));
}

TEST_CASE("KeptRoom keeps no more blocks than the worker can use") {
  Kept k;
  k.room.Keep(kRouter, {.request_id = "r", .kv_tokens = 16, .expected_new_tokens = 100'000}, k.now);
  CHECK(k.room.BlocksBeside("x", kUsable) == kUsable);
}

}  // namespace baton
