// Random clusters. Every accepted request ends exactly once, and no action goes to a worker that is
// not attached.
#include <map>
#include <random>
#include <set>

#include "catch.h"
#include "world/random_run.h"
#include "world/router_core_world.h"

namespace baton {
namespace {

class RandomCluster {
 public:
  explicit RandomCluster(uint64_t seed) : random_(seed), core_(Limits(seed)) {}

  bool Event() {
    Step();
    Apply();
    return ++events_ < 1000;
  }
  void CheckInvariants() const { core_.CheckInvariants(); }
  void Settle() {
    core_.EndAll();
    Apply();
    CHECK(core_.live_requests() == 0);
    CHECK(live_.empty());
    CHECK(core_.NextTick() == absl::InfiniteFuture());
    for (const auto& [link, worker] : core_.workers()) CHECK(worker.requests.empty());
  }

  int ended = 0, finished = 0, kept = 0, avoided = 0, hedged = 0, formers_kept = 0, scored = 0, queued = 0;

 private:
  static RouterLimits Limits(uint64_t seed) {
    return {.live_requests = 30,
            .waiting_requests = 10,
            .worker_wait = absl::Milliseconds(seed % 5 == 0 ? 0 : 500),
            .room_wait = absl::Milliseconds(seed % 2 == 0 ? 0 : 100)};
  }
  int Draw(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }

  template <typename Set>
  typename Set::value_type Any(const Set& set) {
    return *std::next(set.begin(), Draw(static_cast<int>(set.size())));
  }

  void Step() {
    switch (Draw(18)) {
      case 17:
        return core_.Drain(absl::StrCat(Draw(5)), Draw(8) == 0, now_);
      case 14:
        return ReportRoom();
      case 15:
      case 16:
        return ReportOfWorkers();
      case 12:
      case 13:
        return Grow();
      case 0:
        return ToggleWorker();
      case 1:
        now_ += absl::Milliseconds(Draw(400));
        return core_.Tick(now_);
      case 2:
        return core_.Cancel(absl::StrCat(Draw(next_id_ + 1)));
      case 3:
      case 4:
      case 5:
        return Submit();
      default:
        return AnswerOfWorker();
    }
  }

  void ToggleWorker() {
    const int n = Draw(5);
    const WorkerRole role = n < 2 ? WorkerRole::kPrefill : WorkerRole::kDecode;
    const std::string link = absl::StrCat(n);
    if (jobs_.contains(link)) {
      if (Draw(3) == 0) {
        kept_at_.erase(link);  // without a message
        return core_.WorkerLoaded(link, {.draining = true}, now_);
      }
      jobs_.erase(link);
      kept_at_.erase(link);
      core_.WorkerLost(link, now_);
    } else {
      WorkerInfo info{.role = role, .address = link, .incarnation = Incarnation(++next_incarnation_), .model = "m"};
      info.max_batch = 3;
      info.context = 1000;
      info.blocks_total = n == 2 ? 4 : 40;
      // The last worker shares KV with no other, and attaches when the others leave.
      info.module_digest[0] = n == 4;
      if (!core_.registry().MayAttach(info).ok()) return;
      jobs_[link] = {};
      incarnation_[link] = info.incarnation;
      core_.WorkerAttached(link, info, now_);
    }
  }

  // Most workers report. A worker that does not, or whose step hangs, is avoided.
  void ReportOfWorkers() {
    for (const auto& [link, worker] : core_.workers()) {
      if (Draw(8) == 0) stopped_[link] = !stopped_[link];
      if (stopped_[link]) continue;
      WorkerLoad load{.draining = worker.load.draining, .steps = worker.load.steps + Draw(2)};
      if (Draw(16) == 0) load.step_time = absl::Minutes(1);
      core_.WorkerLoaded(link, load, now_);
    }
  }

  void Submit() {
    RouteRequest request{.id = absl::StrCat(++next_id_), .model = "m", .prompt_tokens = 1 + Draw(100)};
    if (Draw(2) == 0) request.session = absl::StrCat("s", Draw(4));
    if (Draw(2) == 0) request.deadline = now_ + absl::Milliseconds(Draw(3000));
    if (Draw(2) == 0) request.max_new_tokens = 1 + Draw(200);
    request.has_max_tokens = request.max_new_tokens > 0 && Draw(2) == 0;  // may fit no worker
    request.prefill_only = Draw(5) == 0;
    request.scores = !request.prefill_only && Draw(4) == 0;
    request.streaming = !request.scores && Draw(3) == 0;
    if (request.streaming) {
      request.prompt_tokens = Draw(100);
      streaming_[request.id] = request.prompt_tokens;
    }
    request.priority = Draw(3);
    if (Draw(2) == 0) request.tenant = absl::StrCat("t", Draw(3));
    request.queue_order = now_ + absl::Seconds(Draw(3));
    if (core_.Submit(request, now_).ok()) live_.insert(request.id);
  }

  // Prompts get increments even after their requests have ended.
  void Grow() {
    if (streaming_.empty()) return;
    const auto it = std::next(streaming_.begin(), Draw(static_cast<int>(streaming_.size())));
    it->second += Draw(40);
    if (Draw(3) != 0) return core_.Grew(it->first, it->second);
    core_.Closed(it->first, it->second + 1, 5, now_);
    streaming_.erase(it);
  }

