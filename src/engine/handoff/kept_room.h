// The requests for which routers ask a decode worker to keep room.
#pragma once

#include <cstdint>
#include <map>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "request/jobs.h"

namespace baton {

// Each router names at most one request that the worker has refused and that has waited long
// (KeepRoom). The worker keeps room for one of these requests, the one that has waited longest. It
// grants another reservation only if the blocks of this request fit beside it. Blocks that come
// free are thus kept until the request fits. The worker then reports room for it by name.
//
// Room is kept until the request's reservation is granted, until the router names another request
// or none, or until the router's stream ends. The keeping cannot block a worker:
// - Room that was reported and not used within a lease is not kept any longer. The router may have
//   stopped, or the hand-off may have failed.
// - A request is passed over while it would not fit even if the worker were idle, because of
//   quarantined blocks.
//
// The blocks of a request count as if it shared none of them.
//
// Not thread-safe.
class KeptRoom {
 public:
  explicit KeptRoom(absl::Duration lease) : lease_(lease) {}

  // Replaces the router's request. REQUIRES: the request fits into an idle worker without
  // quarantined blocks.
  void Keep(RouterStream router, KeepRoom request, absl::Time now);
  // Does nothing if the router has named no request.
  void Drop(RouterStream router) { requests_.erase(router); }
  // Records that a reservation was granted.
  void Granted(const RequestId& request);

  // In the next three methods, `usable` is the number of the pool's blocks that are not in
  // quarantine.

  // Returns the number of blocks to keep free beside a reservation of `request`. It is 0 if room is
  // kept for `request` itself, or for no request.
  int64_t BlocksBeside(const RequestId& request, int64_t usable) const;
  // Returns the name of the request for which room is kept, if it has not been reported and `fits`
  // returns true. Returns an empty name otherwise.
  RequestId TakeFitting(int64_t usable, absl::FunctionRef<bool(const KeepRoom&)> fits);
  // Returns whether room is kept for a request.
  bool Keeps(int64_t usable) const { return First(usable) != requests_.end(); }

  // Drops requests that did not use reported room. Returns whether there were any. Every event of
  // the worker calls it first.
  bool Tick(absl::Time now);
  absl::Time NextTick() const;  // InfiniteFuture if nothing waits for time
  void CheckInvariants() const;

 private:
  struct Entry {
    KeepRoom request;
    absl::Time since;                               // the time since which the request waits
    absl::Time lapses_at = absl::InfiniteFuture();  // finite once room was reported
  };
  using Entries = std::map<RouterStream, Entry>;

  Entries::const_iterator First(int64_t usable) const;

  const absl::Duration lease_;
  absl::Time now_ = absl::InfinitePast();  // of the last event
  Entries requests_;
};

}  // namespace baton
