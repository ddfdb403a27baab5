// Metrics that show whether etcd answers.
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

  // Records the result of a request to etcd. Ignores CANCELLED, because the client cancelled the
  // request itself.
  void Report(const absl::Status& status) {
    if (absl::IsCancelled(status)) return;
    gauges_.up->Set(status.ok() ? 1 : 0);
    if (status.ok()) gauges_.last_answer->Set(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
  }

 private:
  const EtcdGauges gauges_;
};

}  // namespace baton
