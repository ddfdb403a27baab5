#include "node/shutdown.h"

#include <pthread.h>

#include <csignal>

#include "base/check.h"

namespace baton {
namespace {

sigset_t Signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGHUP);
  return signals;
}

}  // namespace

ShutdownSignal::ShutdownSignal() {
  const sigset_t signals = Signals();
  BATON_CHECK(pthread_sigmask(SIG_BLOCK, &signals, nullptr) == 0, "pthread_sigmask");
  // A write to a closed connection returns an error instead of ending the process.
  std::signal(SIGPIPE, SIG_IGN);
  // A write beyond the limit on file size returns EFBIG instead of ending the process.
  std::signal(SIGXFSZ, SIG_IGN);
}

int ShutdownSignal::Await() {
  const sigset_t signals = Signals();
  int signal = 0;
  while (sigwait(&signals, &signal) != 0) continue;
  return signal;
}

void ShutdownSignal::Release() {
  const sigset_t signals = Signals();
  BATON_CHECK(pthread_sigmask(SIG_UNBLOCK, &signals, nullptr) == 0, "pthread_sigmask");
}

}  // namespace baton
