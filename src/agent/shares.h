// Counts of entries that owners share, and the rule for a further one: an owner may have as many as
// remain for others. One that is alone may thus have half of the limit.
//
// An owner is a tenant, or on a router without API keys the part of a cache domain that precedes
// its first line feed. Such a router trusts all clients: one that varies its cache_salt has many
// shares.
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "base/ids.h"

namespace baton {

// Returns the owner of the request with this ScopedId. A tenant's cache domains begin with its name
// and a line feed.
inline std::string OwnerOf(const RequestId& id) {
  const size_t tenant = id.find('\n');
  if (tenant != std::string::npos) return id.substr(0, tenant);
  const size_t domain = id.rfind('/');
  return domain == std::string::npos ? "" : id.substr(0, domain);
}

class Shares {
 public:
  explicit Shares(int64_t limit) : limit_(limit) {}

  bool HasRoom(const std::string& owner, int64_t more) const { return Of(owner) + more <= limit_ - total_ - more; }
  // Adds entries, or removes them if `more` is negative.
  void Add(const std::string& owner, int64_t more) {
    total_ += more;
    const auto own = counts_.try_emplace(owner, 0).first;
    own->second += more;
    if (own->second == 0) counts_.erase(own);
  }
  int64_t Of(const std::string& owner) const {
    const auto found = counts_.find(owner);
    return found == counts_.end() ? 0 : found->second;
  }
  int64_t total() const { return total_; }
  int64_t limit() const { return limit_; }
  friend bool operator==(const Shares&, const Shares&) = default;

 private:
  int64_t limit_;
  int64_t total_ = 0;
  absl::flat_hash_map<std::string, int64_t> counts_;  // by owner; none is 0
};

}  // namespace baton
