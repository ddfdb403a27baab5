#include "kv/eviction_rank.h"

namespace baton {

Protection Protection::OfSession(absl::Time until, uint64_t number) {
  return Protection({Kind::kOfSession, 0, until - absl::UnixEpoch(), ~number});
}

Protection Protection::OfQueuedJob(int32_t priority, absl::Time queue_order, uint64_t number) {
  return Protection({Kind::kOfQueuedJob, priority, absl::UnixEpoch() - queue_order, ~number});
}

}  // namespace baton
