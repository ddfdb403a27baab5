// More requests than the decode workers have room for.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backend/simulated/shapes.h"
#include "catch.h"
#include "simulator/cluster.h"
#include "simulator/workflow.h"

namespace baton {
namespace {

struct Overload {
  // Makes decode workers with `blocks` KV blocks each.
  explicit Overload(int64_t blocks, int32_t decode_workers = 2) {
    ClusterShape shape;
    shape.model = *ModelNamed("llama-3.1-8b");
    shape.device = *DeviceNamed("h200");
    shape.blocks = blocks;
    shape.decode_workers = decode_workers;
    cluster = std::move(SimulatedCluster::Create(shape)).value();
  }
  void Submit(const RequestId& id, int64_t prompt, int32_t output, absl::Duration at) {
    cluster->After(at, [this, id, prompt, output] {
      SimulatedRequest request{.id = id, .model = SimulatedCluster::kModel, .max_tokens = output};
      request.segments.emplace_back(TokensOf({id, prompt}));
      cluster->Submit(0, std::move(request), nullptr);
    });
  }
  // Refused hand-offs per committed hand-off. REQUIRES: all requests have ended.
  double Refused() const {
    std::map<absl::StatusCode, int64_t> ended = cluster->HandoffsEnded();
    return static_cast<double>(ended[absl::StatusCode::kResourceExhausted]) /
           static_cast<double>(ended[absl::StatusCode::kOk]);
  }

  std::unique_ptr<SimulatedCluster> cluster;
};

}  // namespace

TEST_CASE("Full decode workers refuse a hand-off only a few times") {
  Overload o(256);
  constexpr int kRequests = 300;
  std::vector<RequestId> ids;
  for (int i = 0; i < kRequests; ++i) {
    ids.push_back(absl::StrCat("r", i));
    // Requests arrive six times as fast as they end.
    o.Submit(ids.back(), 200 + 37 * (i % 10), 100 + 13 * (i % 17), absl::Milliseconds(10) * i);
  }
  o.cluster->RunUntilIdle();
  for (const RequestId& id : ids) {
    INFO(id);
    CHECK(o.cluster->ran(id).status.ok());
  }
  CHECK(o.Refused() <= 4);
  CHECK(o.cluster->BlocksHeld() == 0);
}

TEST_CASE("A request that needs most of a decode worker is not starved by small ones") {
  Overload o(256);
  std::vector<RequestId> small;
  for (int i = 0; i < 250; ++i) {
    if (i == 20) o.Submit("big", 3200, 100, absl::ZeroDuration());
    small.push_back(absl::StrCat("small", i));
    o.Submit(small.back(), 200, 100, absl::ZeroDuration());
  }
  o.cluster->RunUntilIdle();
  REQUIRE(o.cluster->ran("big").status.ok());
  const auto later = std::ranges::count_if(
      small, [&](const RequestId& id) { return o.cluster->ran(id).first > o.cluster->ran("big").first; });
  CHECK(later > 20);
}

TEST_CASE("Long prompts are not starved by short ones that arrive later") {
  Overload o(90, /*decode_workers=*/1);
  // Four short requests fill the decode worker. They arrive a little slower than they end.
  for (int i = 0; i < 300; ++i)
    o.Submit(absl::StrCat("short", i), 200 + i % 7, 90 + i % 21, absl::Milliseconds(150) * i);
  for (int i = 0; i < 3; ++i) o.Submit(absl::StrCat("long", i), 1150, 100, absl::Seconds(1 + 8 * i));
  o.cluster->RunUntilIdle();
  for (int i = 0; i < 3; ++i) {
    const SimulatedCluster::Ran& ran = o.cluster->ran(absl::StrCat("long", i));
    INFO("long" << i << " waited " << ran.first - ran.submitted);
    CHECK(ran.status.ok());
    // The router keeps room after 2 s, and each short request runs for less than a second.
    CHECK(ran.first - ran.submitted < absl::Seconds(4));
  }
  CHECK(o.cluster->BlocksHeld() == 0);
}

}  // namespace baton
