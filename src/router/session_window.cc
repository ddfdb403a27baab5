#include "router/session_window.h"

#include <algorithm>

namespace baton {
namespace {

// A round ends after kRound prefills with `had_kv`, or after kLongestRound prefills in all.
constexpr int64_t kRound = 32, kLongestRound = 128;
// The share of prefills with `had_kv` that may find KV lost.
constexpr double kTolerated = 0.05;
// The sign "tight" requires that prefills waited more than kFull times as long as they ran.
constexpr int kFull = 8;
// Copies are cheap if computing took at least kDear times as long as they.
constexpr int kDear = 20;
// The bound falls by one part in kLower, and rises by one part in kRaise.
constexpr int64_t kLower = 8, kRaise = 64;

}  // namespace

bool SessionWindow::HasLost() const {
  return round_.lost > 1 && static_cast<double>(round_.lost) > kTolerated * static_cast<double>(round_.had_kv) &&
         round_.queued > round_.served();
}

bool SessionWindow::IsTight(int64_t active, const Sessions& sessions) const {
  const bool copies_are_dear = kDear * round_.copied > round_.compute;
  const int64_t fit = sessions.fit + (copies_are_dear ? 0 : sessions.fit_in_host);
  return round_.queued > kFull * round_.served() && active > 2 * fit;
}

void SessionWindow::AddPrefill(const Prefill& prefill, const Sessions& sessions) {
  if (left_out_ > 0) {
    --left_out_;
    return;
  }
  ++round_.prefills;
  round_.had_kv += prefill.had_kv;
  round_.lost += prefill.had_kv && prefill.lost;
  round_.queued += prefill.queued;
  round_.compute += prefill.compute;
  round_.copied += prefill.copied;
  if (round_.had_kv < kRound && round_.prefills < kLongestRound) return;
  const int64_t active = std::min(size_, sessions.active);
  const bool is_tight = IsTight(active, sessions);
  if (HasLost() || (is_tight && size_ == kUnbounded)) {
    Set(std::max(active / 2, std::min(active, sessions.fit)), sessions);
  } else if (is_tight) {
    Set(active - active / kLower, sessions);
  } else if (size_ != kUnbounded && sessions.some_wait) {
    Set(size_ + std::max<int64_t>(size_ / kRaise, 1), sessions);
  } else {
    round_ = {};
  }
}

void SessionWindow::Set(int64_t size, const Sessions& sessions) {
  size_ = std::max<int64_t>(size, 1);
  left_out_ = sessions.active;
  round_ = {};
}

}  // namespace baton
