#include "server/etcd_watch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "server/worker_names.h"

namespace baton {
namespace {

constexpr std::chrono::milliseconds kRest(50);  // so that keys which change all the time are not read all the time
constexpr std::chrono::milliseconds kFirstBackoff(100);
constexpr std::chrono::milliseconds kMaxBackoff(2000);
constexpr size_t kLongestShown = 64;  // bytes of a key or value

std::string Shown(const std::string& text) {
  return absl::StrCat("'", absl::CEscape(text.substr(0, kLongestShown)), text.size() > kLongestShown ? "...'" : "'");
}

}  // namespace

void EtcdWatch::Start(std::function<void()> on_change) {
  on_change_ = std::move(on_change);
  thread_ = std::thread([this] { Loop(); });
}

void EtcdWatch::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stopped_.notify_all();
  client_.Cancel();
  if (thread_.joinable()) thread_.join();
}

absl::StatusOr<std::vector<WorkerAddress>> EtcdWatch::Workers() const {
  const std::lock_guard lock(mutex_);
  return workers_;
}

// A change is only a reason to read all anew: so nothing that is missed, or comes twice, is ever held against etcd.
void EtcdWatch::Loop() {
  auto backoff = kFirstBackoff;
  auto pause = kRest;
  do {
    const auto found = client_.Read(prefix_, kMostWorkers);
    absl::Status status = found.status();
    if (found.ok()) {
      Tell(AddressesOf(*found));
      status = client_.AwaitChange(prefix_, found->revision);
    } else if (!absl::IsCancelled(status)) {
      Tell(status);
    }
    pause = status.ok() ? kRest : backoff;
    backoff = status.ok() ? kFirstBackoff : std::min(backoff * 2, kMaxBackoff);
  } while (Sleep(pause));
}

bool EtcdWatch::Sleep(std::chrono::milliseconds duration) {
  std::unique_lock lock(mutex_);
  return !stopped_.wait_for(lock, duration, [this] { return stopping_; });
}

std::vector<WorkerAddress> EtcdWatch::AddressesOf(const EtcdClient::Entries& found) {
  std::vector<WorkerAddress> addresses;
  std::string first;
  for (const auto& [key, value] : found.entries) {
    if (IsWorkerAddress(value)) {
      addresses.push_back(value);
    } else if (first.empty()) {
      first = absl::StrCat(Shown(key), ": expected HOST:PORT, got ", Shown(value));
    }
  }
  std::string nonsense;
  if (!first.empty()) {
    nonsense = absl::StrCat("etcd: ", found.entries.size() - addresses.size(), " of ", found.entries.size(),
                            " keys under ", prefix_, " name no worker; the first is ", first);
  }
  if (nonsense != std::exchange(nonsense_, nonsense) && !nonsense.empty()) spdlog::warn("{}", nonsense);
  std::sort(addresses.begin(), addresses.end());
  addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
  return addresses;
}

void EtcdWatch::Tell(absl::StatusOr<std::vector<WorkerAddress>> workers) {
  {
    const std::lock_guard lock(mutex_);
    if (workers == workers_) return;
    workers_ = std::move(workers);
  }
  on_change_();
}

}  // namespace baton
