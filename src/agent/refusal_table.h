// Why submissions of requests were refused, for prompts that refer to these requests.
//
// The table is bounded. Each owner (agent/shares.h) has a share of it: the owner with the most
// entries loses its oldest one.
//
// I/O-free: the time comes in. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <set>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"

namespace baton {

struct Refusal {
  absl::Status status{};  // has a root cause
  std::string agent{};
  // The request counts as failed from `fails` on.
  absl::Time fails, expires;
};

class RefusalTable {
 public:
  // REQUIRES: limit >= 1.
  explicit RefusalTable(int32_t limit) : limit_(static_cast<size_t>(limit)) {}

  // Returns null if there is no refusal of this request, or if it has expired. Valid until the next
  // Put.
  const Refusal* Find(const RequestId& id, absl::Time now) const;
  // Adds or replaces a refusal. It becomes its owner's newest.
  void Put(const RequestId& id, Refusal refusal);
  // Does nothing if there is no refusal of this request.
  void Erase(const RequestId& id);

  void CheckInvariants() const;

 private:
  using Entries = std::list<std::pair<RequestId, Refusal>>;

  void SetCount(const std::string& owner, size_t before, size_t count);

  const size_t limit_;
  absl::flat_hash_map<RequestId, Entries::iterator> index_;
  absl::flat_hash_map<std::string, Entries> owners_;  // each owner's entries, the oldest first
  std::set<std::pair<size_t, std::string>> counts_;   // of entries, with their owners
};

}  // namespace baton
