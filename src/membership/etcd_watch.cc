#include "membership/etcd_watch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/strings.h"
#include "membership/worker_names.h"

namespace baton {
namespace {

// Pause between two reads. It doubles while changes keep coming, up to the second value. The pause
// bounds the load of keys that change constantly.
constexpr std::chrono::milliseconds kMinReadPause(50);
constexpr std::chrono::milliseconds kMaxReadPause(1000);
// Duration of one watch. All keys are then read again, in case the watch was lost without an error.
constexpr std::chrono::seconds kMaxWatchDuration(60);
// Upper bound on the part of a key or value that a log line shows, in bytes.
constexpr size_t kMaxShownBytes = 64;

std::string Shown(const std::string& text) {
  return absl::StrCat("'", absl::CEscape(text.substr(0, kMaxShownBytes)), text.size() > kMaxShownBytes ? "...'" : "'");
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

// Every change causes a full read of the prefix. Missed or repeated events of a watch therefore
// cannot make the list wrong.
void EtcdWatch::Loop() {
  auto read_pause = kMinReadPause, pause = kMinReadPause;
  do {
    const auto found = client_.Read(prefix_, kMaxWorkers);
    absl::Status status = found.status();
    health_.Report(status);
    if (found.ok()) {
      Publish(AddressesOf(*found));
      const auto begin = std::chrono::steady_clock::now();
      status = client_.AwaitChange(prefix_, found->revision, kMaxWatchDuration);
      const bool at_once = std::chrono::steady_clock::now() - begin < kMaxReadPause;
      read_pause = at_once ? std::min(2 * read_pause, kMaxReadPause) : kMinReadPause;
      ReportWatch(status);
    } else if (!absl::IsCancelled(status)) {
      Publish(status);
    }
    pause = status.ok() ? read_pause : backoff_.Next();
    if (status.ok()) backoff_.Reset();
  } while (Sleep(pause));
}

// Logs the second failure in a row. A single failure does no harm, because the next read makes up
// for it.
void EtcdWatch::ReportWatch(const absl::Status& status) {
  if (absl::IsCancelled(status)) return;
  const int failed = std::exchange(failed_watches_, status.ok() ? 0 : failed_watches_ + 1);
  if (status.ok() && failed > 1) spdlog::info("etcd: watching {} again", prefix_);
  if (status.ok() || failed != 1) return;
  spdlog::warn("{}; cannot watch {}, reading it every few seconds", std::string(Message(status)), prefix_);
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
  std::string bad_values;
  if (!first.empty()) {
    bad_values = absl::StrCat("etcd: ", found.entries.size() - addresses.size(), " of ", found.entries.size(),
                              " keys under ", prefix_, " have values that are not addresses; the first is ", first);
  }
  if (bad_values != std::exchange(bad_values_, bad_values) && !bad_values.empty()) spdlog::warn("{}", bad_values);
  std::sort(addresses.begin(), addresses.end());
  addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
  return addresses;
}

void EtcdWatch::Publish(absl::StatusOr<std::vector<WorkerAddress>> workers) {
  {
    const std::lock_guard lock(mutex_);
    if (workers == workers_) return;
    workers_ = std::move(workers);
  }
  on_change_();
}

}  // namespace baton
