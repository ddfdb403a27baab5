#include "engine/handoff/kept_room.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kv/block_layout.h"

namespace baton {

void KeptRoom::Keep(RouterStream router, KeepRoom request, absl::Time now) {
  BATON_CHECK(!request.request_id.empty(), "room is kept for a request with a name");
  const absl::Time since = now - request.waited;
  requests_[router] = {.request = std::move(request), .since = since};
}

void KeptRoom::Granted(const RequestId& request) {
  std::erase_if(requests_, [&](const auto& entry) { return entry.second.request.request_id == request; });
}

// Returns the request that has waited longest among those that would fit into an idle worker.
KeptRoom::Entries::const_iterator KeptRoom::First(int64_t usable) const {
  auto first = requests_.end();
  for (auto it = requests_.begin(); it != requests_.end(); ++it) {
    if (BlocksFor(int64_t{it->second.request.kv_tokens} + 1) > usable) continue;
    if (first == requests_.end() || it->second.since < first->second.since) first = it;
  }
  return first;
}

int64_t KeptRoom::BlocksBeside(const RequestId& request, int64_t usable) const {
  const auto first = First(usable);
  if (first == requests_.end() || first->second.request.request_id == request) return 0;
  const KeepRoom& kept = first->second.request;
  return std::min(usable, BlocksFor(int64_t{kept.kv_tokens} + kept.expected_new_tokens));
}

RequestId KeptRoom::TakeFitting(int64_t usable, absl::FunctionRef<bool(const KeepRoom&)> fits) {
  const auto first = First(usable);
  if (first == requests_.end() || first->second.lapses_at != absl::InfiniteFuture()) return {};
  if (!fits(first->second.request)) return {};
  requests_.at(first->first).lapses_at = now_ + lease_;
  return first->second.request.request_id;
}

bool KeptRoom::Tick(absl::Time now) {
  now_ = now;
  return std::erase_if(requests_, [&](const auto& entry) { return entry.second.lapses_at <= now; }) > 0;
}

absl::Time KeptRoom::NextTick() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [router, entry] : requests_) next = std::min(next, entry.lapses_at);
  return next;
}

void KeptRoom::CheckInvariants() const {
  for (const auto& [router, entry] : requests_) {
    BATON_CHECK(
        !entry.request.request_id.empty() && entry.request.kv_tokens >= 0 && entry.request.expected_new_tokens >= 0,
        "room is kept for a request that cannot exist");
  }
}

}  // namespace baton
