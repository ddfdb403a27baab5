#include "engine/prefill/kv_leases.h"

#include <algorithm>

#include "base/check.h"

namespace baton {

void KvLeases::Ask(LeaseHolder holder, std::span<const BlockKey> path, absl::Time until) {
  if (!path.empty()) asked_.push_back({holder, {path.begin(), path.end()}, until});
}

void KvLeases::Grant(int64_t budget) {
  for (const Asked& asked : std::exchange(asked_, {})) {
    const int64_t available = tree_.Available();
    Grant(asked, budget);
    budget -= available - tree_.Available();
  }
}

void KvLeases::Grant(const Asked& asked, int64_t budget) {
  std::span<const BlockKey> path(asked.path);
  // Blocks of a path that have a reference come before blocks that have none.
  const int64_t ready = tree_.ReadyPrefix(path);
  const int64_t referenced = ready - tree_.CachedInPrefix(path);
  const int64_t length = std::min({ready, referenced + std::max<int64_t>(budget, 0), most_});
  if (length == 0) return;
  path = path.first(static_cast<size_t>(length));
  Lease lease{.name = {asked.holder, path.back()}, .blocks = {}};
  for (const BlockKey& key : path) {
    lease.blocks.Append(tree_.Acquire(key));
    ++holds_[lease.blocks.ids().back()];
  }
  for (const BlockKey& key : path) {
    const auto replaced = by_name_.find({asked.holder, key});
    if (replaced != by_name_.end()) End(leases_.find(replaced->second));
  }
  const Moment moment(asked.until, ++granted_);
  by_name_.insert_or_assign(lease.name, moment);
  leases_.emplace(moment, std::move(lease));
  while (blocks() > most_) EndFirst();
}

void KvLeases::End(Leases::iterator lease) {
  for (const BlockId block : lease->second.blocks.ids()) {
    const auto holds = holds_.find(block);
    if (--holds->second == 0) holds_.erase(holds);
  }
  by_name_.erase(lease->second.name);
  leases_.erase(lease);
}

void KvLeases::EndFirst() {
  BATON_CHECK(!leases_.empty(), "there is no lease to end");
  End(leases_.begin());
}

void KvLeases::EndAllOf(LeaseHolder holder) {
  std::erase_if(asked_, [&](const Asked& asked) { return asked.holder == holder; });
  for (auto lease = leases_.begin(); lease != leases_.end();) {
    const auto current = lease++;
    if (current->second.name.first == holder) End(current);
  }
}

void KvLeases::EndAll() {
  asked_.clear();
  while (!leases_.empty()) EndFirst();
}

void KvLeases::Tick(absl::Time now) {
  while (NextTick() <= now) EndFirst();
}

void KvLeases::CheckInvariants() const {
  BATON_CHECK(blocks() <= most_, "leases hold too many blocks");
  BATON_CHECK(by_name_.size() == leases_.size(), "a lease without a name");
  absl::flat_hash_map<BlockId, int64_t> holds;
  for (const auto& [moment, lease] : leases_) {
    BATON_CHECK(by_name_.at(lease.name) == moment, "a lease under a wrong name");
    for (const BlockId block : lease.blocks.ids()) {
      ++holds[block];
      BATON_CHECK(pool_.ReferencesOf(block) > 0, "a leased block without a reference");
    }
  }
  BATON_CHECK(holds == holds_, "leased blocks miscounted");
}

}  // namespace baton
