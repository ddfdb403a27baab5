// Tests that one tenant's requests do not change the work of another tenant's request, counted in
// tokens and blocks, so the amount of work reveals nothing. The tests do not compare times, because
// times are less precise on a busy machine.
#include <cmath>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "await.h"
#include "base/strings.h"
#include "catch.h"
#include "frontend/api_keys.h"
#include "programs.h"
#include "scrape.h"
#include "temp_dir.h"

namespace baton {
namespace {

// A block has 16 tokens. No worker prefills the last token.
constexpr int kPromptTokens = 160, kPromptBlocks = 10;

// The work that a request caused, and the usage that its client received.
struct Cost {
  int computed = 0, cached = 0, shared = 0;      // tokens, at the prefill worker
  int pushed = 0, held = 0;                      // blocks, between the workers
  int reported_cached = 0, reported_prompt = 0;  // tokens, in the usage
  std::vector<int32_t> ids{};
  friend bool operator==(const Cost&, const Cost&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Cost& cost) {
    return out << cost.computed << " computed, " << cost.cached << " cached, " << cost.shared << " shared, "
               << cost.pushed << " pushed, " << cost.held << " held, reported " << cost.reported_cached << " of "
               << cost.reported_prompt;
  }
};

v1::GenerateRequest Prompt(int which, int max_tokens = 4) {
  v1::GenerateRequest request = MakeRequest(max_tokens, kPromptTokens);
  auto& tokens = *request.mutable_segments()->mutable_segments(0)->mutable_token_ids()->mutable_ids();
  for (int i = 0; i < tokens.size(); ++i) tokens[i] = 2 + (i * 7 + which * (i + 3)) % 250;
  return request;
}

// A worker of each kind, and a router that two tenants may call.
struct TwoTenantCluster {
  TempDir directory;
  const NewKey alpha = DrawKey(), beta = DrawKey();
  Worker prefill{"prefill"}, decode{"decode"};
  std::unique_ptr<Process> router;
  std::unique_ptr<v1::Inference::Stub> stub;

  TwoTenantCluster() {
    directory.Write("keys.toml", "[alpha]\nkeys = [\"" + alpha.hash + "\"]\n[beta]\nkeys = [\"" + beta.hash + "\"]\n");
    // Shadow prefill runs after a request and would count with the next request.
    router = std::make_unique<Process>(
        "baton-router",
        std::vector<std::string>{"--listen", "127.0.0.1:0", "--http", "off", "--model", kModel, "--shadow-prefill",
                                 "false", "--keys", directory / "keys.toml", "--prefill-workers", prefill.address,
                                 "--decode-workers", decode.address});
    stub = v1::Inference::NewStub(DialTcp(router->Await("listening on ")));
    for (const Worker* worker : {&prefill, &decode})
      router->Await(absl::StrCat("worker ", worker->address, ": attached"));
  }

  struct Live {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader;
  };
  std::unique_ptr<Live> Begin(const NewKey& key, const v1::GenerateRequest& request) {
    auto live = std::make_unique<Live>();
    live->context.AddMetadata("authorization", "Bearer " + key.key);
    live->reader = stub->Generate(&live->context, request);
    return live;
  }