  // A worker answers one of its jobs. It may answer twice, or after a cancel.
  void AnswerOfWorker() {
    if (jobs_.empty()) return;
    const std::string link = std::next(jobs_.begin(), Draw(static_cast<int>(jobs_.size())))->first;
    if (jobs_[link].empty()) return;
    const RequestId id = Any(jobs_[link]);
    const bool is_prefill = link < "2";
    if (Draw(5) == 0) {
      const absl::Status status = Draw(2) ? absl::ResourceExhaustedError("full") : absl::InternalError("broken");
      const bool no_room_to_decode = Draw(2) == 0;
      const bool reports_room = no_room_to_decode && Draw(4) != 0;
      core_.Failed(link, id, {status, absl::Milliseconds(reports_room ? 0 : Draw(100)), no_room_to_decode}, now_);
    } else if (is_prefill) {
      const std::string decode = absl::StrCat(2 + Draw(3));
      const bool streams = core_.Streams(id);
      const bool done = core_.PrefillDone(link, id, incarnation_[decode], now_);
      // A worker cannot complete a prompt that it has not received whole.
      if (streams) {
        CHECK_FALSE(done);
        return;
      }
    } else {
      TokenUpdate update;
      update.tokens.resize(static_cast<size_t>(Draw(3)));
      if (Draw(3) == 0) update.finish = Draw(2) == 0 ? FinishReason::kLength : FinishReason::kStop;
      core_.TokensArrived(link, id, update, now_);
    }
    if (Draw(4) != 0) jobs_[link].erase(id);
  }

  // A decode worker reports room, for a request that was to get kept room or for any requests.
  void ReportRoom() {
    if (kept_at_.empty()) return core_.OnRoom(absl::StrCat(2 + Draw(3)), 1 + Draw(2), now_);
    const auto& [link, id] = *std::next(kept_at_.begin(), Draw(static_cast<int>(kept_at_.size())));
    core_.OnKeptRoom(link, id, now_);
  }

  void Apply() {
    std::vector<RouterAction> actions;
    while (!(actions = core_.TakeActions()).empty()) Apply(actions);
  }
  void Apply(const std::vector<RouterAction>& actions) {
    for (const RouterAction& action : actions) {
      if (action.kind == Kind::kHealth) {
        avoided += IsAvoided(action.health.health);
        continue;
      }
      hedged += action.hedge;
      formers_kept += action.kind == Kind::kKeepFormer;
      scored += action.kind == Kind::kStartScoring;
      if (action.kind == Kind::kDropFormer || action.kind == Kind::kKeepFormer) continue;
      if (action.kind == Kind::kDropRoom) {
        REQUIRE(jobs_.contains(action.worker));
        CHECK(kept_at_.erase(action.worker) == 1);
        continue;
      }
      const RequestId& id = action.request->id;
      if (action.kind == Kind::kHasSlot) {
        ++queued;
        core_.GoOn(id, now_);
        continue;
      }
      if (action.kind == Kind::kEnd) {
        CHECK(live_.erase(id) == 1);
        ++ended;
        finished += action.status.ok();
        continue;
      }
      REQUIRE(jobs_.contains(action.worker));
      if (action.kind == Kind::kCancel) continue;  // the worker may still answer
      CHECK(live_.contains(id));
      if (action.kind == Kind::kKeepRoom) {
        kept_at_[action.worker] = id;
        ++kept;
        continue;
      }
      if (action.kind == Kind::kStartPrefill) CHECK(action.streaming == core_.Streams(id));
      if (action.kind == Kind::kAppend) CHECK(core_.Streams(id));
      // Until a streaming prompt is complete, its worker reports at most a failure.
      if (action.kind == Kind::kAppend || action.kind == Kind::kClose) CHECK(jobs_[action.worker].contains(id));
      jobs_[action.worker].insert(id);
    }
  }

  std::mt19937_64 random_;
  int events_ = 0;
  absl::Time now_ = absl::UnixEpoch();
  CoreById core_;
  std::map<std::string, std::set<RequestId>> jobs_;  // of attached workers
  std::map<std::string, RequestId> kept_at_;         // by decode worker
  std::map<std::string, bool> stopped_;
  std::map<std::string, Incarnation> incarnation_;
  std::set<RequestId> live_;
  std::map<RequestId, int32_t> streaming_;  // tokens so far
  int next_id_ = 0;
  uint64_t next_incarnation_ = 0;
};

TEST_CASE("RouterCore ends every request once in random runs") {
  int ended = 0, finished = 0, kept = 0, avoided = 0, hedged = 0, formers_kept = 0, scored = 0, queued = 0;
  const Seeds seeds = ForEachWorld<RandomCluster>(200, [&](const RandomCluster& cluster) {
    ended += cluster.ended;
    finished += cluster.finished;
    kept += cluster.kept;
    avoided += cluster.avoided;
    hedged += cluster.hedged;
    formers_kept += cluster.formers_kept;
    scored += cluster.scored;
    queued += cluster.queued;
  });
  if (seeds.all()) {
    CHECK(ended > 10000);
    CHECK(finished > 1000);
    CHECK(kept > 20);
    CHECK(avoided > 1000);
    CHECK(hedged > 100);
    CHECK(formers_kept > 10);
    CHECK(scored > 1000);
    CHECK(queued > 20);
  }
}

}  // namespace
}  // namespace baton
