// Tests with real processes whose workers are groups of ranks. KV moves between groups of different
// sizes.
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/strings.h"
#include "catch.h"
#include "programs.h"

namespace baton {
namespace {

std::vector<std::string> Ranks(int ranks) {
  return Small({"--listen", "127.0.0.1:0", "--tensor-parallel", absl::StrCat(ranks)});
}

// Adds --verify-kv. Its digests cover whole blocks, on any number of ranks.
std::vector<std::string> Verifying(std::vector<std::string> arguments) {
  arguments.push_back("--verify-kv");
  return arguments;
}

struct RankCluster {
  Worker prefill, decode;
  Process router;
  std::unique_ptr<v1::Inference::Stub> stub;

  RankCluster(int prefill_ranks, int decode_ranks)
      : prefill("prefill", Ranks(prefill_ranks)),
        decode("decode", Verifying(Ranks(decode_ranks))),
        router("baton-router", {"--listen", "127.0.0.1:0", "--http", "off", "--model", kModel, "--prefill-workers",
                                prefill.address, "--decode-workers", decode.address}),
        stub(v1::Inference::NewStub(DialTcp(router.Await("listening on ")))) {
    for (const Worker* worker : {&prefill, &decode})
      router.Await(absl::StrCat("worker ", worker->address, ": attached"));
  }

  // Returns the log probabilities after a prompt that fills several blocks.
  std::vector<float> Ask(std::vector<int32_t>* ids = nullptr) {
    v1::GenerateRequest request = MakeRequest(12, 100);
    request.mutable_sampling()->set_logprobs(0);
    Call call(*stub, request);
    const absl::Status status = call.Finish();
    INFO(Message(status));
    REQUIRE(status.ok());
    if (ids != nullptr) *ids = call.ids;
    return call.logprobs;
  }
};

TEST_CASE("Groups of any numbers of ranks hand KV over and decode with equal results") {
  RankCluster alone(1, 1);
  const float expected = alone.Ask().at(0);
  for (const auto& [prefill, decode] : {std::pair(2, 1), std::pair(1, 2), std::pair(2, 2)}) {
    INFO(prefill << " prefill ranks, " << decode << " decode ranks");
    RankCluster cluster(prefill, decode);
    std::vector<int32_t> first, again;
    const std::vector<float> logprobs = cluster.Ask(&first);
    CHECK(logprobs.at(0) == Approx(expected).margin(0.05));  // wrong heads would differ far more
    CHECK(cluster.Ask(&again) == logprobs);                  // from the cache, with the same bits
    CHECK(again == first);
    cluster.prefill.AwaitBlocksFree();
    cluster.decode.AwaitBlocksFree();
  }
}

TEST_CASE("A worker refuses to start with more ranks than KV heads") {
  Process worker("baton-prefill", Ranks(5));
  CHECK(worker.Wait() == 1);
  CHECK(absl::StrContains(worker.Output(), "tensor parallelism: expected 1 to 2 ranks (each needs a KV head), got 5"));
}

}  // namespace
}  // namespace baton
