#include "simulator/faults.h"

#include <algorithm>

#include "base/strings.h"

namespace baton {

const FaultRow& RowOf(FaultKind kind) { return *std::ranges::find(kFaultTable, kind, &FaultRow::value); }

absl::StatusOr<FaultKind> FaultNamed(std::string_view name) { return ValueNamed("fault", name, kFaultTable); }

std::string ToString(const Fault& fault) {
  std::string text(RowOf(fault.kind).name);
  if (!fault.target.empty()) text = StrCat(text, " of ", fault.target);
  if (!fault.peer.empty()) text = StrCat(text, " to ", fault.peer);
  text = StrCat(text, " for ", absl::FormatDuration(fault.lasts));
  if (fault.factor != 1) text = StrCat(text, ", factor ", fault.factor);
  return text;
}

void FaultInjector::Begin(const Fault& fault) {
  const absl::Time until = queue_.Now() + fault.lasts;
  quiet_from_ = std::max(quiet_from_, until);
  LinkFaults& link = links_[{fault.target, fault.peer}];
  if (fault.kind == FaultKind::kPartition) {
    link.cut_until = std::max(link.cut_until, until);
  } else if (fault.kind == FaultKind::kSlowLink) {
    link.slow_until = std::max(link.slow_until, until);
    link.slowness = fault.factor;
  } else if (fault.kind == FaultKind::kMessages) {
    messages_until_ = std::max(messages_until_, until);
  }
}

Fate FaultInjector::FateOf(const MessageInfo& message) {
  Fate fate;
  const absl::Time now = queue_.Now();
  if (message.way == Way::kClient || now >= quiet_from_) return fate;
  if (const auto link = links_.find({message.from, message.to}); link != links_.end()) {
    if (now < link->second.cut_until) fate.not_before = link->second.cut_until;
    if (now < link->second.slow_until) fate.slowness = link->second.slowness;
  }
  if (now >= messages_until_) return fate;
  fate.fails = Draw(kShare);
  if (Draw(kShare)) fate.delay = kLongestDelay * std::uniform_real_distribution<double>(0, 1)(random_);
  return fate;
}

}  // namespace baton
