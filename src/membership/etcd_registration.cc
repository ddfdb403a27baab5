#include "membership/etcd_registration.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/status.h"
#include "base/strings.h"

namespace baton {
namespace {

// Returns `options` with a timeout short enough for the lease. A renewal begins after a third of
// the lease and asks every server within another third. The lease therefore outlives the renewal.
EtcdOptions WithTimeoutFor(std::chrono::seconds lease, EtcdOptions options) {
  const auto servers = static_cast<int64_t>(options.servers.size());
  options.timeout = std::min(options.timeout, std::chrono::milliseconds(lease) / (3 * servers));
  return options;
}

}  // namespace

EtcdRegistration::EtcdRegistration(const EtcdOptions& options, const std::string& prefix, const WorkerAddress& address,
                                   std::chrono::seconds lease, uint32_t seed, Metrics& metrics)
    : options_(WithTimeoutFor(lease, options)),
      longest_withdrawal_(options.timeout),
      entry_{absl::StrCat(prefix, address), address},
      lease_duration_(lease),
      client_(options_, seed),
      health_(metrics, prefix),
      backoff_(seed),
      thread_([this] { Loop(); }) {}

EtcdRegistration::~EtcdRegistration() {
  Withdraw();
  thread_.join();
}

void EtcdRegistration::Withdraw(absl::Duration longest) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    stopping_ = true;
    const auto most = std::min(longest, absl::FromChrono(longest_withdrawal_));
    until_ = std::chrono::steady_clock::now() + absl::ToChronoMilliseconds(most);
  }
  stopped_.notify_all();
  client_.Cancel();
}

void EtcdRegistration::Loop() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    const absl::Status status = Renew();
    Report(status);
    health_.Report(status);
    const auto period = std::chrono::milliseconds(std::min(lease_.duration, lease_duration_)) / 3;
    const auto pause = status.ok() ? period : backoff_.Next();
    if (status.ok()) backoff_.Reset();
    lock.lock();
    stopped_.wait_for(lock, pause, [this] { return stopping_; });
  }
  lock.unlock();
  if (lease_.id != 0) Revoke();
}

void EtcdRegistration::Revoke() {
  // A client of its own, because `client_` is cancelled.
  EtcdClient client(options_, client_.answered());
  const auto left = std::chrono::floor<std::chrono::milliseconds>(until_ - std::chrono::steady_clock::now());
  const absl::Status status = client.Revoke(lease_.id, std::max(left, std::chrono::milliseconds(0)));
  if (status.ok()) return spdlog::info("etcd: withdrew {}", entry_.key);
  spdlog::warn("{}; {} expires with its lease", std::string(Message(status)), entry_.key);
}

absl::Status EtcdRegistration::Renew() {
  if (lease_.id != 0) {
    ASSIGN_OR_RETURN(const bool known, client_.Renew(lease_.id));
    if (!known) lease_ = {};
  }
  if (lease_.id == 0) {
    ASSIGN_OR_RETURN(lease_, client_.Grant(lease_duration_));
  }
  return PutIfAbsent();
}

absl::Status EtcdRegistration::PutIfAbsent() {
  ASSIGN_OR_RETURN(const auto held, client_.Find(entry_.key));
  if (held.has_value() && held->lease == lease_.id) return absl::OkStatus();
  if (held.has_value()) {
    const std::string holder = StrCat("lease ", absl::Hex(held->lease), " ('", absl::CEscape(held->value), "')");
    if (holder != std::exchange(other_holder_, holder)) {
      spdlog::warn(
          "etcd: {} is held by {}, not by this worker's lease {}. Another worker has the same --advertise, this worker "
          "restarted, or the key was put by hand (lease 0). This worker registers when the key is gone",
          entry_.key, holder, std::string(absl::StrCat(absl::Hex(lease_.id))));
    }
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(client_.Put(entry_, lease_.id));
  other_holder_.clear();
  spdlog::info("etcd: registered {}", entry_.key);
  return absl::OkStatus();
}

void EtcdRegistration::Report(const absl::Status& status) {
  if (absl::IsCancelled(status)) return;
  const std::string error = status.ok() ? "" : std::string(Message(status));
  const std::string before = std::exchange(error_, error);
  if (error == before) return;
  if (error.empty()) return spdlog::info("etcd answers again: the registration of {} continues", entry_.key);
  spdlog::warn("{}; until etcd recovers, routers may not find {}", error, entry_.key);
}

}  // namespace baton
