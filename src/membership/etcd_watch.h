// The workers that etcd lists under one prefix, kept up to date.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "membership/backoff.h"
#include "membership/etcd_client.h"
#include "membership/etcd_health.h"

namespace baton {

// Thread-safe.
class EtcdWatch {
 public:
  // `seed` selects the server to ask first and seeds the jitter of retries.
  EtcdWatch(const EtcdOptions& options, std::string prefix, uint32_t seed, Metrics& metrics)
      : prefix_(std::move(prefix)), client_(options, seed), health_(metrics, prefix_), backoff_(seed) {}
  ~EtcdWatch() { Stop(); }

  // Starts a thread that reads and watches the prefix. The thread calls `on_change` whenever the
  // result of Workers changes.
  void Start(std::function<void()> on_change);
  // Stops the thread. `on_change` is not called after Stop returns. Idempotent. REQUIRES: all calls
  // come from one thread.
  void Stop();

  // Returns the addresses in the values of all keys under the prefix, sorted and without
  // duplicates. Returns an empty list before the first read. A value that is not an address is
  // logged and ignored. Returns UNAVAILABLE if the last read failed or found more than kMaxWorkers
  // keys.
  absl::StatusOr<std::vector<WorkerAddress>> Workers() const;

 private:
  void Loop();
  void ReportWatch(const absl::Status& status);
  // Returns false if the thread must stop.
  bool Sleep(std::chrono::milliseconds duration);
  std::vector<WorkerAddress> AddressesOf(const EtcdClient::Entries& found);
  void Publish(absl::StatusOr<std::vector<WorkerAddress>> workers);

  const std::string prefix_;
  EtcdClient client_;
  EtcdHealth health_;
  std::function<void()> on_change_;
  Backoff backoff_;  // this and the next two members belong to the thread
  // The last warning about values that are not addresses. An unchanged warning is not repeated.
  std::string bad_values_;
  // Failed watches in a row.
  int failed_watches_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable stopped_;
  bool stopping_ = false;                                               // guarded by mutex_
  absl::StatusOr<std::vector<WorkerAddress>> workers_{absl::in_place};  // guarded by mutex_
  std::thread thread_;
};

}  // namespace baton
