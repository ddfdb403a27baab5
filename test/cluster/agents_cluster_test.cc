// Tests of agents on real processes: prompts that wait for upstream requests when a worker dies.
#include <signal.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "await.h"
#include "base/strings.h"
#include "catch.h"
#include "programs.h"
#include "scrape.h"

namespace baton {
namespace {

// Two workers of each kind.
struct AgentCluster {
  std::array<std::optional<Worker>, 2> prefill, decode;
  std::optional<Process> router;
  std::unique_ptr<v1::Inference::Stub> stub;

  AgentCluster() {
    for (auto& worker : prefill) worker.emplace("prefill");
    for (auto& worker : decode) worker.emplace("decode");
    router.emplace("baton-router", std::vector<std::string>{
                                       "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--model", kModel,
                                       "--prefill-workers", absl::StrCat(prefill[0]->address, ",", prefill[1]->address),
                                       "--decode-workers", absl::StrCat(decode[0]->address, ",", decode[1]->address)});
    stub = v1::Inference::NewStub(DialTcp(router->Await("listening on ")));
    for (const auto* workers : {&prefill, &decode}) {
      for (const auto& worker : *workers) router->Await(absl::StrCat("worker ", worker->address, ": attached"));
    }
  }
};

// Waits until a worker holds blocks for requests. Returns that worker and the other one.
std::pair<Worker*, Worker*> HolderAndOther(std::array<std::optional<Worker>, 2>& workers) {
  std::pair<Worker*, Worker*> found;
  Await("a worker to hold blocks", [&] {
    for (size_t i = 0; i < 2; ++i) {
      const std::string used = absl::StrCat("baton_kv_blocks{role=\"", workers[i]->role, "\",state=\"used\"}");
      if (Scrape(workers[i]->metrics, used).value_or(0) == 0) continue;
      found = {&*workers[i], &*workers[1 - i]};
      return true;
    }
    return false;
  });
  return found;
}

// Returns the decode worker that has served a request, and the other one.
std::pair<Worker*, Worker*> UsedAndUnused(AgentCluster& cluster) {
  std::pair<Worker*, Worker*> found;
  Await("a decode worker to have served something", [&] {
    const v1::GetServerInfoResponse info = ServerInfoOf(*cluster.stub);
    for (const v1::Worker& worker : info.workers()) {
      if (worker.role() != v1::Worker::ROLE_DECODE || worker.blocks_cached() == 0) continue;
      const size_t used = worker.address() == cluster.decode[0]->address ? 0 : 1;
      found = {&*cluster.decode[used], &*cluster.decode[1 - used]};
      return true;
    }
    return false;
  });
  return found;
}

v1::GenerateRequest Named(const std::string& id, v1::GenerateRequest request) {
  request.set_request_id(id);
  request.mutable_sampling()->set_logprobs(0);
  return request;
}

v1::OutputOf& AddReference(v1::GenerateRequest& request, const std::string& upstream) {
  v1::OutputOf& reference = *request.mutable_segments()->add_segments()->mutable_output_of();
  reference.set_request_id(upstream);
  reference.set_announced(true);
  return reference;
}

// Adds the output in the form that a prompt with a reference to it has.
void AddOutput(v1::GenerateRequest& request, const std::vector<int32_t>& ids) {
  auto& added = *request.mutable_segments()->add_segments()->mutable_token_ids()->mutable_ids();
  for (const int32_t id : ids) {
    if (id > 1) added.Add(id);  // 0 and 1 are special tokens
  }
}

void RequireOk(const absl::Status& status) {
  INFO(Message(status));
  REQUIRE(status.ok());
}

TEST_CASE("Streaming prompts of a killed prefill worker continue elsewhere unchanged") {
  AgentCluster cluster;
  Call early(*cluster.stub, Named("early", MakeRequest(60)));
  RequireOk(early.Finish());
  for (auto& worker : cluster.prefill) worker->AwaitBlocksFree();

  std::vector<std::unique_ptr<Call>> waiting;
  for (int i = 0; i < 3; ++i) {
    v1::GenerateRequest request = Named(absl::StrCat("waits", i), MakeRequest(20 + i, 100));
    AddReference(request, "early");
    AddReference(request, "late");
    waiting.push_back(std::make_unique<Call>(*cluster.stub, request));
  }
  const auto [holder, other] = HolderAndOther(cluster.prefill);
  holder->process.Signal(SIGKILL);
  cluster.router->Await(absl::StrCat("worker ", holder->address, ": lost"));
  other->AwaitBlocksUsed();
  Call late(*cluster.stub, Named("late", MakeRequest(50, 30)));
  RequireOk(late.Finish());

  for (int i = 0; i < 3; ++i) {
    RequireOk(waiting[i]->Finish());
    v1::GenerateRequest request = Named(absl::StrCat("alone", i), MakeRequest(20 + i, 100));
    request.set_cache_salt("another");  // shares no KV
    AddOutput(request, early.ids);
    AddOutput(request, late.ids);
    Call alone(*cluster.stub, request);
    RequireOk(alone.Finish());
    CHECK(alone.ids.size() == static_cast<size_t>(20 + i));
    CHECK(waiting[i]->ids == alone.ids);
    CHECK(waiting[i]->logprobs == alone.logprobs);
  }
  other->AwaitBlocksFree();
  for (auto& worker : cluster.decode) worker->AwaitBlocksFree();
}

TEST_CASE("Downstream requests read a whole output whose decode worker dies") {
  AgentCluster cluster;
  // This request shows where the session decodes. The test can then stop that worker as soon as the
  // upstream request has tokens.
  v1::GenerateRequest before = MakeRequest(1), upstream = Named("up", MakeRequest(400));
  before.set_session_id("s");
  upstream.set_session_id("s");
  Call first(*cluster.stub, before);
  RequireOk(first.Finish());
  const auto [holder, other] = UsedAndUnused(cluster);

  const std::unique_ptr<Call> up = StopWhileItDecodes(*holder, *cluster.stub, upstream);
  v1::GenerateRequest reads = Named("reads", MakeRequest(20, 10));
  AddReference(reads, "up");
  Call reading(*cluster.stub, reads);
  const std::string router_metrics = MetricsOf(*cluster.router);
  Await("it to wait", [&] { return Scrape(router_metrics, "baton_references") == 1.0; });
  // Waits until the prompt holds blocks at a prefill worker.
  HolderAndOther(cluster.prefill);
  holder->process.Signal(SIGKILL);
  RequireOk(up->Finish());
  RequireOk(reading.Finish());

  v1::GenerateRequest alone = Named("alone", MakeRequest(20, 10));
  alone.set_cache_salt("another");
  AddOutput(alone, up->ids);
  Call expected(*cluster.stub, alone);
  RequireOk(expected.Finish());
  CHECK(reading.ids == expected.ids);
  CHECK(reading.logprobs == expected.logprobs);
  other->AwaitBlocksFree();
  for (auto& worker : cluster.prefill) worker->AwaitBlocksFree();
}

}  // namespace
}  // namespace baton
