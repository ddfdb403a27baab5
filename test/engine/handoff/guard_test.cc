// Tests of the write keys of a decode worker that guards its blocks, from Reserve to Start.
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/logging.h"
#include "catch.h"
#include "engine/handoff/constants.h"
#include "engine/handoff/receiver.h"

namespace baton {
namespace {

const int64_t kBlock = kLayout.BlockBytes();
constexpr int64_t kBlocks = 16;

class Worker {
 public:
  Worker() {
    spdlog::set_level(spdlog::level::off);
    REQUIRE(receiver.OnLink(Link(), clock.Now()).ok());
  }
  ~Worker() { spdlog::set_level(spdlog::level::info); }

  static LinkRequest Link() {
    return {.prefill_address = "p",
            .prefill_incarnation = Incarnation(1),
            .module_digest = {},
            .layout = kLayout,
            .numerics_id = "cpu",
            .supports_write_keys = true};
  }
  Reserved Reserve(const RequestId& id, int32_t family, bool cache_only = false) {
    const std::vector<TokenId> tokens(40, family);
    const auto reply = receiver.OnReserve({.request_id = id,
                                           .writer = NthWriter(Incarnation(5), 1),
                                           .keys = BlockKeys(RootKey(Digest{}, ""), tokens),
                                           .kv_tokens = 40,
                                           .expected_new_tokens = 8,
                                           .cache_only = cache_only},
                                          clock.Now());
    receiver.CheckInvariants();
    return std::get<Reserved>(reply.value());
  }
  bool Writes(const WriteKey& write_key, const MissingBlock& block) {
    const std::string data(static_cast<size_t>(kBlock), 'x');
    const int64_t target = block.target.value() * kBlock;
    return guard.Write(write_key, std::vector<BlockCopy>{{0, target, kBlock}}, data).ok();
  }
  bool Writes(const Reserved& reserved) { return Writes(*reserved.write_key, reserved.missing.back()); }
  absl::Status Commit(const Reserved& reserved) {
    const absl::Status status = receiver.OnCommit(
        {reserved.reservation, static_cast<int32_t>(reserved.missing.size()), {}, reserved.write_key}, clock.Now());
    receiver.CheckInvariants();
    return status;
  }

