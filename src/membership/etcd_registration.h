// The registration of a worker's address in etcd while the worker serves.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "membership/backoff.h"
#include "membership/etcd_client.h"
#include "membership/etcd_health.h"

namespace baton {

// Holds the etcd key PREFIX/ADDRESS with the address as its value. A thread of this object writes
// the key under an etcd lease and renews the lease three times in its duration. If etcd loses the
// key, the thread writes it again. If the key exists under another lease, or without a lease, the
// thread waits until the key is gone. A key without a lease, put by hand, stays until it is
// deleted. The thread logs a failure and retries.
class EtcdRegistration {
 public:
  // `prefix` ends in a slash. `seed` selects the server to ask first and seeds the jitter of
  // retries.
  EtcdRegistration(const EtcdOptions& options, const std::string& prefix, const WorkerAddress& address,
                   std::chrono::seconds lease, uint32_t seed, Metrics& metrics);
  // Withdraws the key. Blocks until etcd has answered or the time limit has passed.
  ~EtcdRegistration();

  // Deletes the key on the thread of this object, without blocking the caller. The deletion takes
  // at most `longest` and `EtcdOptions::timeout`. If it fails, the key expires with its lease.
  // Only the first call has an effect.
  void Withdraw(absl::Duration longest = absl::InfiniteDuration());

 private:
  void Loop();
  absl::Status Renew();
  absl::Status PutIfAbsent();
  void Revoke();
  void Report(const absl::Status& status);

  // The timeout is reduced so that a renewal fits into the lease.
  const EtcdOptions options_;
  const std::chrono::milliseconds longest_withdrawal_;
  const EtcdClient::Entry entry_;
  const std::chrono::seconds lease_duration_;
  EtcdClient client_;
  EtcdHealth health_;
  Backoff backoff_;          // this and the next three members belong to the thread
  EtcdClient::Lease lease_;  // id 0 if there is no lease
  // The error of the last attempt. An unchanged error is not logged again.
  std::string error_;
  // The other holder of the key. An unchanged holder is not logged again.
  std::string other_holder_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stopping_ = false;  // guarded by mutex_
  // The time limit of the withdrawal. Guarded by mutex_.
  std::chrono::steady_clock::time_point until_;
  // Declared last, because the thread uses the other members.
  std::thread thread_;
};

}  // namespace baton
