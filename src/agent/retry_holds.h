// The upstream requests of failed requests that may be submitted again.
//
// A request that fails needs no output. The next attempt may need the same outputs, so the graph
// cancels none of these upstream requests until that attempt has come, or until its time is over.
//
// I/O-free: the time comes in. Not thread-safe.
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "agent/shares.h"
#include "base/ids.h"

namespace baton {

// An output that a reference of a failed request needed.
struct HeldOutput {
  RequestId id{};       // of the upstream request
  uint64_t serial = 0;  // AgentOutput::serial
};
struct HeldOutputs {
  std::vector<HeldOutput> outputs{};  // with one element for each reference
  absl::Time until;
};

class RetryHolds {
 public:
  // `most` bounds the outputs of all failed requests, in shares of their owners.
  explicit RetryHolds(int64_t most) : outputs_(most) {}

  // Whether this many more outputs may be held for a failed request. The caller checks this before
  // Put, unless it puts back what Take has returned.
  bool HasRoom(const RequestId& failed, size_t outputs) const {
    return outputs_.HasRoom(OwnerOf(failed), static_cast<int64_t>(outputs));
  }
  // Holds the outputs of a failed request. REQUIRES: none are held for this request.
  void Put(const RequestId& failed, HeldOutputs held);
  // Sets another end of the time. Does nothing if no outputs are held for this request.
  void Extend(const RequestId& failed, absl::Time until);
  // Removes and returns the outputs that are held for a failed request. There may be none.
  HeldOutputs Take(const RequestId& failed);
  // The failed request whose time ends first, and the time. InfiniteFuture: no outputs are held.
  std::pair<absl::Time, RequestId> NextExpiry() const;

  void ForEach(absl::FunctionRef<void(const HeldOutput& held)> visit) const;
  void CheckInvariants() const;

 private:
  Shares outputs_;
  absl::flat_hash_map<RequestId, HeldOutputs> held_;  // by failed request; none is empty
  std::set<std::pair<absl::Time, RequestId>> expiries_;
};

}  // namespace baton
