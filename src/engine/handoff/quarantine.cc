#include "engine/handoff/quarantine.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace baton {

void Quarantine::Add(const ReservationRef& ref, std::vector<BlockRef> blocks, std::string process, absl::Time ends_at) {
  if (blocks.empty()) return;
  Entry& entry = entries_[ref.id];
  BATON_CHECK(entry.blocks.empty(), "a reservation was quarantined twice");
  entry = {.generation = ref.generation, .blocks = {}, .process = std::move(process), .ends_at = ends_at};
  for (BlockRef& block : blocks) {
    entry.blocks.push_back(block.id());
    pool_.Quarantine(std::move(block));
  }
}

int64_t Quarantine::EndIf(absl::FunctionRef<bool(ReservationId, const Entry&)> ends) {
  int64_t freed = 0;
  for (auto it = entries_.begin(); it != entries_.end();) {
    if (!ends(it->first, it->second)) {
      ++it;
      continue;
    }
    for (const BlockId block : it->second.blocks) pool_.EndQuarantine(block);
    freed += std::ssize(it->second.blocks);
    it = entries_.erase(it);
  }
  return freed;
}

int64_t Quarantine::Release(const ReservationRef& ref) {
  return EndIf([&](ReservationId id, const Entry& entry) { return ReservationRef{id, entry.generation} == ref; });
}

int64_t Quarantine::OnProcessEnd(std::string_view process) {
  BATON_CHECK(!process.empty(), "a process without a name has ended");
  return EndIf([&](ReservationId, const Entry& entry) { return entry.process == process; });
}

int64_t Quarantine::Tick(absl::Time now) {
  return EndIf([&](ReservationId, const Entry& entry) { return entry.ends_at <= now; });
}

absl::Time Quarantine::NextTick() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [id, entry] : entries_) next = std::min(next, entry.ends_at);
  return next;
}

void Quarantine::CheckInvariants() const {
  int64_t blocks = 0;
  for (const auto& [id, entry] : entries_) blocks += std::ssize(entry.blocks);
  BATON_CHECK(blocks == pool_.counts().quarantined, "the pool has another number of quarantined blocks");
}

}  // namespace baton
