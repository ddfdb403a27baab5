#include "agent/retry_holds.h"

#include <iterator>

#include "base/check.h"

namespace baton {

void RetryHolds::Put(const RequestId& failed, HeldOutputs held) {
  if (held.outputs.empty()) return;
  BATON_CHECK(!held_.contains(failed), failed);
  outputs_.Add(OwnerOf(failed), std::ssize(held.outputs));
  expiries_.insert({held.until, failed});
  held_[failed] = std::move(held);
}

void RetryHolds::Extend(const RequestId& failed, absl::Time until) {
  const auto found = held_.find(failed);
  if (found == held_.end()) return;
  expiries_.erase({found->second.until, failed});
  expiries_.insert({until, failed});
  found->second.until = until;
}

HeldOutputs RetryHolds::Take(const RequestId& failed) {
  const auto found = held_.find(failed);
  if (found == held_.end()) return {};
  HeldOutputs held = std::move(found->second);
  outputs_.Add(OwnerOf(failed), -std::ssize(held.outputs));
  expiries_.erase({held.until, failed});
  held_.erase(found);
  return held;
}

std::pair<absl::Time, RequestId> RetryHolds::NextExpiry() const {
  return expiries_.empty() ? std::pair(absl::InfiniteFuture(), RequestId()) : *expiries_.begin();
}

void RetryHolds::ForEach(absl::FunctionRef<void(const HeldOutput&)> visit) const {
  for (const auto& [failed, held] : held_) {
    for (const HeldOutput& output : held.outputs) visit(output);
  }
}

void RetryHolds::CheckInvariants() const {
  Shares outputs(outputs_.limit());
  for (const auto& [failed, held] : held_) {
    outputs.Add(OwnerOf(failed), std::ssize(held.outputs));
    BATON_CHECK(!held.outputs.empty() && expiries_.contains({held.until, failed}), failed);
  }
  BATON_CHECK(outputs == outputs_ && outputs.total() <= outputs.limit() && expiries_.size() == held_.size(),
              "the counts of held outputs are wrong");
}

}  // namespace baton
