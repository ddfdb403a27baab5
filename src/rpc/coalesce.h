// Which events of a worker can become one while a router is slow to read, and whose memory is used again. Found by
// AttachServer.
#pragma once

#include "worker.pb.h"

namespace baton::worker::v1 {

inline bool Coalesce(PrefillEvent& last, PrefillEvent& next) {
  if (!last.has_load() || !next.has_load()) return false;
  last.Swap(&next);  // only the newest counts
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

// Empties an event that was sent, so that the next one has its memory. False: there is nothing worth keeping.
inline bool Recycle(PrefillEvent&) { return false; }
inline bool Recycle(DecodeEvent& sent) {
  if (!sent.has_updates()) return false;
  sent.mutable_updates()->clear_updates();  // keeps the messages, to be filled again
  return true;
}

}  // namespace baton::worker::v1
