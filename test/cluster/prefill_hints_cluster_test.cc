// Tests of prefill hints on real processes. Their prompts are prefilled while the chat is answered,
// and they end with the chat.
#include <algorithm>
#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "await.h"
#include "catch.h"
#include "http_client.h"
#include "nlohmann/json.hpp"
#include "programs.h"
#include "scrape.h"

namespace baton {
namespace {

using nlohmann::json;

constexpr const char* kSystem = "Say what is good about it, and what could be better, in as few words as you can.";

struct OneOfEach {
  Worker prefill{"prefill"}, decode{"decode"};
  Process router{"baton-router",
                 {"--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--model", kModel, "--prefill-workers",
                  prefill.address, "--decode-workers", decode.address}};
  std::unique_ptr<v1::Inference::Stub> stub;
  std::string http;

  OneOfEach() {
    stub = v1::Inference::NewStub(DialTcp(router.Await("listening on ")));
    http = HttpOf(router);
    for (const Worker* worker : {&prefill, &decode})
      router.Await(absl::StrCat("worker ", worker->address, ": attached"));
  }

  // Returns true if the prefill worker has this number of requests, and has computed all of their
  // known tokens but those of partial blocks.
  bool OnlyPartialBlocksWait(int requests) {
    const auto at_prefill = [&](const std::string& metric) { return Scrape(prefill.metrics, metric).value_or(-1); };
    if (at_prefill("baton_worker_requests{role=\"prefill\"}") != requests) return false;
    const double tokens = at_prefill("baton_worker_queued_tokens{role=\"prefill\"}");
    return tokens >= 0 && tokens < 16;
  }
  // Number of prefill hints that ended with `code`.
  double HintsEnded(const std::string& code) {
    return Scrape(http, absl::StrCat("baton_followers_total{code=\"", code, "\"}")).value_or(0);
  }
};

json Chat(const std::string& salt, int tokens, int hints) {
  json body = {{"messages", {{{"role", "user"}, {"content", "Write about the sea."}}}},
               {"cache_salt", salt},
               {"request_id", "chat"},
               {"workflow", "w"},
               {"temperature", 0},
               {"ignore_eos", true},
               {"max_tokens", tokens}};
  for (int i = 0; i < hints; ++i) {
    const json output = {{{"type", "text"}, {"text", absl::StrCat(i, ": ")}}, {{"type", "output"}}};
    body["followers"].push_back(
        {{"messages", {{{"role", "system"}, {"content", kSystem}}, {{"role", "user"}, {"content", output}}}}});
  }
  return body;
}

// Returns the request that the prefill hint announced. It gets the output token by token.
v1::GenerateRequest Next(const std::string& salt) {
  v1::GenerateRequest request = MakeRequest(/*max_tokens=*/20);
  request.set_cache_salt(salt);
  request.mutable_sampling()->set_logprobs(0);
  v1::ChatMessage& system = *request.mutable_chat()->add_messages();
  system.set_role("system");
  system.set_content(kSystem);
  v1::ChatMessage& user = *request.mutable_chat()->add_messages();
  user.set_role("user");
  user.add_parts()->set_text("0: ");
  user.add_parts()->mutable_output_of()->set_request_id("chat");
  return request;
}

void AwaitEqual(const std::function<double()>& value, double expected) {
  Await(absl::StrCat("a value of ", expected), [&] { return value() == expected; });
}

TEST_CASE("A prefill hint computes a chat's next prompt early with the same bits") {
  OneOfEach cluster;
  HttpClient client(cluster.http);
  json usage[2];
  for (const bool ahead : {false, true}) {
    // A chat of 200 tokens, with one prefill hint or none. The decode worker is stopped until the
    // prefill worker has computed the part of the next prompt before the chat's output.
    if (ahead) cluster.decode.process.Signal(SIGSTOP);
    client.Post("/v1/chat/completions", Chat(ahead ? "ahead" : "plain", 200, ahead).dump());
    if (ahead) {
      Await("the prefill hint's first step", [&] { return cluster.OnlyPartialBlocksWait(2); });
      cluster.decode.process.Signal(SIGCONT);
    }
    const HttpAnswer answer = client.Read();
    INFO(answer.body);
    REQUIRE(answer.status == 200);
    usage[ahead] = json::parse(answer.body)["usage"];
  }
  CHECK(usage[0] == usage[1]);
  AwaitEqual([&] { return cluster.HintsEnded("OK"); }, 1);

  v1::TraceRequest wanted;
  wanted.set_workflow("w");
  wanted.set_cache_salt("ahead");
  v1::TraceResponse trace;
  grpc::ClientContext context;
  REQUIRE(cluster.stub->Trace(&context, wanted, &trace).ok());
  REQUIRE(trace.requests_size() == 2);
  const auto computes = [](const v1::Span& span) { return span.phase() == v1::Span::PHASE_PREFILL; };
  const auto& spans = trace.requests(1).spans();
  const auto first = std::ranges::find_if(spans, computes);
  REQUIRE(first != spans.end());
  CHECK(first->begin_us() < trace.requests(0).ended_us());

  Call plain(*cluster.stub, Next("plain")), next(*cluster.stub, Next("ahead"));
  REQUIRE(plain.Finish().ok());
  REQUIRE(next.Finish().ok());
  CHECK(next.ids == plain.ids);
  CHECK(next.logprobs == plain.logprobs);
  CHECK(plain.final.usage().cached_tokens() == 0);
  const int32_t prompt = next.final.usage().prompt_tokens();
  CHECK(prompt > 200);
  CHECK(next.final.usage().cached_tokens() == (prompt - 1) / 16 * 16);
  cluster.prefill.AwaitBlocksFree();
}

TEST_CASE("A client's disappearance ends its prefill hints and frees all blocks") {
  OneOfEach cluster;
  constexpr int kTokens = 400;
  json body = Chat("", kTokens, /*hints=*/4);
  body["stream"] = true;
  // Repeats until the decode worker stops while a chat lacks more than half of its tokens.
  std::optional<HttpClient> client;
  int64_t made = 0;
  while (true) {
    client.emplace(cluster.http);
    client->Post("/v1/chat/completions", body.dump());
    CHECK(client->ReadHead().status == 200);
    cluster.decode.process.Signal(SIGSTOP);
    if (ServerInfoOf(*cluster.stub).completion_tokens() - made < kTokens / 2) break;
    cluster.decode.process.Signal(SIGCONT);
    while (client->ReadPart()) continue;
    Await("the chat's prefill hints to end", [&] { return ServerInfoOf(*cluster.stub).live_requests() == 0; });
    made += kTokens;
  }
  client->Reset();
  AwaitEqual([&] { return cluster.HintsEnded("ABORTED"); }, 4);
  cluster.decode.process.Signal(SIGCONT);
  cluster.prefill.AwaitBlocksFree();
  cluster.decode.AwaitBlocksFree();
  AwaitEqual([&] { return Scrape(cluster.http, "baton_live_requests").value_or(-1); }, 0);
}

}  // namespace
}  // namespace baton
