#include "engine/handoff/release_retries.h"

#include <vector>

#include "catch.h"
#include "engine/handoff/constants.h"

namespace baton {
namespace {

const absl::Time kSent = absl::UnixEpoch();
constexpr absl::Duration kRetryEvery = absl::Seconds(3);

struct Retries {
  Retries() {
    retries.Send("d", kRef, kLease, kRetryEvery, kSent);
    REQUIRE(Sent() == 1);
  }
  // Returns the number of releases since the last call. CHECKs that all release kRef at "d".
  size_t Sent() {
    const std::vector<SenderAction> taken = std::exchange(actions, {});
    for (const SenderAction& action : taken) {
      CHECK(std::get<SendRelease>(action).to == "d");
      CHECK(std::get<SendRelease>(action).release.reservation == kRef);
    }
    return taken.size();
  }
  std::vector<SenderAction> actions;
  ReleaseRetries retries{actions};
};

}  // namespace

TEST_CASE("ReleaseRetries sends no release again that was answered, even by a refusal") {
  for (const absl::Status& answer : {absl::OkStatus(), absl::NotFoundError("no such reservation")}) {
    Retries r;
    r.retries.OnReply("d", kRef, answer, kSent);
    CHECK(r.retries.empty());
    CHECK(r.retries.NextTick() == absl::InfiniteFuture());
    r.retries.Tick(kSent + absl::Hours(1));
    CHECK(r.Sent() == 0);
  }
}

TEST_CASE("ReleaseRetries repeats a release until the blocks are free anyway") {
  for (const absl::Status& lost : {absl::UnavailableError("reset"), absl::DeadlineExceededError("late")}) {
    Retries r;
    absl::Time now = kSent;
    const absl::Time last = kSent + (kQuarantineLeases + 1) * kLease;
    while (now + kRetryEvery < last) {
      r.retries.OnReply("d", kRef, lost, now);
      CHECK(r.retries.NextTick() == now + kRetryEvery);
      r.retries.Tick(now + kRetryEvery - absl::Nanoseconds(1));
      CHECK(r.Sent() == 0);
      now += kRetryEvery;
      r.retries.Tick(now);
      CHECK(r.Sent() == 1);
      r.retries.Tick(now + absl::Hours(1));  // no repetition while an answer is due
      CHECK(r.Sent() == 0);
    }
    r.retries.OnReply("d", kRef, lost, last);
    CHECK(r.retries.empty());
  }
}

TEST_CASE("ReleaseRetries forgets releases to a process that is gone, and keeps the rest") {
  Retries r;
  r.retries.Send("e", kRef, kLease, kRetryEvery, kSent);
  r.actions.clear();
  absl::flat_hash_set<WorkerAddress> peers;
  r.retries.AddPeers(peers);
  CHECK(peers == absl::flat_hash_set<WorkerAddress>{"d", "e"});
  r.retries.Forget("e");
  CHECK_FALSE(r.retries.empty());
  r.retries.OnReply("e", kRef, absl::UnavailableError("reset"), kSent);
  CHECK(r.retries.NextTick() == absl::InfiniteFuture());
  r.retries.Forget("d");
  CHECK(r.retries.empty());
}

}  // namespace baton
