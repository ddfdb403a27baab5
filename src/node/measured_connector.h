// A connector that counts and times pushes for metrics.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "metrics/metrics.h"
#include "transport/transport.h"

namespace baton {

// Forwards all calls to another connector. REQUIRES: the other connector, the clock and the metrics
// outlive this object and all pushes of its connections.
class MeasuredConnector final : public Connector {
 public:
  MeasuredConnector(Connector& connector, const Clock& clock, Metrics& metrics);
  std::string Descriptor() const override { return connector_.Descriptor(); }
  absl::StatusOr<std::unique_ptr<Link>> Connect(std::string_view peer_descriptor) override;

 private:
  Connector& connector_;
  const Clock& clock_;
  const TransferCounts counts_;
};

}  // namespace baton
