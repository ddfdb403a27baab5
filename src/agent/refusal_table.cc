#include "agent/refusal_table.h"

#include <iterator>

#include "agent/shares.h"
#include "base/check.h"

namespace baton {

const Refusal* RefusalTable::Find(const RequestId& id, absl::Time now) const {
  const auto found = index_.find(id);
  return found == index_.end() || found->second->second.expires <= now ? nullptr : &found->second->second;
}

void RefusalTable::Put(const RequestId& id, Refusal refusal) {
  Erase(id);
  const std::string owner = OwnerOf(id);
  Entries& entries = owners_[owner];
  entries.emplace_back(id, std::move(refusal));
  index_[id] = std::prev(entries.end());
  SetCount(owner, entries.size() - 1, entries.size());
  if (index_.size() > limit_) Erase(RequestId(owners_.at(counts_.rbegin()->second).front().first));
}

void RefusalTable::Erase(const RequestId& id) {
  const auto found = index_.find(id);
  if (found == index_.end()) return;
  const std::string owner = OwnerOf(id);
  Entries& entries = owners_.at(owner);
  SetCount(owner, entries.size(), entries.size() - 1);
  entries.erase(found->second);
  index_.erase(found);
  if (entries.empty()) owners_.erase(owner);
}

void RefusalTable::SetCount(const std::string& owner, size_t before, size_t count) {
  counts_.erase({before, owner});
  if (count > 0) counts_.insert({count, owner});
}

void RefusalTable::CheckInvariants() const {
  size_t entries = 0;
  for (const auto& [owner, list] : owners_) {
    entries += list.size();
    BATON_CHECK(counts_.contains({list.size(), owner}), owner);
  }
  BATON_CHECK(counts_.size() == owners_.size() && entries == index_.size() && entries <= limit_,
              "the counts of refusals are wrong");
}

}  // namespace baton
