// Tests with real processes: the blocks that a small prefill worker evicts come back from host
// memory or disk.
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "await.h"
#include "base/strings.h"
#include "catch.h"
#include "programs.h"
#include "scrape.h"
#include "temp_dir.h"

namespace baton {
namespace {

// One worker of each kind. The prefill worker's pool holds one prompt.
struct StagingCluster {
  Worker prefill, decode{"decode"};
  Process router;
  std::unique_ptr<v1::Inference::Stub> stub;

  explicit StagingCluster(const std::vector<std::string>& staging)
      : prefill("prefill", With(staging)),
        router("baton-router", {"--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--model", kModel,
                                "--prefill-workers", prefill.address, "--decode-workers", decode.address}),
        stub(v1::Inference::NewStub(DialTcp(router.Await("listening on ")))) {
    for (const Worker* worker : {&prefill, &decode})
      router.Await(absl::StrCat("worker ", worker->address, ": attached"));
  }
  static std::vector<std::string> With(const std::vector<std::string>& staging) {
    std::vector<std::string> arguments = Small({"--listen", "127.0.0.1:0", "--kv-blocks", "24"});
    arguments.insert(arguments.end(), staging.begin(), staging.end());
    return arguments;
  }

  // The tokens after a context of 320 tokens, and the number of context tokens that came from the
  // cache.
  struct Answer {
    std::vector<int32_t> ids;
    int cached = 0;
    friend bool operator==(const Answer&, const Answer&) = default;
  };
  Answer Ask(int context) {
    v1::GenerateRequest request = MakeRequest(8, 320);
    auto& tokens = *request.mutable_segments()->mutable_segments(0)->mutable_token_ids()->mutable_ids();
    for (int i = 0; i < tokens.size(); ++i) tokens[i] = 2 + (i * 7 + context * i / 3) % 250;
    Call call(*stub, request);
    const absl::Status status = call.Finish();
    INFO(Message(status));
    REQUIRE(status.ok());
    return {call.ids, static_cast<int>(call.final.usage().cached_tokens())};
  }
};

// Waits until a metric of the prefill worker is at least `least`.
void AwaitMetric(const StagingCluster& cluster, const std::string& series, double least) {
  Await(absl::StrCat(series, " to be ", least),
        [&] { return Scrape(cluster.prefill.metrics, series).value_or(-1) >= least; });
}

TEST_CASE("An evicted context returns from host memory with the same tokens") {
  StagingCluster cluster({"--kv-host-mb", "8"});
  std::vector<StagingCluster::Answer> first;
  for (int context = 0; context < 4; ++context) first.push_back(cluster.Ask(context));
  for (int context = 0; context < 4; ++context) {
    const StagingCluster::Answer again = cluster.Ask(context);
    CHECK(again.ids == first[static_cast<size_t>(context)].ids);
    CHECK(first[static_cast<size_t>(context)].cached == 0);
    CHECK(again.cached >= 304);
  }
  cluster.prefill.AwaitBlocksFree();
  AwaitMetric(cluster, "baton_worker_tokens_total{role=\"prefill\",source=\"host\"}", 3 * 304);
  AwaitMetric(cluster, "baton_staged_bytes{tier=\"host\"}", 1);
}

TEST_CASE("A context evicted from host memory returns from disk with the same tokens") {
  const TempDir directory;
  StagingCluster cluster({"--kv-host-mb", "1", "--kv-disk-dir", directory.path(), "--kv-disk-mb", "4"});
  constexpr int kContexts = 16, kBlocks = 19, kBlockBytes = 6144, kPool = 24;
  constexpr int kHost = (1 << 20) / kBlockBytes;
  std::vector<StagingCluster::Answer> first;
  for (int context = 0; context < kContexts; ++context) {
    first.push_back(cluster.Ask(context));
    // A slow disk must have all blocks except half of what host memory holds before the next
    // eviction.
    const int written = (context + 1) * kBlocks - kPool - kHost / 2 - 10;
    AwaitMetric(cluster, "baton_staged_bytes{tier=\"disk\"}", written * kBlockBytes);
  }
  const StagingCluster::Answer again = cluster.Ask(0);
  CHECK(again.ids == first[0].ids);
  CHECK(again.cached >= 304);
  AwaitMetric(cluster, "baton_worker_tokens_total{role=\"prefill\",source=\"disk\"}", 304);
  CHECK(std::filesystem::is_empty(directory.path()));
  cluster.prefill.AwaitBlocksFree();
}

TEST_CASE("A worker refuses to start when its staging disk cannot be used") {
  const auto check = [](const std::vector<std::string>& staging) {
    std::vector<std::string> arguments = StagingCluster::With(staging);
    arguments.push_back("--check");
    Process process("baton-prefill", arguments);
    CHECK(process.Wait() == 1);
    return process.Output();
  };
  CHECK(check({"--kv-host-mb", "1", "--kv-disk-dir", "/nowhere/at/all", "--kv-disk-mb", "4"}).find("/nowhere/at/all") !=
        std::string::npos);
  CHECK(check({"--kv-host-mb", "1", "--kv-disk-dir", "/tmp", "--kv-disk-mb", "1000000000"}).find("MiB are free") !=
        std::string::npos);
  CHECK(check({"--kv-disk-dir", "/tmp", "--kv-disk-mb", "4"}).find("requires kv-host-mb") != std::string::npos);
  CHECK(check({"--kv-host-mb", "1", "--kv-disk-mb", "4"}).find("expected both or none") != std::string::npos);
}

}  // namespace
}  // namespace baton
