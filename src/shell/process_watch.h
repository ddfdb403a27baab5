// Watches processes of this machine for their end.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"

namespace baton {

// The operating system reports the end of a process, so neither silence nor a message of a peer is
// taken for it. Thread-safe.
class ProcessWatch {
 public:
  using OnEnd = absl::AnyInvocable<void(const std::string& process)>;
  // Calls `on_end` on a thread of this object, once for each watched process that ends.
  explicit ProcessWatch(OnEnd on_end);
  ~ProcessWatch();

  // Watches the process with this name (OwnProcessName) until its end. A process that is already
  // watched is watched once. Returns the errors of OpenProcess, so `on_end` is called only for
  // processes that were alive after the beginning of this call. Returns RESOURCE_EXHAUSTED beyond
  // kMostProcesses.
  absl::Status Watch(const std::string& process);

  static constexpr size_t kMostProcesses = 256;

 private:
  void Run();
  // Waits for the end of a process, or for a signal. Returns the processes that have ended. They
  // are no longer watched.
  std::vector<std::string> Await();
  void Signal();

  OnEnd on_end_;
  // An eventfd. A signal means that the set of processes has changed, or the destructor has begun.
  const int signal_;
  std::mutex mutex_;                    // guards the next two members
  std::map<std::string, int> watched_;  // with their descriptors
  bool stopping_ = false;
  std::thread thread_;  // declared last, because the thread uses the other members
};

}  // namespace baton
