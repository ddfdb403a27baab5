// Waiting for SIGTERM, SIGINT and SIGHUP without code in a signal handler.
#pragma once

namespace baton {

// Blocks the three signals, so that only Await receives them. REQUIRES: constructed before any
// other thread, because threads inherit the signal mask.
class ShutdownSignal {
 public:
  ShutdownSignal();
  // Blocks until one of the signals arrives. Returns its number.
  int Await();
  // Unblocks the signals. They then end the process by default.
  void Release();
};

}  // namespace baton
