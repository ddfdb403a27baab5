// A router core with two workers of each kind, which report their loads while they run.
#pragma once

#include <map>
#include <set>
#include <string>

#include "world/router_core_world.h"

namespace baton {

inline constexpr const char* kP2 = "prefill-2";
inline constexpr const char* kD2 = "decode-2";

struct WatchedCluster : Cluster {
  explicit WatchedCluster(RouterLimits limits = {}) : Cluster(limits) {
    core.WorkerAttached(kP2, Info(WorkerRole::kPrefill, kP2, 12), now);
    core.WorkerAttached(kD2, Info(WorkerRole::kDecode, kD2, 23), now);
    for (const char* link : {kP, kP2, kD, kD2}) loads[link] = {.blocks_free = 100};
    Run(absl::Milliseconds(100));
  }

  // Lets time pass. Each worker that is not stopped reports every 100 ms.
  void Run(absl::Duration time) {
    for (const absl::Time end = now + time; now < end;) {
      now += absl::Milliseconds(100);
      for (const auto& [link, load] : loads) {
        if (!stopped.contains(link)) core.WorkerLoaded(link, load, now);
      }
      if (now >= core.NextTick()) core.Tick(now);
    }
  }
  // Stops a worker for longer than the silence limit. Returns the actions that follow, as do the
  // other methods.
  Lines Silence(const std::string& link) {
    stopped.insert(link);
    Run(absl::Milliseconds(1100));
    return Take(core);
  }
  Lines Hang(const std::string& link) {
    loads[link].step_time = absl::Minutes(1);
    Run(absl::Milliseconds(100));
    return Take(core);
  }
  // Lets a stopped or hung worker go on.
  Lines Resume(const std::string& link) {
    stopped.erase(link);
    loads[link].step_time = absl::ZeroDuration();
    ++loads[link].steps;
    Run(absl::Milliseconds(100));
    return Take(core);
  }
  WorkerHealth HealthOf(const std::string& link) const { return core.workers().at(link).health; }
  // Submits a request that can wait for long. Returns the actions.
  Lines Submit(const RouteRequest& request) {
    REQUIRE(core.Submit(request, now).ok());
    return Take(core);
  }

  std::map<std::string, WorkerLoad> loads;  // of the next report, by worker
  std::set<std::string> stopped;
};

}  // namespace baton
