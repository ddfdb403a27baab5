// Which workers etcd has under a prefix, as of now.
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
  // `seed`: of which server is asked first, and of when it is asked again.
  EtcdWatch(const EtcdOptions& options, std::string prefix, uint32_t seed, Metrics& metrics)
      : prefix_(std::move(prefix)), client_(options, seed), health_(metrics, prefix_), backoff_(seed) {}
  ~EtcdWatch() { Stop(); }

  // From now on reads and watches, on a thread of its own, which calls `on_change` when Workers would say another
  // thing.
  void Start(std::function<void()> on_change);
  // No call of on_change comes after it. Idempotent; from one thread.
  void Stop();

  // The addresses that the keys under the prefix have as values, sorted, each once; none before etcd has been read for
  // the first time. A value that is no address names no worker, and is logged. UNAVAILABLE: etcd could not be read the
  // last time, or has more than kMostWorkers keys there.
  absl::StatusOr<std::vector<WorkerAddress>> Workers() const;

 private:
  void Loop();
  void ReportWatch(const absl::Status& status);
  bool Sleep(std::chrono::milliseconds duration);  // false: it is to stop
  std::vector<WorkerAddress> AddressesOf(const EtcdClient::Entries& found);
  void Tell(absl::StatusOr<std::vector<WorkerAddress>> workers);

  const std::string prefix_;
  EtcdClient client_;
  EtcdHealth health_;
  std::function<void()> on_change_;
  Backoff backoff_;         // this and what follows: of the thread
  std::string nonsense_;    // what it logged last of values that are no addresses
  int failed_watches_ = 0;  // since the last one that did not
  mutable std::mutex mutex_;
  std::condition_variable stopped_;
  bool stopping_ = false;                                               // guarded by mutex_
  absl::StatusOr<std::vector<WorkerAddress>> workers_{absl::in_place};  // guarded by mutex_
  std::thread thread_;
};

}  // namespace baton
