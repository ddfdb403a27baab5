// Random mixes of long and short prompts of up to four tenants at decode workers with small pools.
// The load is below capacity, so no request may fail. None may wait for its first token longer than
// the router waits before room is kept, plus the time in which the running sequences end. At a load
// above 75 %, up to two overdue requests before it may take as long again.
#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backend/simulated/shapes.h"
#include "catch.h"
#include "kv/block_layout.h"
#include "seeds.h"
#include "simulator/cluster.h"
#include "simulator/workflow.h"

namespace baton {
namespace {

constexpr absl::Duration kStep = absl::Milliseconds(5);  // about, at this model and device
constexpr absl::Duration kHorizon = absl::Seconds(30);

// Requests arrive at random. On average, 50 to 95 % of the decode workers' blocks are in use. Some
// prompts need most of a worker's blocks.
class RandomMix {
 public:
  RandomMix(uint64_t seed, absl::Duration room_wait) : random_(seed) {
    ClusterShape shape;
    shape.model = *ModelNamed("llama-3.1-8b");
    shape.device = *DeviceNamed("h200");
    shape.blocks = blocks_ = Between(60, 140);
    shape.decode_workers = workers_ = Between(1, 3);
    shape.prefill_workers = Between(1, 2);
    shape.room_wait = room_wait;
    cluster_ = std::move(SimulatedCluster::Create(shape)).value();
    Submit();
  }

  // Returns the longest time until a first token.
  absl::Duration Run() {
    cluster_->RunUntilIdle();
    CHECK(cluster_->BlocksHeld() == 0);
    absl::Duration longest;
    for (const RequestId& id : ids_) {
      const SimulatedCluster::Ran& ran = cluster_->ran(id);
      failed_ += !ran.status.ok();
      longest = std::max(longest, (ran.status.ok() ? ran.first : ran.ended) - ran.submitted);
    }
    return longest;
  }
  int failed() const { return failed_; }
  // An upper bound on the time in which the running sequences end, and then those of two overdue
  // requests. A step takes up to 10 ms.
  absl::Duration longest_runs() const { return 3 * 2 * kStep * longest_output_; }

 private:
  int32_t Between(int32_t least, int32_t most) { return std::uniform_int_distribution<int32_t>(least, most)(random_); }

  void Submit() {
    const double longs = 0.01 * Between(1, 8);
    const int32_t tenants = Between(1, 4);
    const double load = 0.01 * Between(50, 95);  // share of all blocks, on average
    double used = 0;                             // blocks x seconds
    const double capacity = static_cast<double>(blocks_ * workers_) * absl::ToDoubleSeconds(kHorizon) * load;
    while (used < capacity) {
      const bool is_long = std::bernoulli_distribution(longs)(random_);
      const int32_t output = Between(20, 150);
      const auto most = static_cast<int32_t>(blocks_ * kBlockTokens) - output;
      const int32_t prompt = is_long ? Between(most * 6 / 10, most - 16) : Between(20, most / 5);
      used += static_cast<double>(BlocksFor(prompt + output)) * absl::ToDoubleSeconds(kStep) * output;
      longest_output_ = std::max(longest_output_, output);
      const absl::Duration at = std::uniform_real_distribution<double>(0, 1)(random_) * kHorizon;
      const RequestId& id = ids_.emplace_back(absl::StrCat(is_long ? "long" : "short", ids_.size()));
      const std::string tenant = absl::StrCat("tenant", Between(1, tenants));
      cluster_->After(at, [this, id, prompt, output, tenant] {
        SimulatedRequest request{.id = id, .model = SimulatedCluster::kModel, .tenant = tenant, .max_tokens = output};
        request.segments.emplace_back(TokensOf({id, prompt}));
        cluster_->Submit(0, std::move(request), nullptr);
      });
    }
  }

  std::mt19937_64 random_;
  int64_t blocks_ = 0;
  int32_t workers_ = 0, longest_output_ = 0;
  int failed_ = 0;
  std::unique_ptr<SimulatedCluster> cluster_;
  std::vector<RequestId> ids_;
};

}  // namespace

TEST_CASE("No request fails or starves for lack of room at a load below capacity") {
  constexpr absl::Duration kRoomWait = absl::Seconds(2);
  int64_t beyond = 0;
  const Seeds seeds = ForEachSeed(40, [&](uint64_t seed) {
    RandomMix mix(seed, kRoomWait);
    const absl::Duration longest = mix.Run();
    CHECK(mix.failed() == 0);
    const absl::Duration bound = kRoomWait + mix.longest_runs();
    CHECK(longest <= bound);
    RandomMix starving(seed, absl::InfiniteDuration());
    beyond += starving.Run() > bound;
  });
  // Without kept room, some requests wait longer.
  if (seeds.all()) CHECK(beyond >= 3);
}

}  // namespace baton
