// Steps that other programs on a machine hold up.
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

constexpr absl::Duration kHeldUp = absl::Milliseconds(200);

// A cluster that has just started: a 135M model on two cores, whose upstream requests make 20
// tokens per second.
struct Machine {
  Machine() {
    ClusterShape shape;
    shape.model = *ModelNamed("smollm2-135m");
    shape.device = *DeviceNamed("cpu");
    shape.pace = absl::Milliseconds(50);
    cluster = std::move(SimulatedCluster::Create(shape)).value();
  }

  // Runs an upstream request of 64 tokens, and a downstream request whose prompt has 95 tokens.
  // Stops the prefill worker for kHeldUp in each of the next `hold_up` short steps. Returns how
  // many tokens the prefill worker computes in steps that end after the upstream request.
  int64_t Run(const std::string& workflow, int hold_up = 0) {
    const RequestId a = workflow + " A", b = workflow + " B";
    Submit({.id = a, .model = SimulatedCluster::kPaced, .cache_domain = workflow, .max_tokens = 64},
           {TokensOf({a, 64})});
    Submit({.id = b, .model = SimulatedCluster::kModel, .cache_domain = workflow, .max_tokens = 1},
           {TokensOf({b, 15}), Reference{.upstream = a}, TokensOf({"then", 16})});
    size_t seen = cluster->steps().size();
    while (live > 0) {
      cluster->RunFor(absl::Milliseconds(1));
      for (; seen < cluster->steps().size(); ++seen) {
        if (!IsPrefill(cluster->steps()[seen]) || cluster->steps()[seen].tokens > 32 || hold_up == 0) continue;
        cluster->Begin({.kind = FaultKind::kSilence, .target = "prefill0", .lasts = kHeldUp});
        --hold_up;
      }
    }
    cluster->RunUntilIdle();
    CHECK(hold_up == 0);
    CHECK(cluster->ran(b).status.ok());
    int64_t left = 0;
    for (const StepRecord& step : cluster->steps()) {
      if (IsPrefill(step) && step.start + step.time > cluster->ran(a).ended) left += step.tokens;
    }
    return left;
  }

  void Submit(SimulatedRequest request, std::vector<PromptSegment> segments) {
    request.segments = std::move(segments);
    ++live;
    cluster->Submit(0, std::move(request), [this] { --live; });
  }
  static bool IsPrefill(const StepRecord& step) { return step.worker == "prefill0"; }

  std::unique_ptr<SimulatedCluster> cluster;
  int live = 0;
};

}  // namespace

TEST_CASE("Streaming prompts keep up when three short steps after a start are held up") {
  Machine machine;
  machine.Run("first", /*hold_up=*/3);
  for (const std::string workflow : {"second", "third", "fourth", "fifth", "sixth"}) {
    INFO(workflow);
    const int64_t left = machine.Run(workflow);
    CHECK(left >= 12);
    CHECK(left <= 32);
  }
}

}  // namespace baton
