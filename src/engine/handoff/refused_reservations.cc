#include "engine/handoff/refused_reservations.h"

#include <iterator>

#include "kv/block_layout.h"

namespace baton {

void RefusedReservations::Add(const ReserveRequest& request, int64_t blocks_now) {
  const int64_t longest = BlocksFor(int64_t{request.kv_tokens} + request.expected_new_tokens);
  const int64_t blocks = blocks_now + longest - BlocksFor(request.kv_tokens);
  ReserveRequest sizes{.kv_tokens = request.kv_tokens, .expected_new_tokens = request.expected_new_tokens};
  refused_.emplace(blocks, std::pair(std::move(sizes), blocks_now));
  if (refused_.size() > kMaxRefused) refused_.erase(std::prev(refused_.end()));
}

int64_t RefusedReservations::TakeFitting(absl::FunctionRef<bool(const ReserveRequest&, int64_t blocks_now)> fits) {
  if (!may_fit_) return 0;
  int64_t fitting = 0, blocks = 0;
  while (!refused_.empty()) {
    const auto& [request, blocks_now] = refused_.begin()->second;
    if (!fits(request, blocks_now + blocks)) break;  // `blocks`: of the requests counted already
    blocks += refused_.begin()->first;
    refused_.erase(refused_.begin());
    ++fitting;
  }
  if (fitting > 0) may_fit_ = false;
  return fitting;
}

}  // namespace baton
