#include "server/etcd_registration.h"

#include <algorithm>
#include <utility>

#include "base/logging.h"
#include "base/status.h"
#include "base/strings.h"
#include "server/worker_names.h"

namespace baton {
namespace {

constexpr std::chrono::milliseconds kFirstBackoff(100);
constexpr std::chrono::milliseconds kMaxBackoff(2000);

}  // namespace

EtcdRegistration::EtcdRegistration(EtcdOptions options, const std::string& prefix, const WorkerAddress& address,
                                   std::chrono::seconds lease)
    : options_(std::move(options)),
      entry_{absl::StrCat(prefix, address), address},
      wanted_(lease),
      client_(options_),
      thread_([this] { Loop(); }) {}

EtcdRegistration::~EtcdRegistration() {
  Withdraw();
  thread_.join();
}

void EtcdRegistration::Withdraw() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stopped_.notify_all();
  client_.Cancel();
}

void EtcdRegistration::Loop() {
  auto backoff = kFirstBackoff;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    const absl::Status status = Keep();
    Report(status);
    const auto period = std::chrono::milliseconds(std::min(lease_.duration, wanted_)) / 3;
    const auto pause = status.ok() ? period : backoff;
    backoff = status.ok() ? kFirstBackoff : std::min(backoff * 2, kMaxBackoff);
    lock.lock();
    stopped_.wait_for(lock, pause, [this] { return stopping_; });
  }
  lock.unlock();
  if (lease_.id == 0) return;
  const absl::Status status = EtcdClient(options_).Revoke(lease_.id);  // client_ is cancelled
  if (status.ok()) return spdlog::info("etcd: {} is withdrawn", entry_.key);
  spdlog::warn("{}; {} goes when its lease ends", std::string(Message(status)), entry_.key);
}

absl::Status EtcdRegistration::Keep() {
  if (lease_.id != 0) {
    ASSIGN_OR_RETURN(const bool known, client_.Renew(lease_.id));
    if (!known) lease_ = {};
  }
  if (lease_.id == 0) {
    ASSIGN_OR_RETURN(lease_, client_.Grant(wanted_));
  }
  ASSIGN_OR_RETURN(const bool there, client_.Has(entry_, lease_.id));
  if (there) return absl::OkStatus();
  RETURN_IF_ERROR(client_.Put(entry_, lease_.id));
  spdlog::info("etcd: {} is registered", entry_.key);
  return absl::OkStatus();
}

void EtcdRegistration::Report(const absl::Status& status) {
  if (absl::IsCancelled(status)) return;
  const std::string error = status.ok() ? "" : std::string(Message(status));
  if (error != std::exchange(error_, error) && !error.empty()) {
    spdlog::warn("{}; until etcd answers, routers may not find {} there", error, entry_.key);
  }
}

absl::StatusOr<std::unique_ptr<EtcdRegistration>> Register(const WorkerOptions& options, const std::string& listening) {
  if (options.register_under.empty()) return nullptr;
  ASSIGN_OR_RETURN(const WorkerName name, ParseWorkerName(options.register_under));
  ASSIGN_OR_RETURN(const WorkerAddress address, AdvertisedAddress(options, listening));
  return std::make_unique<EtcdRegistration>(options.common.etcd, name.name, address,
                                            std::chrono::seconds(options.lease_seconds));
}

}  // namespace baton
