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
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "agent/agent_output.h"
#include "agent/kept_bytes.h"
#include "agent/shares.h"
#include "base/ids.h"

namespace baton {

class OutputTable {
 public:
  struct Limits {
    int64_t kept_bytes = int64_t{256} << 20;
    int64_t announced = 65536;
  };
  explicit OutputTable(const Limits& limits) : bytes_(limits.kept_bytes), announced_(limits.announced) {}

  // Returns null if the table has no such output.
  AgentOutput* Find(const RequestId& id) const;
  // The announced outputs of owners. The caller checks HasRoom before Announce.
  const Shares& announced() const { return announced_; }
  // The bytes of the table's outputs, and of failed attempts that live requests own. The caller
  // drops what exceeds the limit.
  KeptBytes& bytes() { return bytes_; }
  const KeptBytes& bytes() const { return bytes_; }
  // Adds an announced output. Its request must be submitted before `until`. REQUIRES: the table has
  // no output with this id, and the text is null or closed.
  AgentOutput& Announce(std::unique_ptr<AgentOutput> output, absl::Time until);
  // Adds the output of an ended request. REQUIRES: as Announce.
  void Keep(std::unique_ptr<AgentOutput> output, absl::Time until);
  // Sets another time of expiry. REQUIRES: the table has the output.
  void Extend(AgentOutput& output, absl::Time until);
  // Removes and returns an output. REQUIRES: the table has it, and no prompt reads it.
  std::unique_ptr<AgentOutput> Drop(const RequestId& id);

  // The id of the output that expires first, and the time. InfiniteFuture: the table is empty.
  std::pair<absl::Time, RequestId> NextExpiry() const;
  int64_t kept() const { return kept_; }  // outputs of ended requests
  void CheckInvariants() const;

 private:
  AgentOutput& Add(std::unique_ptr<AgentOutput> output, AgentOutput::State state, absl::Time until);

  absl::flat_hash_map<RequestId, std::unique_ptr<AgentOutput>> outputs_;
  std::set<std::pair<absl::Time, RequestId>> expiries_;
  int64_t kept_ = 0;
  KeptBytes bytes_;
  Shares announced_;
};

}  // namespace baton
