#include "node/measured_connector.h"

#include <utility>

#include "absl/time/time.h"
#include "base/status.h"
#include "transport/block_copies.h"

namespace baton {
namespace {

class MeasuredLink final : public Link {
 public:
  MeasuredLink(std::unique_ptr<Link> link, const Clock& clock, const TransferCounts& counts)
      : link_(std::move(link)), clock_(clock), counts_(counts) {}

  void Push(std::span<const BlockCopy> copies, absl::AnyInvocable<void(absl::Status)> done) override {
    link_->Push(copies, Measured(copies, std::move(done)));
  }
  void PushUnder(const WriteKey& write_key, std::span<const BlockCopy> copies,
                 absl::AnyInvocable<void(absl::Status)> done) override {
    link_->PushUnder(write_key, copies, Measured(copies, std::move(done)));
  }
  bool EndsWithProcess() const override { return link_->EndsWithProcess(); }
  std::string Description() const override { return link_->Description(); }

 private:
  absl::AnyInvocable<void(absl::Status)> Measured(std::span<const BlockCopy> copies,
                                                  absl::AnyInvocable<void(absl::Status)> done) {
    counts_.descriptors->Increment(static_cast<double>(CountRuns(copies)));
    return
        [began = clock_.Now(), &clock = clock_, counts = counts_, done = std::move(done)](absl::Status status) mutable {
          if (status.ok()) {
            counts.seconds->Observe(absl::ToDoubleSeconds(clock.Now() - began));
          } else {
            counts.failures->Increment();
          }
          done(std::move(status));
        };
  }

  std::unique_ptr<Link> link_;
  const Clock& clock_;
  const TransferCounts counts_;
};

}  // namespace

MeasuredConnector::MeasuredConnector(Connector& connector, const Clock& clock, Metrics& metrics)
    : connector_(connector), clock_(clock), counts_(metrics.Create<TransferCounts>()) {}

absl::StatusOr<std::unique_ptr<Link>> MeasuredConnector::Connect(std::string_view peer_descriptor) {
  ASSIGN_OR_RETURN(std::unique_ptr<Link> link, connector_.Connect(peer_descriptor));
  return std::make_unique<MeasuredLink>(std::move(link), clock_, counts_);
}

}  // namespace baton
