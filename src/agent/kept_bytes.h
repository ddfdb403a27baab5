// The bytes of outputs that no live request generates: of ended requests and of failed attempts.
//
// Beyond a limit, the owner (agent/shares.h) with the most bytes loses outputs. No owner therefore
// loses an output as long as it has less than an equal part of the limit.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/container/node_hash_map.h"
#include "agent/agent_output.h"

namespace baton {

class KeptBytes {
 public:
  explicit KeptBytes(int64_t limit) : limit_(limit) {}
  KeptBytes(const KeptBytes&) = delete;
  KeptBytes& operator=(const KeptBytes&) = delete;

  // Counts AgentOutput::kept anew, if there is one. The caller calls this after each change of the
  // output's state, texts, encodings, expiry or downstream prompts.
  void Count(AgentOutput& output);
  // Counts the output no longer.
  void Remove(AgentOutput& output);
  // Returns the output that goes next, or null if the rest fits into the limit: one with the least
  // AgentOutput::loss, and among these the one that expires first.
  AgentOutput* Excess() const;

  int64_t total() const { return total_; }
  int64_t limit() const { return limit_; }
  void CheckInvariants() const;

 private:
  // The order in which an owner loses its outputs: loss, expiry and serial.
  using Order = std::tuple<AgentOutput::Loss, absl::Time, uint64_t>;
  struct Owner {
    int64_t bytes = 0;
    std::map<Order, AgentOutput*> outputs;
  };
  static Order OrderOf(const AgentOutput& output);
  // Adds bytes to an owner, or removes them if `more` is negative.
  void Add(const std::string& owner, int64_t more);

  const int64_t limit_;
  int64_t total_ = 0;
  absl::node_hash_map<std::string, Owner> owners_;
  std::set<std::pair<int64_t, std::string>> by_bytes_;  // the owners
};

}  // namespace baton
