#include "node/measured_connector.h"

#include <utility>
#include <vector>

#include "catch.h"
#include "metric_value.h"

namespace baton {
namespace {

// Pushes that the test ends.
struct Pending {
  std::vector<absl::AnyInvocable<void(absl::Status)>> pushes;
  // Rights of the pushes that have one.
  std::vector<WriteKey> write_keys;
};

class PendingLink final : public Link {
 public:
  explicit PendingLink(Pending& pending) : pending_(pending) {}
  void Push(std::span<const BlockCopy>, absl::AnyInvocable<void(absl::Status)> done) override {
    pending_.pushes.push_back(std::move(done));
  }
  void PushUnder(const WriteKey& write_key, std::span<const BlockCopy> copies,
                 absl::AnyInvocable<void(absl::Status)> done) override {
    pending_.write_keys.push_back(write_key);
    Push(copies, std::move(done));
  }
  bool EndsWithProcess() const override { return true; }
  std::string Description() const override { return "pending"; }

 private:
  Pending& pending_;
};

class PendingConnector final : public Connector {
 public:
  std::string Descriptor() const override { return "mine"; }
  absl::StatusOr<std::unique_ptr<Link>> Connect(std::string_view peer) override {
    if (peer != "peer") return absl::UnavailableError("nobody there");
    return std::make_unique<PendingLink>(pending);
  }
  Pending pending;
};

TEST_CASE("MeasuredConnector times and counts pushes, counting failures apart") {
  PendingConnector inner;
  ManualClock clock;
  Metrics metrics;
  MeasuredConnector connector(inner, clock, metrics);
  CHECK(connector.Descriptor() == "mine");
  CHECK(connector.Connect("another").status() == absl::UnavailableError("nobody there"));
  std::unique_ptr<Link> link = connector.Connect("peer").value();
  CHECK(link->Description() == "pending");
  CHECK(link->EndsWithProcess());

  std::vector<absl::Status> ends;
  const auto done = [&](const absl::Status& status) { ends.push_back(status); };
  // The first two copies are neighbours.
  const std::vector<BlockCopy> copies = {{0, 0, 8}, {8, 8, 8}, {32, 64, 8}};
  link->Push(copies, done);
  link->Push(copies, done);
  clock.Advance(absl::Milliseconds(3));
  inner.pending.pushes[0](absl::OkStatus());
  inner.pending.pushes[1](absl::UnavailableError("the peer is gone"));
  CHECK(ends == std::vector<absl::Status>{absl::OkStatus(), absl::UnavailableError("the peer is gone")});

  CHECK(MetricValue(metrics, "baton_transfer_descriptors_total") == 4);
  CHECK(MetricValue(metrics, "baton_transfer_failures_total") == 1);
  CHECK(MetricValue(metrics, "baton_transfer_seconds_count") == 1);
  CHECK(MetricValue(metrics, "baton_transfer_seconds_sum") == Approx(0.003));

  const WriteKey write_key{.id = 7, .bits = {1}};
  link->PushUnder(write_key, copies, done);
  CHECK(inner.pending.write_keys == std::vector{write_key});
  inner.pending.pushes[2](absl::OkStatus());
  CHECK(MetricValue(metrics, "baton_transfer_descriptors_total") == 6);
  CHECK(MetricValue(metrics, "baton_transfer_seconds_count") == 2);
}

}  // namespace
}  // namespace baton
