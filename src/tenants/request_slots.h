// The request slots of a router, and the requests that wait for one.
//
//   waiting ──► queued ──► running
//
// - A request waits without a slot until its prompt is complete and its session is active. Requests
//   that wait have limits of their own: a number (--max-waiting), and the bytes of their prompts.
// - A request that can run takes a slot: one of --max-requests, and of its tenant's max_requests.
//   If no slot is free for it, a new request is refused, and one that has waited is queued.
// - A slot that becomes free goes to the tenant with the fewest slots among those that may have
//   another one, and there to the request that was queued first.
//
// A request thus never occupies a slot that its upstream requests need. Requests in slots do not
// depend on requests without one, so the queue always moves on.
//
// I/O-free. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/node_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "request/request_spec.h"

namespace baton {

struct Request;

// Returns whether limits on tenants count the request. Low-priority requests do not count: no
// client waits for them, and they have their own limits.
bool CountsForTenant(const RequestSpec& spec);

class RequestSlots {
 public:
  struct Limits {
    int32_t slots = 4096;
    int32_t waiting = 16384;
    // Upper bound on the bytes of waiting prompts (WaitingBytes).
    int64_t waiting_bytes = int64_t{256} << 20;
  };
  enum class State { kNone, kWaiting, kQueued, kRunning };
  struct Tenant;
  // The part of a request. The request owns it.
  struct Part {
    Request* request = nullptr;  // for callers
    State state = State::kNone;
    Tenant* tenant = nullptr;  // null if limits on tenants do not count the request
    int64_t bytes = 0;         // of a request without a slot
    int64_t turn = 0;          // kQueued: order of the queue
  };

  explicit RequestSlots(const Limits& limits) : limits_(limits) {}
  RequestSlots(const RequestSlots&) = delete;  // parts point to its tenants
  RequestSlots& operator=(const RequestSlots&) = delete;

  // Returns RESOURCE_EXHAUSTED if every request of the tenant would be refused now.
  absl::Status Check(const std::string& tenant) const;
  // Adds a request that takes a slot at once, or returns RESOURCE_EXHAUSTED. `most` is the
  // tenant's max_requests, and 0 is no limit. IsQuotaRefusal of the error is true if that refused.
  absl::Status Run(Part& part, const RequestSpec& spec, int32_t most);
  // Adds a request that cannot run yet, or returns RESOURCE_EXHAUSTED. Its prompt has `bytes` bytes
  // so far. REQUIRES: limits on tenants count the request, or the router has no keys.
  //
  // A tenant with more waiting requests or bytes than are free may not add any. A tenant thus has
  // at most half of either. A request without a tenant has only the router's limits.
  absl::Status Wait(Part& part, const RequestSpec& spec, int32_t most, int64_t bytes);
  // The prompt of a waiting request grows, or shrinks if `bytes` is negative. Returns
  // RESOURCE_EXHAUSTED, and adds nothing, if too few bytes are free. Does nothing for a request
  // with a slot.
  absl::Status Grow(Part& part, int64_t bytes);
  // A waiting request can run. Returns whether it has a slot. Otherwise TakeGranted returns it once
  // it has one. Does nothing for a request that is queued or has a slot.
  bool Ready(Part& part);
  // Removes a request, if it was added. The next request in the queue takes its slot.
  void Leave(Part& part);
  // Returns the queued requests that have taken slots since the last call, in order.
  std::vector<Part*> TakeGranted() { return std::exchange(granted_, {}); }

  struct Counts {
    int32_t running = 0;
    int32_t waiting = 0;  // without a slot, queued or not
    int32_t queued = 0;
    int64_t waiting_bytes = 0;
    friend bool operator==(const Counts&, const Counts&) = default;
  };
  const Counts& counts() const { return counts_; }
  // `parts` are those of all live requests.
  void CheckInvariants(const std::vector<const Part*>& parts) const;

 private:
  // Orders tenants with queued requests by the right to the next slot.
  struct ByRight {
    bool operator()(const Tenant* a, const Tenant* b) const;
  };
  absl::Status CheckSlot(const Tenant& tenant) const;
  absl::Status CheckWait(const Tenant& tenant, int64_t bytes) const;
  absl::Status CheckBytes(const Tenant& tenant, int64_t bytes) const;
  bool HasShare(const Tenant& tenant) const;
  Tenant& Find(const std::string& name, int32_t most);
  void Change(Tenant& tenant, absl::FunctionRef<void()> change);
  void AddBytes(Part& part, int64_t bytes);
  void Start(Part& part);
  void StopWaiting(Part& part);
  void Grant();

  const Limits limits_;
  Counts counts_;
  // All tenants that had requests; the key file bounds their number. The name is empty if the
  // router has no keys.
  absl::node_hash_map<std::string, Tenant> tenants_;
  // Tenants with queued requests whose quota allows another slot.
  absl::btree_set<Tenant*, ByRight> next_;
  int64_t turns_ = 0;
  std::vector<Part*> granted_;
};

struct RequestSlots::Tenant {
  std::string name;
  int32_t most = 0;  // max_requests, as of the latest request; 0: no limit
  int32_t running = 0, waiting = 0;
  int64_t bytes = 0;
  absl::btree_map<int64_t, Part*> queue{};  // by turn

  // Whether a request is queued that the quota allows to run.
  bool may_have_slot() const { return !queue.empty() && (most == 0 || running < most); }
};

}  // namespace baton