  Cost Counted() const {
    const auto metric = [&](const std::string& series) {
      return static_cast<int>(std::lround(Scrape(prefill.metrics, series).value_or(0)));
    };
    const auto tokens = [&](const std::string& source) {
      return metric("baton_worker_tokens_total{role=\"prefill\",source=\"" + source + "\"}");
    };
    const auto blocks = [&](const std::string& source) {
      return metric("baton_handoff_blocks_total{source=\"" + source + "\"}");
    };
    return {.computed = tokens("computed"),
            .cached = tokens("cached"),
            .shared = tokens("shared"),
            .pushed = blocks("pushed"),
            .held = blocks("held")};
  }
  // Waits until the metrics count one more prompt, because workers report their metrics from time
  // to time.
  Cost CountedSince(const Cost& before) const {
    Cost now;
    Await("the workers to count a prompt", [&] {
      now = Counted();
      now.computed -= before.computed;
      now.cached -= before.cached;
      now.shared -= before.shared;
      now.pushed -= before.pushed;
      now.held -= before.held;
      return now.computed + now.cached + now.shared >= kPromptTokens - 1 && now.pushed + now.held >= kPromptBlocks;
    });
    return now;
  }
  // Runs a request and returns its cost. REQUIRES: no other request is being prefilled.
  Cost CostOf(const NewKey& key, const v1::GenerateRequest& request) {
    const Cost before = Counted();
    const auto live = Begin(key, request);
    std::vector<int32_t> ids;
    v1::Usage usage;
    v1::GenerateResponse response;
    while (live->reader->Read(&response)) {
      ids.insert(ids.end(), response.token_ids().begin(), response.token_ids().end());
      if (response.has_final()) usage = response.final().usage();
    }
    const absl::Status status = FromGrpc(live->reader->Finish());
    INFO(Message(status));
    REQUIRE(status.ok());
    Cost cost = CountedSince(before);
    cost.reported_cached = usage.cached_tokens();
    cost.reported_prompt = usage.prompt_tokens();
    cost.ids = std::move(ids);
    return cost;
  }
};

TEST_CASE("A tenant's prompt costs the same with or without another tenant's cache") {
  TwoTenantCluster c;
  const Cost first = c.CostOf(c.beta, Prompt(1)), again = c.CostOf(c.beta, Prompt(1));
  CHECK(again.cached >= kPromptTokens - 32);  // shows that the counts depend on a cache
  CHECK(again.reported_cached == again.cached);
  CHECK(again.held > first.held);

  const Cost known = c.CostOf(c.alpha, Prompt(1)), unknown = c.CostOf(c.alpha, Prompt(2));
  CHECK(known.computed == kPromptTokens - 1);
  CHECK(known.held == 0);
  CHECK(known.ids == first.ids);
  Cost expected = unknown;
  expected.ids = first.ids;  // another prompt has other ids
  CHECK(known == expected);
}

TEST_CASE("A tenant's prompt costs the same beside another tenant's equal request") {
  v1::GenerateRequest shared = Prompt(1), alone = Prompt(2);
  SECTION("when the prompts are equal") {}
  SECTION("when the sessions are equal") {
    shared.set_session_id("s");
    alone.set_session_id("t");
  }
  SECTION("when the workflows and cache salts are equal") {
    shared.set_workflow("w");
    shared.set_cache_salt("salt");
    alone.set_workflow("v");
    alone.set_cache_salt("pepper");
  }
  v1::GenerateRequest theirs = shared;
  theirs.mutable_sampling()->set_max_tokens(340);
  std::optional<TwoTenantCluster> c;
  std::unique_ptr<TwoTenantCluster::Live> live;
  v1::GenerateResponse begun;
  do {  // until the first read does not have all tokens
    live.reset();
    c.emplace();
    live = c->Begin(c->beta, theirs);
    // Its KV is now cached, and both workers use it.
    REQUIRE(live->reader->Read(&begun));
    while (begun.token_ids().empty()) REQUIRE(live->reader->Read(&begun));
  } while (begun.has_final());
  CHECK(c->CountedSince({}).computed == kPromptTokens - 1);

  const Cost of_shared = c->CostOf(c->alpha, shared), of_alone = c->CostOf(c->alpha, alone);
  CHECK(of_shared.computed == kPromptTokens - 1);
  Cost expected = of_alone;
  expected.ids = of_shared.ids;
  CHECK(of_shared == expected);
  live->context.TryCancel();
  live->reader->Finish();
}

TEST_CASE("Equal session names of many tenants spread over all workers") {
  const Worker prefills[] = {Worker("prefill"), Worker("prefill")}, decodes[] = {Worker("decode"), Worker("decode")};
  Process router("baton-router", {"--listen", "127.0.0.1:0", "--http", "off", "--model", kModel, "--shadow-prefill",
                                  "false", "--prefill-workers", prefills[0].address + "," + prefills[1].address,
                                  "--decode-workers", decodes[0].address + "," + decodes[1].address});
  const auto stub = v1::Inference::NewStub(DialTcp(router.Await("listening on ")));
  for (const Worker* worker : {&prefills[0], &prefills[1], &decodes[0], &decodes[1]}) {
    router.Await(absl::StrCat("worker ", worker->address, ": attached"));
  }
  // The chance that all tenants go to one worker is 1 in 2^39.
  constexpr int kTenants = 40;
  for (int tenant = 0; tenant < kTenants; ++tenant) {
    v1::GenerateRequest request = Prompt(tenant);
    request.set_session_id("main");
    request.set_cache_salt(absl::StrCat("tenant", tenant));
    Call call(*stub, request);
    const absl::Status status = call.Finish();
    INFO(Message(status));
    REQUIRE(status.ok());
  }
  for (const auto* workers : {prefills, decodes}) {
    const std::string series = "baton_worker_jobs_total{code=\"OK\",role=\"" + workers->role + "\"}";
    double jobs[2] = {0, 0};
    Await("the workers to count their jobs", [&] {
      for (int i = 0; i < 2; ++i) jobs[i] = Scrape(workers[i].metrics, series).value_or(0);
      return jobs[0] + jobs[1] >= kTenants;
    });
    INFO(workers->role << ": " << jobs[0] << " and " << jobs[1]);
    CHECK(jobs[0] + jobs[1] == kTenants);
    CHECK(jobs[0] > 0);
    CHECK(jobs[1] > 0);
  }
}

}  // namespace
}  // namespace baton
