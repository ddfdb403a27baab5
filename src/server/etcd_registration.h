// Keeps a worker's address in etcd for as long as the worker serves.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "server/etcd_client.h"

namespace baton {

// On a thread of its own it puts the key PREFIX/ADDRESS with the address as value, under a lease that it renews three
// times in its duration, and puts it anew where etcd lost it. What fails is logged and tried again.
class EtcdRegistration {
 public:
  // `prefix` ends in a slash.
  EtcdRegistration(EtcdOptions options, const std::string& prefix, const WorkerAddress& address,
                   std::chrono::seconds lease);
  // Withdraws, and waits until etcd knows or was asked in vain: kPatience at most for each server.
  ~EtcdRegistration();

  // The key goes, in the background. Idempotent.
  void Withdraw();

 private:
  void Loop();
  absl::Status Keep();
  void Report(const absl::Status& status);

  const EtcdOptions options_;
  const EtcdClient::Entry entry_;
  const std::chrono::seconds wanted_;
  EtcdClient client_;
  EtcdClient::Lease lease_;  // this and what follows: of the thread; id 0: none
  std::string error_;        // of the last time; logged once
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;     // last: starts when the rest is ready
};

// For a worker that listens there; null: the options do not want it. INVALID_ARGUMENT: as AdvertisedAddress.
absl::StatusOr<std::unique_ptr<EtcdRegistration>> Register(const WorkerOptions& options, const std::string& listening);

}  // namespace baton
