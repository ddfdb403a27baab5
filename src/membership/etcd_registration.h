// Keeps a worker's address in etcd for as long as the worker serves.
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

// On a thread of its own it puts the key PREFIX/ADDRESS with the address as value, under a lease that it renews three
// times in its duration, and puts it anew where etcd lost it. A key that somebody else holds is left alone until it is
// gone. What fails is logged and tried again.
class EtcdRegistration {
 public:
  // `prefix` ends in a slash; `seed`: of which server is asked first, and of when it is asked again.
  EtcdRegistration(const EtcdOptions& options, const std::string& prefix, const WorkerAddress& address,
                   std::chrono::seconds lease, uint32_t seed, Metrics& metrics);
  // Withdraws, and waits until etcd knows or its time is up.
  ~EtcdRegistration();

  // A thread of this object deletes the key, within `longest` and the options' patience. Otherwise the key ends with
  // its lease. Calls after the first have no effect.
  void Withdraw(absl::Duration longest = absl::InfiniteDuration());

 private:
  void Loop();
  absl::Status Keep();
  absl::Status Enter();
  void Revoke();
  void Report(const absl::Status& status);

  const EtcdOptions options_;  // with a patience that the lease allows
  const std::chrono::milliseconds longest_withdrawal_;
  const EtcdClient::Entry entry_;
  const std::chrono::seconds wanted_;
  EtcdClient client_;
  EtcdHealth health_;
  Backoff backoff_;          // this and what follows: of the thread
  EtcdClient::Lease lease_;  // id 0: none
  std::string error_;        // of the last time; logged once
  std::string holder_;       // who has the key instead; logged once
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stopping_ = false;                        // guarded by mutex_
  std::chrono::steady_clock::time_point until_;  // when it is to have stopped; guarded by mutex_
  std::thread thread_;                           // last: starts when the rest is ready
};

}  // namespace baton
