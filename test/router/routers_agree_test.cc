// Two routers of one cluster with different histories. While they see the same workers, and none of
// these is overloaded, they choose the same workers for a session's turns. The watch over workers
// is off, because a router that restarts forgets which workers were lost.
#include <map>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "catch.h"
#include "seeds.h"
#include "world/router_core_world.h"

namespace baton {
namespace {

constexpr int kWorkers = 4;  // of each kind
constexpr int kSessions = 12;

// The workers that a turn was placed on.
using Places = std::pair<WorkerAddress, WorkerAddress>;

class TwoRouters {
 public:
  explicit TwoRouters(uint64_t seed) : random_(seed) {
    for (int n = 0; n < 2 * kWorkers; ++n) Toggle(n);
  }

  void Step() {
    now_ += absl::Milliseconds(Draw(50));
    switch (Draw(8)) {
      case 0:
        return Toggle(Draw(2 * kWorkers));
      case 1:  // a router restarts without its history
        if (Draw(3) == 0) Restart(Draw(2));
        return;
      default:
        Run(Draw(2), Draw(kSessions));
    }
  }

  // Compares the two routers' choices for every session.
  void Compare() {
    for (int session = 0; session < kSessions; ++session) {
      const Places one = Run(0, session), other = Run(1, session);
      INFO("session " << session << ": " << one.first << " and " << one.second << ", or " << other.first << " and "
                      << other.second);
      CHECK(one == other);
    }
  }

 private:
  int Draw(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }

  // Attaches or removes a worker. Workers join, die and return. One of each kind remains.
  void Toggle(int n) {
    const std::string address = absl::StrCat(n < kWorkers ? "prefill-" : "decode-", n);
    if (const auto found = workers_.find(address); found != workers_.end()) {
      if (n % kWorkers == 0) return;
      workers_.erase(found);
      for (auto& router : routers_) router->WorkerLost(address, now_);
      return;
    }
    const WorkerRole role = n < kWorkers ? WorkerRole::kPrefill : WorkerRole::kDecode;
    workers_[address] = {.role = role,
                         .address = address,
                         .incarnation = Incarnation(++incarnations_),
                         .model = "m",
                         .blocks_total = 100'000,
                         .context = 100'000,
                         .max_batch = 1000};
    for (auto& router : routers_) router->WorkerAttached(address, workers_[address], now_);
  }

  static std::unique_ptr<CoreById> NewRouter() {
    return std::make_unique<CoreById>(RouterLimits{.watch = {.silence = absl::ZeroDuration()}});
  }
  void Restart(int router) {
    routers_[router] = NewRouter();
    for (const auto& [address, info] : workers_) routers_[router]->WorkerAttached(address, info, now_);
  }

  // Runs the session's next turn, whose prompt is longer than the last one that any router has
  // seen.
  Places Run(int router, int session) {
    CoreById& core = *routers_[router];
    blocks_[session] += Draw(40);
    RouteRequest request{.id = absl::StrCat(++requests_), .model = "m", .session = absl::StrCat("s", session)};
    request.keys.resize(1 + blocks_[session]);
    for (size_t i = 0; i < request.keys.size(); ++i) {
      request.keys[i].bytes[0] = static_cast<uint8_t>(session);
      request.keys[i].bytes[1] = static_cast<uint8_t>(i >> 8);
      request.keys[i].bytes[2] = static_cast<uint8_t>(i);
    }
    request.prompt_tokens = static_cast<int32_t>(request.keys.size() * kBlockTokens) + 3;
    request.max_new_tokens = 10;
    const RequestId id = request.id;
    REQUIRE(core.Submit(request, now_).ok());
    Places places;
    for (const RouterAction& action : core.TakeActions()) {
      if (action.kind == RouterAction::Kind::kStartPrefill) places = {action.worker, action.decode_worker};
    }
    REQUIRE(workers_.contains(places.second));
    if (Draw(5) != 0) {
      REQUIRE(core.PrefillDone(places.first, id, workers_[places.second].incarnation, now_));
      core.Remember(places.first, request.keys);
      core.TokensArrived(places.second, id, true);
    } else {
      core.Cancel(id);
    }
    core.TakeActions();
    core.CheckInvariants();
    return places;
  }

  std::mt19937_64 random_;
  absl::Time now_ = absl::UnixEpoch();
  std::unique_ptr<CoreById> routers_[2]{NewRouter(), NewRouter()};
  std::map<WorkerAddress, WorkerInfo> workers_;
  std::map<int, int> blocks_;
  int requests_ = 0;
  uint64_t incarnations_ = 0;
};

TEST_CASE("Routers with different histories place a session's turns on the same workers") {
  ForEachSeed(20, [](uint64_t seed) {
    TwoRouters cluster(seed);
    for (int round = 0; round < 30; ++round) {
      for (int i = 0; i < 10; ++i) cluster.Step();
      cluster.Compare();
    }
  });
}

}  // namespace
}  // namespace baton
