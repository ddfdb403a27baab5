// Whether etcd answers, as metrics of who asks it.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "metrics/metric_table.h"

namespace baton {

class EtcdHealth {
 public:
  // 0 until something was answered.
  EtcdHealth(Metrics& metrics, const std::string& prefix)
      : up_(metrics.Gauge(Metric::kEtcdUp, {{"prefix", prefix}})),
        answered_(metrics.Gauge(Metric::kEtcdLastAnswer, {{"prefix", prefix}})) {}

  // What came of a question. CANCELLED: we called it off, which says nothing of etcd.
  void Report(const absl::Status& status) {
    if (absl::IsCancelled(status)) return;
    up_.Set(status.ok() ? 1 : 0);
    if (status.ok()) answered_.Set(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
  }

 private:
  prometheus::Gauge &up_, &answered_;
};

}  // namespace baton
