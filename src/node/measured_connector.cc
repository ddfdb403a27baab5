#include "node/measured_connector.h"

#include <utility>

#include "absl/time/time.h"
#include "base/status.h"
#include "transport/block_copies.h"

namespace baton {
namespace {

class MeasuredLink final : public Link {
 public:
  MeasuredLink(std::unique_ptr<Link> link, const Clock& clock, prometheus::Histogram& seconds,
               prometheus::Counter& descriptors, prometheus::Counter& failures)
      : link_(std::move(link)), clock_(clock), seconds_(seconds), descriptors_(descriptors), failures_(failures) {}

  void Push(std::span<const BlockCopy> copies, absl::AnyInvocable<void(absl::Status)> done) override {
    link_->Push(copies, Measured(copies, std::move(done)));
  }
  void PushUnder(const WriteRight& right, std::span<const BlockCopy> copies,
                 absl::AnyInvocable<void(absl::Status)> done) override {
    link_->PushUnder(right, copies, Measured(copies, std::move(done)));
  }
  std::string Description() const override { return link_->Description(); }

 private:
  absl::AnyInvocable<void(absl::Status)> Measured(std::span<const BlockCopy> copies,
                                                  absl::AnyInvocable<void(absl::Status)> done) {
    descriptors_.Increment(static_cast<double>(CountRuns(copies)));
    return [began = clock_.Now(), &clock = clock_, &seconds = seconds_, &failures = failures_,
            done = std::move(done)](absl::Status status) mutable {
      if (status.ok()) {
        seconds.Observe(absl::ToDoubleSeconds(clock.Now() - began));
      } else {
        failures.Increment();
      }
      done(std::move(status));
    };
  }

  std::unique_ptr<Link> link_;
  const Clock& clock_;
  prometheus::Histogram& seconds_;
  prometheus::Counter &descriptors_, &failures_;
};

}  // namespace

MeasuredConnector::MeasuredConnector(Connector& connector, const Clock& clock, Metrics& metrics)
    : connector_(connector),
      clock_(clock),
      seconds_(metrics.Histogram(Metric::kTransferSeconds)),
      descriptors_(metrics.Counter(Metric::kTransferDescriptors)),
      failures_(metrics.Counter(Metric::kTransferFailures)) {}

absl::StatusOr<std::unique_ptr<Link>> MeasuredConnector::Connect(std::string_view peer_descriptor) {
  ASSIGN_OR_RETURN(std::unique_ptr<Link> link, connector_.Connect(peer_descriptor));
  return std::make_unique<MeasuredLink>(std::move(link), clock_, seconds_, descriptors_, failures_);
}

}  // namespace baton
