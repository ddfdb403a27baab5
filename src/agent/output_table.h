// The outputs that no live request owns.
//
// An output is in one of two states here. It is announced, if prompts wait for a submission of its
// request. It is kept for a while after its request ended. Each has a time from which it expires.
//
// I/O-free: the time comes in. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "agent/output.h"
#include "agent/shares.h"
#include "base/ids.h"

namespace baton {

struct AgentNode;

// An output, and the streaming prompts that refer to it.
struct AgentOutput {
  // kAnnounced: prompts wait for a submission of the request.
  // kLive: the request is live, and owns the output.
  // kEnded: the request has ended.
  enum class State { kAnnounced, kLive, kEnded };
  struct ById {
    bool operator()(const AgentNode* a, const AgentNode* b) const;
  };
  State state = State::kAnnounced;
  AgentNode* producer = nullptr;  // kLive: the request that generates it; else null
  // kAnnounced: the output of the last attempt, which failed. Null: no attempt was accepted.
  std::unique_ptr<Output> text{};
  // kLive: the output of the attempt before, until this one has tokens or ends. Null: none.
  std::unique_ptr<Output> former{};
  std::set<AgentNode*, ById> downstreams{};  // streaming prompts that refer to it
  // References of clients' prompts to it that are not settled, and those that RetryHolds has.
  int64_t needs = 0;
  absl::Time expires = absl::InfiniteFuture();
  // Value of `expires` before the request was submitted.
  absl::Time announced_until = absl::InfiniteFuture();
  // kAnnounced: why the last submission was refused or failed. OK if there was none.
  // kEnded: the status of the request.
  absl::Status status{};
  std::string agent{};  // the agent name of the last submission; empty: none
  // The number of the last accepted submission, counted since the first or the last success.
  int32_t attempt = 0;
  bool is_value = false;
  uint64_t serial = 0;  // distinguishes the object from others with the same id
  int64_t bytes = 0;    // as counted in kept_bytes

  // The output that prompts use now. Null: none.
  Output* readable() const { return former == nullptr ? text.get() : former.get(); }
};

class OutputTable {
 public:
  struct Limits {
    int64_t kept_bytes = int64_t{256} << 20;
    int64_t announced = 65536;
  };
  explicit OutputTable(const Limits& limits) : limits_(limits), announced_(limits.announced) {}

  // Returns null if the table has no such output.
  AgentOutput* Find(const RequestId& id) const;
  // The announced outputs of owners. The caller checks HasRoom before Announce.
  const Shares& announced() const { return announced_; }
  // Adds an announced output. Its request must be submitted before `until`. REQUIRES: the table has
  // no output with this id, and text is null or closed.
  AgentOutput& Announce(const RequestId& id, std::unique_ptr<AgentOutput> output, absl::Time until);
  // Adds the output of an ended request. If there are too many bytes, drops those that expire first
  // and that no prompt refers to. REQUIRES: as Announce.
  void Keep(const RequestId& id, std::unique_ptr<AgentOutput> output, absl::Time until);
  // Sets another time of expiry. REQUIRES: the table has the output.
  void Extend(const RequestId& id, absl::Time until);
  // Removes and returns an output. REQUIRES: the table has it, and no prompt reads it.
  std::unique_ptr<AgentOutput> Drop(const RequestId& id);

  // The id of the output that expires first, and the time. InfiniteFuture: the table is empty.
  std::pair<absl::Time, RequestId> NextExpiry() const;

  struct Counts {
    int64_t kept = 0;
    int64_t kept_bytes = 0;
    friend bool operator==(const Counts&, const Counts&) = default;
  };
  const Counts& counts() const { return counts_; }
  void CheckInvariants() const;

 private:
  void Add(const RequestId& id, std::unique_ptr<AgentOutput> output, absl::Time until);

  const Limits limits_;
  absl::flat_hash_map<RequestId, std::unique_ptr<AgentOutput>> outputs_;
  std::set<std::pair<absl::Time, RequestId>> expiries_;
  Counts counts_;
  Shares announced_;
};

}  // namespace baton
