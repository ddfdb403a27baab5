#include "engine/handoff/refused_reservations.h"

#include <iterator>

#include "kv/block_layout.h"

namespace baton {

void RefusedReservations::Add(const AdmissionQuery& query) {
  const int64_t longest = BlocksFor(int64_t{query.kv_tokens} + query.max_new_tokens);
  refused_.emplace(query.blocks_now + longest - BlocksFor(query.kv_tokens), query);
  if (refused_.size() > kMost) refused_.erase(std::prev(refused_.end()));
}

int64_t RefusedReservations::TakeFitting(absl::FunctionRef<bool(const AdmissionQuery&)> fits) {
  if (!room_may_have_come_) return 0;
  int64_t fitting = 0, blocks = 0;
  while (!refused_.empty()) {
    AdmissionQuery query = refused_.begin()->second;
    query.blocks_now += blocks;  // of those that are counted already
    if (!fits(query)) break;
    blocks += refused_.begin()->first;
    refused_.erase(refused_.begin());
    ++fitting;
  }
  if (fitting > 0) room_may_have_come_ = false;
  return fitting;
}

}  // namespace baton
