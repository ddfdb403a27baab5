// Whose prompts a step begins with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"

namespace baton {

// Start-time fair queueing (Goyal, Vin and Cheng, 1996) of tenants. Each has a time of its own, in tokens: those that
// steps computed for it. Who is least far has the next turn, and in the end all who wait have had equally much. Who
// comes anew begins at the time of now, that of who was served last: idleness saves up nothing. Not thread-safe.
class TenantTurns {
 public:
  struct Candidate {
    std::string tenant;
    uint64_t since = 0;  // of those that are equally far, the least goes first
    // Something of it waits for nothing but its turn, or for room. False: it is served where it can be, and its time
    // goes on with everybody's.
    bool waits = true;
  };
  // For a step that is planned: in the order of their turns. REQUIRES: each tenant once.
  std::vector<Candidate> Order(std::vector<Candidate> candidates);
  // The step that was planned last costs them so many tokens each.
  void Charge(const absl::btree_map<std::string, int64_t>& tokens);
  int64_t TimeOf(const std::string& tenant) const;

 private:
  struct Line {
    int64_t time = 0;
    bool waits = false;  // since the last Order
  };
  absl::btree_map<std::string, Line> lines_;  // of tenants that wait, or are further than now
  int64_t now_ = 0;
};

}  // namespace baton