  std::vector<std::byte> memory = std::vector<std::byte>(static_cast<size_t>(kBlocks * kBlock));
  ManualClock clock;
  BlockPool pool{kBlocks};
  RadixTree tree{pool};
  WriteGuard guard{Slab(memory), kLayout};
  HandoffReceiver receiver{HandoffReceiverOptions{.module_digest = {},
                                                  .layout = kLayout,
                                                  .numerics_id = "cpu",
                                                  .incarnation = Incarnation(5),
                                                  .transport_descriptor = "slab",
                                                  .lease = kLease,
                                                  .guard = &guard},
                           pool, tree, [](const ReserveRequest&, int64_t) { return Admit{}; }};
};

TEST_CASE("WriteGuard accepts writes to missing blocks only with their write key") {
  Worker worker;
  const Reserved one = worker.Reserve("one", 1), two = worker.Reserve("two", 2);
  REQUIRE(one.write_key.has_value());
  REQUIRE(two.write_key.has_value());
  for (const MissingBlock& block : one.missing) {
    CHECK(worker.Writes(*one.write_key, block));
    CHECK_FALSE(worker.Writes(*two.write_key, block));
    CHECK_FALSE(worker.Writes({}, block));
  }
}

TEST_CASE("HandoffReceiver revokes a write key at the commit, also when cache-only") {
  Worker worker;
  for (const bool cache_only : {false, true}) {
    const Reserved first = worker.Reserve("one", cache_only, cache_only);
    CHECK(worker.Writes(first));
    REQUIRE(worker.Commit(first).ok());
    CHECK_FALSE(worker.Writes(first));
    const Reserved next = worker.Reserve("two", cache_only);  // its full blocks are in the cache
    REQUIRE(next.missing.size() == 1);
    CHECK(worker.Writes(next));
    CHECK_FALSE(worker.Writes(*next.write_key, first.missing.front()));
    REQUIRE(worker.Commit(next).ok());
  }
  // Writes with a revoked write key do not count.
  CHECK(worker.receiver.refused_writes() == 2);
}

TEST_CASE("HandoffReceiver revokes a write key when its reservation ends") {
  Worker worker;
  const auto release = [&](const Reserved& one) { worker.receiver.OnRelease({one.reservation}, worker.clock.Now()); };
  const auto cancel = [&](const Reserved&) { worker.receiver.Cancel("one", worker.clock.Now()); };
  const auto lapse = [&](const Reserved&) {
    worker.clock.Advance(kLease);
    worker.receiver.Tick(worker.clock.Now());
  };
  const auto commit_less = [&](const Reserved& one) {
    CHECK_FALSE(worker.receiver.OnCommit({one.reservation, 1, {}, one.write_key}, worker.clock.Now()).ok());
  };
  for (const std::function<void(const Reserved&)>& end :
       std::vector<std::function<void(const Reserved&)>>{release, cancel, lapse, commit_less}) {
    const Reserved one = worker.Reserve("one", 1);
    CHECK(worker.Writes(one));
    end(one);
    worker.receiver.CheckInvariants();
    CHECK(worker.guard.valid_keys() == 0);
    CHECK_FALSE(worker.Writes(one));
    worker.receiver.OnRelease({one.reservation}, worker.clock.Now());
    const Reserved next = worker.Reserve("next", 1);
    CHECK_FALSE(worker.Writes(*one.write_key, next.missing.front()));
    CHECK(worker.Writes(next));
    worker.receiver.OnRelease({next.reservation}, worker.clock.Now());
  }
}

TEST_CASE("HandoffReceiver frees guarded blocks at once when their reservation ends") {
  Worker worker;
  const auto cancel = [&](const Reserved&) { worker.receiver.Cancel("one", worker.clock.Now()); };
  const auto lapse = [&](const Reserved&) {
    worker.clock.Advance(kLease);
    worker.receiver.Tick(worker.clock.Now());
  };
  const auto commit_less = [&](const Reserved& one) {
    CHECK_FALSE(worker.receiver.OnCommit({one.reservation, 1, {}, one.write_key}, worker.clock.Now()).ok());
  };
  for (const std::function<void(const Reserved&)>& end :
       std::vector<std::function<void(const Reserved&)>>{cancel, lapse, commit_less}) {
    const Reserved one = worker.Reserve("one", 1);
    CHECK(worker.Writes(one));
    REQUIRE(worker.pool.counts().free == kBlocks - std::ssize(one.missing));
    worker.receiver.TakeRoom();
    end(one);
    worker.receiver.CheckInvariants();
    CHECK(worker.pool.counts().quarantined == 0);
    CHECK(worker.pool.counts().free == kBlocks);
    // The next requests receive all blocks, and the revoked write key writes none of them.
    std::vector<Reserved> next;
    for (int32_t i = 0; worker.pool.counts().free >= std::ssize(one.missing); ++i) {
      next.push_back(worker.Reserve(absl::StrCat("next", i), 10 + i));
    }
    for (const Reserved& reserved : next) {
      for (const MissingBlock& block : reserved.missing) CHECK_FALSE(worker.Writes(*one.write_key, block));
      CHECK(worker.Writes(reserved));
      worker.receiver.OnRelease({reserved.reservation}, worker.clock.Now());
    }
  }
}

TEST_CASE("WriteGuard refuses late writes without counting them") {
  Worker worker;
  const Reserved one = worker.Reserve("one", 1);
  CHECK(worker.Writes(*one.write_key, one.missing.front()));
  worker.receiver.Cancel("one", worker.clock.Now());
  CHECK_FALSE(worker.Writes(one));
  CHECK(worker.receiver.refused_writes() == 0);
  WriteKey forged = *one.write_key;
  forged.bits.back() ^= 1;
  CHECK_FALSE(worker.Writes(forged, one.missing.back()));
  CHECK(worker.receiver.refused_writes() == 1);
}

TEST_CASE("HandoffReceiver ignores a commit without the write key") {
  Worker worker;
  const Reserved one = worker.Reserve("one", 1), two = worker.Reserve("two", 2);
  for (std::optional<WriteKey> write_key : {std::optional<WriteKey>(), two.write_key, std::optional(WriteKey{})}) {
    Reserved forged = one;
    forged.write_key = write_key;
    CHECK(absl::IsFailedPrecondition(worker.Commit(forged)));
    forged.missing.pop_back();
    CHECK(absl::IsFailedPrecondition(worker.Commit(forged)));
  }
  CHECK(worker.receiver.refused_writes() == 6);
  CHECK(worker.Reserve("again", 1).missing.size() == one.missing.size());
  CHECK(worker.Writes(one));
  CHECK(worker.Commit(one).ok());
  CHECK(worker.Commit(one).ok());
}

TEST_CASE("HandoffReceiver refuses a link without support for write keys") {
  Worker worker;
  LinkRequest old = Worker::Link();
  old.supports_write_keys = false;
  const absl::Status status = worker.receiver.OnLink(old, worker.clock.Now()).status();
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(absl::StrContains(status.message(), "--guard-kv"));
}

}  // namespace
}  // namespace baton
