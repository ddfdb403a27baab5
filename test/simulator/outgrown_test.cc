// Outputs without a limit at decode workers of several sizes.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backend/simulated/shapes.h"
#include "base/status.h"
#include "catch.h"
#include "simulator/cluster.h"
#include "simulator/workflow.h"

namespace baton {
namespace {

constexpr int64_t kContext = 512;
constexpr int64_t kWhole = 200;  // blocks

ClusterShape ShapeOf(std::vector<int64_t> decode_blocks) {
  ClusterShape shape;
  shape.model = *ModelNamed("smollm2-135m");
  shape.model.layers = 2;
  shape.model.context = kContext;
  shape.device = *DeviceNamed("a100");
  shape.blocks = kWhole;
  shape.step_tokens = 64;
  shape.decode_workers = static_cast<int32_t>(decode_blocks.size());
  shape.decode_blocks = std::move(decode_blocks);
  return shape;
}

// A run of requests of many kinds, whose outputs end at the context length at the latest.
class OutgrownRun {
 public:
  explicit OutgrownRun(std::vector<int64_t> decode_blocks) {
    cluster_ = std::move(SimulatedCluster::Create(ShapeOf(std::move(decode_blocks)))).value();
    for (int i = 0; i < 48; ++i) Submit(i);
    cluster_->RunUntilIdle();
    CHECK(cluster_->BlocksHeld() == 0);
  }
  const SimulatedCluster::Ran& ran(int number) const { return cluster_->ran(absl::StrCat("r", number)); }
  static int64_t PromptOf(int number) { return 1 + number * 37 % 140; }

 private:
  void Submit(int number) {
    // No cache domain learns from another that outputs are long.
    SimulatedRequest request{.id = absl::StrCat("r", number),
                             .model = SimulatedCluster::kModel,
                             .cache_domain = absl::StrCat("domain ", number)};
    request.segments.emplace_back(TokensOf({request.id, PromptOf(number)}));
    request.temperature = static_cast<float>(number % 2);
    request.seed = static_cast<uint64_t>(number);
    request.scores = number % 5 == 0;
    if (number % 3 == 0) request.session = "session";
    cluster_->After(absl::Milliseconds(7) * number,
                    [this, request] { cluster_->Submit(0, request, /*ended=*/nullptr); });
  }

  std::unique_ptr<SimulatedCluster> cluster_;
};

}  // namespace

TEST_CASE("Outputs that outgrow decode workers equal those of workers that hold them whole") {
  // Workers with 31 blocks do not hold the context. The outputs end when they fill these.
  for (const int64_t largest : {kWhole, int64_t{31}}) {
    const OutgrownRun equal({largest, largest, largest}), mixed({18, 26, largest});
    int resumed = 0, twice = 0;
    for (int i = 0; i < 48; ++i) {
      CAPTURE(largest, i);
      CHECK(mixed.ran(i).status.ok());
      CHECK(mixed.ran(i).ends == 1);
      CHECK(std::ssize(equal.ran(i).tokens) ==
            std::min(kContext, largest * kBlockTokens + 1) - OutgrownRun::PromptOf(i));
      CHECK(mixed.ran(i).tokens == equal.ran(i).tokens);
      CHECK(equal.ran(i).resumed == 0);
      resumed += mixed.ran(i).resumed > 0;
      twice += mixed.ran(i).resumed > 1;
    }
    CHECK(resumed > 10);
    CHECK((twice > 0) == (largest < kWhole));
  }
}

TEST_CASE("Outputs end when they fill a decode worker and all others are as small") {
  const OutgrownRun whole({kWhole}), small({18, 18});
  for (int i = 0; i < 48; ++i) {
    CAPTURE(i);
    CHECK(small.ran(i).status.ok());
    CHECK(small.ran(i).resumed == 0);
    std::vector<TokenId> expected = whole.ran(i).tokens;
    expected.resize(static_cast<size_t>(18 * kBlockTokens + 1 - OutgrownRun::PromptOf(i)));
    CHECK(small.ran(i).tokens == expected);
  }
}

TEST_CASE("A max_tokens of the client is served whole or refused at workers of several sizes") {
  const std::unique_ptr<SimulatedCluster> cluster = *SimulatedCluster::Create(ShapeOf({18, 26}));
  constexpr int32_t kPrompt = 40, kUpstream = 30;
  constexpr auto kFits = static_cast<int32_t>(26 * kBlockTokens + 1 - kPrompt);
  const auto submit = [&](const std::string& id, int32_t max_tokens, const std::string& upstream = "") {
    SimulatedRequest request{.id = id, .model = SimulatedCluster::kModel};
    request.segments.emplace_back(TokensOf({id, kPrompt}));
    if (!upstream.empty()) request.segments.emplace_back(Reference{.upstream = upstream});
    request.max_tokens = max_tokens;
    cluster->Submit(0, request, /*ended=*/nullptr);
  };
  submit("fits", kFits);
  submit("refused", kFits + 1);
  submit("upstream", kUpstream);
  submit("downstream", kFits - kUpstream, "upstream");
  submit("late", kFits - kUpstream + 1, "upstream");
  cluster->RunUntilIdle();
  CHECK(cluster->BlocksHeld() == 0);
  const std::pair<std::string, int64_t> served[] = {{"fits", kFits}, {"downstream", kFits - kUpstream}};
  for (const auto& [id, tokens] : served) {
    CHECK(cluster->ran(id).status.ok());
    CHECK(std::ssize(cluster->ran(id).tokens) == tokens);
  }
  for (const char* id : {"refused", "late"}) {
    CHECK(absl::IsInvalidArgument(cluster->ran(id).status));
    CHECK(Message(cluster->ran(id).status).starts_with("sampling.max_tokens: "));
    CHECK(cluster->ran(id).tokens.empty());
  }
}

}  // namespace baton
