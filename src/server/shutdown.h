// SIGTERM and SIGINT, without code that runs inside a signal handler.
#pragma once

namespace baton {

// REQUIRES: made before any other thread, which inherits that these signals wait for Await.
class ShutdownSignal {
 public:
  ShutdownSignal();
  // Blocks until the process is asked to end; returns the signal's number.
  int Await();
  // Undoes the constructor: the signals end the process as usual.
  void Release();
};

}  // namespace baton
