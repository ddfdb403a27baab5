#include "frontend/http/handshake_gate.h"

#include <algorithm>

namespace baton {

bool HandshakeGate::IsOpen(TimePoint now) {
  const std::lock_guard lock(mutex_);
  while (!begun_.empty() && !Counts(begun_.begin()->second, now)) begun_.erase(begun_.begin());
  return begun_.size() < most_;
}

bool HandshakeGate::Counts(TimePoint begun, TimePoint now) const {
  return now - begun < longest_patience_ && now - std::max(begun, last_success_) < patience_;
}

void HandshakeGate::Begin(Id id, TimePoint now) {
  const std::lock_guard lock(mutex_);
  begun_.emplace(id, now);
}

void HandshakeGate::Succeed(Id id, TimePoint now) {
  const std::lock_guard lock(mutex_);
  begun_.erase(id);
  last_success_ = std::max(last_success_, now);
}

void HandshakeGate::End(Id id) {
  const std::lock_guard lock(mutex_);
  begun_.erase(id);
}

}  // namespace baton
