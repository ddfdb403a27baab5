// The watch over attached workers. It finds the silent and the hung ones from their reports of
// load, and remembers those that were lost.
//
//   well ──► silent, hung ──► returning ──► well
//     ▲            │
//     └────────────┘ the first time
//
// - A worker is silent if it has sent no report for its silence limit. It is also silent if it has
//   taken up no command for this time, by its reports, although the router has sent some.
// - A worker is hung if it reports, and its running step has taken five times its forecast, and at
//   least WatchOptions::silence.
// - A worker is lost if its connection breaks before it has announced a shutdown. A loss counts as
//   an avoidance, and the worker returns when it attaches again.
// - A silent worker returns with its next report, or when it takes up commands again. A hung worker
//   returns when its step has ended.
// - A worker that was avoided before stays `returning` for a while, without new requests. The time
//   doubles with each avoidance, so that a worker that comes and goes moves few requests. A worker
//   that was well for kForgiven, or lost for kForgiven, begins anew.
//
// The silence limit is twice the longest recent interval between reports, within the two bounds of
// WatchOptions. The longest interval halves in about 70 s of regular reports. The maximum serves
// better than a mean with deviations: most intervals are equal, and the rare long ones matter.
// An interval above WatchOptions::longest_silence does not count, because no limit would bear it.
//
// Time in which the router does not run does not count, because reports may then lie unread. The
// time between two calls counts up to kMostCounted.
//
// I/O-free: reports and the time come in, and changes go out. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "router/worker_state.h"

namespace baton {

struct WatchOptions {
  // Lower bound on the silence limit, and on the time of a step that counts as hung. Zero: no
  // worker is avoided.
  absl::Duration silence = absl::Seconds(1);
  // Upper bound on the silence limit.
  absl::Duration longest_silence = absl::Seconds(3);
};

class WorkerWatch {
 public:
  // The time between two ticks, and the part of a longer time that counts.
  static constexpr absl::Duration kTick = absl::Milliseconds(100);
  static constexpr absl::Duration kMostCounted = absl::Milliseconds(250);
  static constexpr absl::Duration kLongestReturn = absl::Seconds(30);
  static constexpr absl::Duration kForgiven = absl::Minutes(1);

  explicit WorkerWatch(const WatchOptions& options) : options_(options) {}

  // Records that a worker has attached. It may be returning at once.
  void Attached(const WorkerAddress& worker, absl::Time now);
  // Records a report, and finds other workers that are silent. The watch over a worker begins with
  // its first report.
  void Reported(const WorkerAddress& worker, const WorkerLoad& load, absl::Time now);
  // Ends the watch over an attached worker. `announced`: the worker has announced its shutdown.
  void Lost(const WorkerAddress& worker, bool announced, absl::Time now);
  void Tick(absl::Time now);
  // Before this time Tick does nothing. InfiniteFuture if no worker is watched.
  absl::Time NextTick() const;

  // A change of a worker's health.
  struct Change {
    WorkerAddress worker;
    WorkerHealth health = WorkerHealth::kWell;
    std::string reason;  // empty if the worker is well
  };
  // Returns the changes since the last call, in their order.
  std::vector<Change> TakeChanges() { return std::exchange(changes_, {}); }
  // Returns how often workers have become silent or hung. REQUIRES: `health` is kSilent or kHung.
  int64_t avoidances(WorkerHealth health) const { return health == WorkerHealth::kSilent ? silences_ : hangs_; }
  // Returns how many workers are remembered after a loss. They are not attached, and were lost in
  // the last kForgiven before the latest loss.
  size_t remembered() const { return lost_.size(); }
  // Number of workers that searches for silent workers have visited.
  int64_t visits() const { return visits_; }

 private:
  // All times are on the watch's own clock.
  struct Watched {
    WorkerHealth health = WorkerHealth::kWell;
    absl::Time since{};  // of `health`
    // The last report. InfiniteFuture before the first one, so that the worker is not silent.
    absl::Time reported = absl::InfiniteFuture();
    absl::Duration longest_interval{};
    int64_t commands = -1;   // as last reported; -1: not reported yet
    absl::Time took_up{};    // when the worker last took up a command, or had none to take up
    int avoidances = 0;      // and losses, since the worker was last well for kForgiven
    int64_t hung_steps = 0;  // kHung: the number of steps before the one that hangs
  };
  struct LostWorker {
    int avoidances = 0;  // as Watched::avoidances
    // The time of the loss. It is the caller's, because `clock_` stands still without workers.
    absl::Time at{};
  };

  void Advance(absl::Time now);
  void FindSilent();
  void Set(const WorkerAddress& name, Watched& worker, WorkerHealth health, std::string reason);
  void Avoid(const WorkerAddress& name, Watched& worker, WorkerHealth health, std::string reason);
  void CountAvoidance(Watched& worker) const;
  void Return(const WorkerAddress& name, Watched& worker);
  // Returns the time at which the worker becomes silent without another report.
  absl::Time SilentAt(const Watched& worker) const;
  absl::Duration SilenceLimit(const Watched& worker) const;
  static absl::Duration ReturnTime(const Watched& worker);
  // Returns why the report shows that commands do not arrive. Empty if they do.
  std::string StuckCommandsOf(Watched& worker, const WorkerLoad& load) const;
  // Returns why the report shows a hung step. Empty if it shows none.
  std::string HangOf(const WorkerLoad& load) const;

  const WatchOptions options_;
  absl::btree_map<WorkerAddress, Watched> workers_;
  absl::btree_map<WorkerAddress, LostWorker> lost_;
  absl::Time last_call_ = absl::InfinitePast();
  // Reports move the time of the last call on, so ticks have a time of their own.
  absl::Time last_tick_ = absl::InfinitePast();
  // Advances with the time of the calls, by at most kMostCounted between two of them.
  absl::Time clock_ = absl::UnixEpoch();
  // Lower bound on SilentAt of all workers. Most reports only postpone a silence, so a search is
  // due only when this time is reached.
  absl::Time next_silence_ = absl::InfiniteFuture();
  std::vector<Change> changes_;
  int64_t visits_ = 0;
  int64_t silences_ = 0, hangs_ = 0;
};

}  // namespace baton
