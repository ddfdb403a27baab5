// SIGTERM, SIGINT and SIGHUP, without code that runs inside a signal handler.
#pragma once

namespace baton {

// REQUIRES: made before any other thread, which inherits that these signals wait for Await.
class ShutdownSignal {
 public:
  ShutdownSignal();
  // Blocks until one of them comes; returns its number.
  int Await();
  // Undoes the constructor: the signals end the process as usual.
  void Release();
};

}  // namespace baton
