// The workflows of a router: their live requests and values, their limits, and the tokens that they
// have generated. A value (agent/values.h) counts as a request that generates no token.
//
// A workflow begins with its first accepted request. It is kept for a while after its last request
// has ended, so that requests that come one after another share its limits. A request that is
// refused changes nothing.
//
// I/O-free: the time comes in. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/node_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/lru_map.h"

namespace baton {

struct AgentNode;

// Limits that a request states for its workflow.
struct WorkflowLimits {
  static constexpr int64_t kNoTokenLimit = std::numeric_limits<int64_t>::max();
  // Counted from the arrival of the workflow's first request.
  absl::Duration deadline = absl::InfiniteDuration();
  int64_t max_tokens = kNoTokenLimit;  // generated tokens of all requests
};

// Names a workflow within a router.
struct WorkflowKey {
  std::string cache_domain, name;
  friend bool operator==(const WorkflowKey&, const WorkflowKey&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const WorkflowKey& key) {
    return H::combine(std::move(h), key.cache_domain, key.name);
  }
};

class Workflows {
 public:
  struct Limits {
    absl::Duration keep = absl::Minutes(10);  // after the end of the last request
    // Upper bound on workflows without live requests. Beyond it, the oldest of the tenant that has
    // the most is dropped.
    int32_t kept = 16384;
    // Upper bound on the workflows whose cancellation also concerns requests that are being read.
    size_t cancelled = 4096;
  };
  struct Workflow;
  // The part of a live request or value, which owns it.
  struct Part {
    AgentNode* node = nullptr;     // for callers: the part of the same request in AgentGraph
    Workflow* workflow = nullptr;  // null: the request has no workflow
    int64_t number = 0;            // order of arrival
  };

  explicit Workflows(const Limits& limits) : limits_(limits), cancelled_(limits.cancelled) {}
  Workflows(const Workflows&) = delete;  // parts point to its workflows
  Workflows& operator=(const Workflows&) = delete;

  // Returns the error of a request that arrives now and states these limits:
  // - CANCELLED: the workflow was cancelled since the request was received, at `received`.
  // - DEADLINE_EXCEEDED, or FAILED_PRECONDITION if no token is left.
  absl::Status Check(const WorkflowKey& key, const WorkflowLimits& stated, absl::Time received, absl::Time now) const;
  // Adds a request. Its limits lower those of the workflow. `tenant` is its TenantOf. REQUIRES:
  // Check is OK.
  void Arrived(Part& part, const WorkflowKey& key, const std::string& tenant, const WorkflowLimits& stated,
               absl::Time now);
  // Counts generated tokens. Returns whether the workflow has no token left.
  static bool Generated(const Part& part, int64_t tokens);
  // Removes a request, if it was added.
  void Ended(Part& part, absl::Time now);

  // These return live requests in order of arrival.
  // The caller cancels the requests. Check refuses those that were received before now and arrive
  // later: reading a long prompt takes time.
  std::vector<Part*> Cancel(const WorkflowKey& key, absl::Time now);
  static std::vector<Part*> Siblings(const Part& part);  // including the request itself
  // Returns those of all workflows whose deadline has passed since the last call.
  std::vector<Part*> TakeOverdue(absl::Time now);
  // Before this time TakeOverdue returns nothing.
  absl::Time NextDeadline() const;

  // Returns a text such as "the deadline of workflow 'w' (30s after its first request)".
  static std::string DeadlineText(const Part& part);
  // Returns the error for a request of a workflow that has no token left.
  static absl::Status NoTokenLeft(const Part& part);

  int64_t kept() const { return std::ssize(kept_); }
  void CheckInvariants() const;

 private:
  // A time, and a number that makes it unique.
  using TimeKey = std::pair<absl::Time, int64_t>;
  using Queue = absl::btree_map<TimeKey, Workflow*>;

  const Workflow* Find(const WorkflowKey& key, absl::Time now) const;
  void SetTimer(Workflow& workflow, bool set);
  void Keep(Workflow& workflow, absl::Time now);
  void Unkeep(Workflow& workflow);
  void Drop(Workflow& workflow);
  void DropExpired(absl::Time now);
  void Change(const std::string& tenant, const TimeKey& key, Workflow* added);

  const Limits limits_;
  absl::node_hash_map<WorkflowKey, Workflow> workflows_;
  Queue timers_;  // deadlines of workflows with live requests
  Queue kept_;    // workflows without live requests, by the end of the time for which they are kept
  absl::node_hash_map<std::string, Queue> kept_of_tenant_;
  absl::btree_set<std::pair<int64_t, std::string>> tenants_;  // by the size of this queue
  LruMap<WorkflowKey, absl::Time> cancelled_;                 // the times of the last cancellations
  int64_t numbers_ = 0;
};

struct Workflows::Workflow {
  WorkflowKey key;
  std::string tenant;
  int64_t number = 0;
  absl::Time began;
  WorkflowLimits limits{};
  int64_t generated = 0;                        // tokens
  absl::btree_map<int64_t, Part*> live{};       // by number
  absl::Time expires = absl::InfiniteFuture();  // finite without live requests

  absl::Time ends() const { return began + limits.deadline; }  // the deadline
};

}  // namespace baton
