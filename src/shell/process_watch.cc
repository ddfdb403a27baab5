#include "shell/process_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "base/check.h"
#include "base/process_name.h"
#include "base/status.h"

namespace baton {

ProcessWatch::ProcessWatch(OnEnd on_end)
    : on_end_(std::move(on_end)), signal_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), thread_([this] { Run(); }) {
  BATON_CHECK(signal_ >= 0, "the system has no descriptor left");
}

ProcessWatch::~ProcessWatch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  Signal();
  thread_.join();
  for (const auto& [process, descriptor] : watched_) close(descriptor);
  close(signal_);
}

void ProcessWatch::Signal() {
  const uint64_t one = 1;
  BATON_CHECK(write(signal_, &one, sizeof one) == sizeof one, "an eventfd refused a signal");
}

absl::Status ProcessWatch::Watch(const std::string& process) {
  {
    const std::lock_guard lock(mutex_);
    if (watched_.contains(process)) return absl::OkStatus();
    if (watched_.size() >= kMostProcesses) {
      return absl::ResourceExhaustedError(absl::StrCat("more than ", kMostProcesses, " processes are watched"));
    }
    ASSIGN_OR_RETURN(const int descriptor, OpenProcess(process));
    watched_.emplace(process, descriptor);
  }
  Signal();
  return absl::OkStatus();
}

void ProcessWatch::Run() {
  while (true) {
    for (const std::string& process : Await()) on_end_(process);
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
  }
}

std::vector<std::string> ProcessWatch::Await() {
  std::vector<pollfd> descriptors{{signal_, POLLIN, 0}};
  std::vector<std::string> processes;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [process, descriptor] : watched_) {
      descriptors.push_back({descriptor, POLLIN, 0});
      processes.push_back(process);
    }
  }
  poll(descriptors.data(), descriptors.size(), -1);
  uint64_t signals = 0;
  // Fails if there was no signal.
  [[maybe_unused]] const ssize_t drained = read(signal_, &signals, sizeof signals);
  std::vector<std::string> ended;
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < processes.size(); ++i) {
    if ((descriptors[i + 1].revents & POLLIN) == 0) continue;
    close(watched_.extract(processes[i]).mapped());
    ended.push_back(std::move(processes[i]));
  }
  return ended;
}

}  // namespace baton
