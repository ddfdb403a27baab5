#include "frontend/http/body_bytes.h"

#include "base/check.h"

namespace baton {

bool BodyBytes::Take(const std::string& account, size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > most_ - taken_) return false;
  if (!account.empty() && bytes > 0) {
    size_t& held = held_[account];
    if (held + bytes > most_ - taken_ - bytes) {
      if (held == 0) held_.erase(account);
      return false;
    }
    held += bytes;
  }
  taken_ += bytes;
  return true;
}

void BodyBytes::Give(const std::string& account, size_t bytes) {
  const std::lock_guard lock(mutex_);
  BATON_CHECK(bytes <= taken_, "more bytes were returned than taken");
  taken_ -= bytes;
  if (account.empty() || bytes == 0) return;
  const auto held = held_.find(account);
  BATON_CHECK(held != held_.end() && bytes <= held->second, "more bytes were returned to an account than it took");
  held->second -= bytes;
  if (held->second == 0) held_.erase(held);
}

}  // namespace baton
