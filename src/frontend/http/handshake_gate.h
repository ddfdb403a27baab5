// Bounds the number of TLS handshakes that are under way.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <mutex>

#include "frontend/http/connection_table.h"

namespace baton {

// A handshake costs each side up to a millisecond of computation. Without a bound, the handshakes
// of a crowd slow each other down until their deadlines pass. With it, those that have begun end
// soon, and the other connections wait in the backlog of the socket.
//
// Clients that stall in their handshakes delay others only for a while. A handshake no longer
// counts if its beginning and the last success of any handshake are `patience` ago. In a slow crowd
// that makes progress, it counts for up to `longest_patience`. Thread-safe.
//
// A handshake begins when its connection is accepted, before the ClientHello. A process that opens
// thousands of connections at once sends no ClientHello for seconds (`bench/crowd.py`: 3 s). If its
// connections counted from the ClientHello only, all of them would be accepted first. Those beyond
// `max_connections` would get 503, and the ClientHellos would arrive together.
class HandshakeGate {
 public:
  using Id = ConnectionTable::Id;
  using TimePoint = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::nanoseconds;

  // REQUIRES: most > 0.
  HandshakeGate(size_t most, Duration patience, Duration longest_patience)
      : most_(most), patience_(patience), longest_patience_(longest_patience) {}

  // Whether a handshake may begin.
  bool IsOpen(TimePoint now);
  // REQUIRES: calls have increasing ids and times.
  void Begin(Id id, TimePoint now);
  void Succeed(Id id, TimePoint now);
  // Does nothing if the handshake no longer counts.
  void End(Id id);

 private:
  bool Counts(TimePoint begun, TimePoint now) const;  // REQUIRES: the caller holds the lock

  const size_t most_;
  const Duration patience_, longest_patience_;
  std::mutex mutex_;               // guards the members below
  std::map<Id, TimePoint> begun_;  // the beginnings of handshakes that count, oldest first
  TimePoint last_success_{};
};

}  // namespace baton
