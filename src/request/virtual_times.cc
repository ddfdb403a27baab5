#include "request/virtual_times.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace baton {

void VirtualTimes::BeginWait(const std::string& tenant) {
  const int64_t time = TimeOf(tenant);
  lines_[tenant] = {.time = time, .waits = true};
}

void VirtualTimes::EndWait(const std::string& tenant) {
  const auto line = lines_.find(tenant);
  if (line == lines_.end()) return;
  line->second.waits = false;
  if (line->second.time <= now_) lines_.erase(line);
}

void VirtualTimes::Charge(const absl::btree_map<std::string, int64_t>& tokens) {
  if (tokens.empty()) return;
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const auto& [tenant, spent] : tokens) first = std::min(first, TimeOf(tenant));
  now_ = std::max(now_, first);
  for (const auto& [tenant, spent] : tokens) {
    BATON_CHECK(spent >= 0, "a charge is not negative");
    const int64_t time = TimeOf(tenant) + spent;
    lines_[tenant].time = time;
  }
  absl::erase_if(lines_, [this](const auto& line) { return !line.second.waits && line.second.time <= now_; });
}

void VirtualTimes::Settle(const std::string& tenant, int64_t charged, int64_t used) {
  if (used > charged) {
    const int64_t time = TimeOf(tenant) + used - charged;
    lines_[tenant].time = time;
    return;
  }
  const auto line = lines_.find(tenant);
  if (line == lines_.end()) return;
  // A refund beyond the current virtual time would be credit.
  line->second.time = std::max(line->second.time - (charged - used), std::min(line->second.time, now_));
  if (!line->second.waits && line->second.time <= now_) lines_.erase(line);
}

int64_t VirtualTimes::TimeOf(const std::string& tenant) const {
  const auto line = lines_.find(tenant);
  if (line == lines_.end()) return now_;
  return line->second.waits ? line->second.time : std::max(line->second.time, now_);
}

}  // namespace baton
