// Shows in the metrics of an etcd client whether etcd answers.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "metrics/metrics.h"

namespace baton {

class EtcdHealth {
 public:
  // Both gauges are 0 until etcd answers.
  EtcdHealth(Metrics& metrics, const std::string& prefix) : gauges_(metrics.Create<EtcdGauges>({{"prefix", prefix}})) {}

  // Reports the result of a request to etcd. CANCELLED: the client cancelled it, which shows
  // nothing about etcd.
  void Report(const absl::Status& status) {
    if (absl::IsCancelled(status)) return;
    gauges_.up->Set(status.ok() ? 1 : 0);
    if (status.ok()) gauges_.last_answer->Set(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
  }

 private:
  const EtcdGauges gauges_;
};

}  // namespace baton
