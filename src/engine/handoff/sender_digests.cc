// The sending side's digests: taken of each block once all of it is on its way, beside its push and what still
// computes.
#include "base/check.h"
#include "base/status.h"
#include "engine/handoff/sender.h"

namespace baton {

void HandoffSender::AskForDigests(HandoffId id, Handoff& handoff) {
  const DigestId digest(next_id_++);
  DigestBlocks ask{digest, handoff.reservation, {}};
  for (const int32_t index : handoff.undigested) {
    ask.blocks.push_back(handoff.blocks[static_cast<size_t>(index)].source);
  }
  ++handoff.digests_in_flight;
  digests_.emplace(digest, DigestInFlight{id, std::exchange(handoff.undigested, {})});
  actions_.push_back(std::move(ask));
}

void HandoffSender::OnDigests(DigestId id, const absl::StatusOr<std::vector<BlockDigest>>& digests, absl::Time now) {
  const auto it = digests_.find(id);
  if (it == digests_.end()) return;
  const DigestInFlight asked = std::move(it->second);
  digests_.erase(it);
  Handoff& handoff = *Find(asked.handoff);  // its result waits for this
  --handoff.digests_in_flight;
  if (digests.ok()) {
    BATON_CHECK(digests->size() == asked.indices.size(), "digests of other blocks");
    handoff.digests.resize(handoff.blocks.size());
    for (size_t i = 0; i < asked.indices.size(); ++i) {
      handoff.digests[static_cast<size_t>(asked.indices[i])] = (*digests)[i];
    }
    MaybeCommit(asked.handoff, handoff);
    MaybeFinish(asked.handoff, handoff, now);
  } else if (handoff.state == State::kDraining) {
    MaybeFinish(asked.handoff, handoff, now);
  } else {
    Fail(asked.handoff, digests.status(), absl::ZeroDuration(), now);
  }
}

std::vector<BlockDigest> HandoffSender::DigestsOfMissing(const Handoff& handoff) {
  std::vector<BlockDigest> digests;
  if (!handoff.wants_digests) return digests;
  for (size_t i = 0; i < handoff.blocks.size(); ++i) {
    if (handoff.blocks[i].missing) digests.push_back(handoff.digests[i]);
  }
  return digests;
}

}  // namespace baton
