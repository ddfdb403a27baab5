#include "frontend/http/handshake_gate.h"

#include "catch.h"

namespace baton {
namespace {

using std::chrono::milliseconds;

constexpr HandshakeGate::TimePoint kStart{};
constexpr HandshakeGate::TimePoint At(int ms) { return kStart + milliseconds(ms); }

// A gate for two handshakes, with both begun at first.
struct FullGate {
  HandshakeGate gate{2, milliseconds(500), milliseconds(2000)};
  FullGate() {
    gate.Begin(1, At(0));
    CHECK(gate.IsOpen(At(0)));
    gate.Begin(2, At(100));
    CHECK_FALSE(gate.IsOpen(At(100)));
  }
};

TEST_CASE("HandshakeGate opens when a handshake ends") {
  FullGate w;
  const bool succeeds = GENERATE(false, true);
  succeeds ? w.gate.Succeed(2, At(200)) : w.gate.End(2);
  CHECK(w.gate.IsOpen(At(200)));
  w.gate.End(2);  // counts once
  w.gate.Begin(3, At(200));
  CHECK_FALSE(w.gate.IsOpen(At(200)));
}

TEST_CASE("HandshakeGate opens for each handshake that stalls while none succeeds") {
  FullGate w;
  CHECK_FALSE(w.gate.IsOpen(At(499)));
  CHECK(w.gate.IsOpen(At(500)));
  w.gate.Begin(3, At(500));
  CHECK_FALSE(w.gate.IsOpen(At(500)));
  w.gate.End(1);  // no longer counts
  CHECK_FALSE(w.gate.IsOpen(At(599)));
  CHECK(w.gate.IsOpen(At(600)));
}

TEST_CASE("HandshakeGate stays closed longer while handshakes succeed") {
  FullGate w;
  int id = 2;
  for (int ms = 400; ms < 2000; ms += 400) {
    w.gate.Succeed(id, At(ms));
    w.gate.Begin(++id, At(ms));
    CHECK_FALSE(w.gate.IsOpen(At(ms + 399)));
  }
  CHECK_FALSE(w.gate.IsOpen(At(1999)));
  CHECK(w.gate.IsOpen(At(2000)));
}

}  // namespace
}  // namespace baton
