// Tests of the token counts of a real cluster: the counts of its prefill worker, and the usage in
// its answers.
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "await.h"
#include "catch.h"
#include "http_client.h"
#include "nlohmann/json.hpp"
#include "programs.h"
#include "scrape.h"

namespace baton {
namespace {

struct CountingCluster {
  Worker prefill{"prefill"}, decode{"decode"};
  Process router{"baton-router",
                 {"--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--model", kModel, "--prefill-workers",
                  prefill.address, "--decode-workers", decode.address}};
  const std::string http = HttpOf(router);
  std::unique_ptr<v1::Inference::Stub> stub = v1::Inference::NewStub(DialTcp(router.Await("listening on ")));

  CountingCluster() {
    for (const Worker* worker : {&prefill, &decode})
      router.Await(absl::StrCat("worker ", worker->address, ": attached"));
  }
  double Metric(const std::string& series) const { return Scrape(prefill.metrics, series).value_or(-1); }
  double Tokens(const std::string& source) const {
    return Metric(absl::StrCat("baton_worker_tokens_total{role=\"prefill\",source=\"", source, "\"}"));
  }
  double Wasted() const { return Metric("baton_wasted_tokens_total"); }
  // Waits until all of the only request's prompt is in a step, or was in one.
  void AwaitPlanned() const {
    Await("a request to run", [&] { return Metric("baton_worker_requests{role=\"prefill\",state=\"running\"}") == 1; });
    Await("its tokens to be planned", [&] { return Metric("baton_worker_queued_tokens{role=\"prefill\"}") == 0; });
  }
  void AwaitCancelled(int jobs) const {
    Await("the prefill worker to cancel a job",
          [&] { return Metric("baton_worker_jobs_total{code=\"CANCELLED\",role=\"prefill\"}") == jobs; });
  }
};

std::string CompletionOf(int prompt_tokens, int id) {
  std::vector<int> ids(static_cast<size_t>(prompt_tokens), id);
  return nlohmann::json{{"prompt", ids}, {"max_tokens", 1}, {"temperature", 0}}.dump();
}

TEST_CASE("Usage and the prefill worker's metrics count the same cached tokens") {
  constexpr int kCalls = 20, kPromptTokens = 33;
  CountingCluster c;
  double cached = 0;
  for (int round = 0; round < 2; ++round) {
    std::vector<std::unique_ptr<HttpClient>> clients;
    for (int call = 0; call < kCalls; ++call) {
      clients.push_back(std::make_unique<HttpClient>(c.http));
      clients.back()->Post("/v1/completions", CompletionOf(kPromptTokens, 5));
    }
    for (const auto& client : clients) {
      const HttpAnswer answer = client->Read();
      INFO(answer.body);
      REQUIRE(answer.status == 200);
      const nlohmann::json usage = nlohmann::json::parse(answer.body)["usage"];
      CHECK(usage["prompt_tokens"] == kPromptTokens);
      cached += usage["prompt_tokens_details"]["cached_tokens"].get<double>();
    }
  }
  CHECK(cached >= kCalls * (kPromptTokens - 1));  // at least those of the second round
  double not_computed = 0;
  for (const char* source : {"cached", "shared", "host", "disk", "held"}) not_computed += c.Tokens(source);
  CHECK(not_computed == cached);
  CHECK(c.Tokens("computed") + not_computed == 2 * kCalls * (kPromptTokens - 1));
  CHECK(c.Wasted() == 0);
}

TEST_CASE("Computed tokens are counted and wasted when the client leaves") {
  CountingCluster c;
  c.decode.process.Signal(SIGSTOP);  // holds up the hand-offs
  HttpClient http(c.http);
  http.Post("/v1/completions", CompletionOf(200, 5));
  c.AwaitPlanned();
  CHECK(c.Tokens("computed") == 0);
  http.Close();
  c.AwaitCancelled(1);
  CHECK(c.Tokens("computed") == 199);
  CHECK(c.Wasted() == 199);

  Call call(*c.stub, MakeRequest(/*max_tokens=*/1, /*prompt_tokens=*/100));
  c.AwaitPlanned();
  call.context.TryCancel();
  CHECK_FALSE(call.Finish().ok());
  c.AwaitCancelled(2);
  CHECK(c.Tokens("computed") == 199 + 99);
  CHECK(c.Wasted() == 199 + 99);
  c.decode.process.Signal(SIGCONT);
}

}  // namespace
}  // namespace baton
