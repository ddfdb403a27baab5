#include "router/session_window.h"

#include <algorithm>

namespace baton {
namespace {

constexpr int64_t kRound = 32;       // prefills
constexpr double kTolerated = 0.05;  // of these
constexpr int64_t kRaise = 64;       // by one in so many

// To compute it again was more work than what was new.
bool LostItsKv(const SessionWindow::Prefill& prefill) { return prefill.again > prefill.computed - prefill.again; }

}  // namespace

bool SessionWindow::IsCongested() const {
  return static_cast<double>(round_.lost) > kTolerated * static_cast<double>(round_.prefills) &&
         round_.queued > round_.compute;
}

void SessionWindow::Ran(const Prefill& prefill, int64_t active, bool sessions_wait) {
  if (++round_.prefills <= 0) return;
  round_.lost += LostItsKv(prefill);
  round_.queued += prefill.queued;
  round_.compute += prefill.compute;
  if (round_.prefills < std::min(kRound, active)) return;
  if (IsCongested()) {
    Set(std::min(size_, active) * (round_.prefills - round_.lost) / round_.prefills, active);
  } else if (size_ != kUnbounded && sessions_wait) {
    Set(size_ + std::max<int64_t>(size_ / kRaise, 1), active);
  } else {
    round_ = {};
  }
}

void SessionWindow::Set(int64_t size, int64_t active) {
  size_ = std::max<int64_t>(size, 1);
  round_ = {.prefills = -active};
}

}  // namespace baton
