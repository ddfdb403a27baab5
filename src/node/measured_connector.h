// Counts and times what a worker's links move, for its metrics.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "metrics/metric_table.h"
#include "transport/transport.h"

namespace baton {

// Passes all on to another connector. That one, clock and metrics must outlive it and its links' pushes.
class MeasuredConnector final : public Connector {
 public:
  MeasuredConnector(Connector& connector, const Clock& clock, Metrics& metrics);
  std::string Descriptor() const override { return connector_.Descriptor(); }
  absl::StatusOr<std::unique_ptr<Link>> Connect(std::string_view peer_descriptor) override;

 private:
  Connector& connector_;
  const Clock& clock_;
  prometheus::Histogram& seconds_;
  prometheus::Counter &descriptors_, &failures_;
};

}  // namespace baton
