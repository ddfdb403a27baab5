// Overloads of Coalesce and Recycle for the events of workers. AttachServer finds them by overload
// resolution.
#pragma once

#include "worker.pb.h"

namespace baton::worker::v1 {

inline bool Coalesce(PrefillEvent& last, PrefillEvent& next) {
  if (!last.has_load() || !next.has_load()) return false;
  // Only the newest load matters.
  last.Swap(&next);
  return true;
}

inline bool Coalesce(DecodeEvent& last, DecodeEvent& next) {
  if (last.has_load() && next.has_load()) {
    last.Swap(&next);
    return true;
  }
  if (!last.has_updates() || !next.has_updates()) return false;
  auto& updates = *last.mutable_updates()->mutable_updates();
  for (TokenUpdate& update : *next.mutable_updates()->mutable_updates()) updates.Add(std::move(update));
  return true;
}

// Empties a sent event so that the next event reuses its memory. Returns false if the event holds
// no memory worth keeping.
inline bool Recycle(PrefillEvent&) { return false; }
inline bool Recycle(DecodeEvent& sent) {
  if (!sent.has_updates()) return false;
  // clear_updates keeps the messages for reuse.
  sent.mutable_updates()->clear_updates();
  return true;
}

}  // namespace baton::worker::v1
