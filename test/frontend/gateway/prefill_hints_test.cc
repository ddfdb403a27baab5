// Prefill hints of chats over real sockets. The workers are fakes that a test controls.
#include <string>

#include "absl/strings/str_cat.h"
#include "await.h"
#include "frontend/api_keys.h"
#include "http_client.h"
#include "metric_value.h"
#include "nlohmann/json.hpp"
#include "shell/router_cluster.h"
#include "temp_dir.h"

namespace baton {
namespace {

using nlohmann::json;

// A model whose template writes each message as "<contents>". It has no tools.
ServedModel ChatModel() {
  ServedModel model = ByteModel("bytes");
  auto chat_template = ChatTemplate::Parse(
      "{% for m in messages %}<{{ m.content }}>"
      "{% if 'SHOUT' in m.content %}{{ raise_exception('quiet') }}{% endif %}{% endfor %}",
      "", "");
  REQUIRE(chat_template.ok());
  model.chat_template = *std::move(chat_template);
  return model;
}

// Serves the model, and waits until its workers have attached. A call that waits for workers has
// its hints refused.
void Serve(Cluster& c) {
  c.Serve(ChatModel());
  Await("the workers to attach", [&] { return c.node->router().Readiness("bytes").ok(); });
}

// The body of a chat named "r". It has `count` prefill hints of "<before><the output>".
std::string Chat(const std::string& before = "0123456789abcd", int count = 1) {
  json body = {{"messages", {{{"role", "user"}, {"content", "hi"}}}}, {"request_id", "r"}};
  for (int i = 0; i < count; ++i) {
    body["followers"].push_back(
        {{"messages",
          {{{"role", "system"}, {"content", before}}, {{"role", "user"}, {"content", {{{"type", "output"}}}}}}}});
  }
  return body.dump();
}

double HintsEnded(Cluster& c, const std::string& code) {
  return MetricValue(c.metrics, absl::StrCat("baton_followers_total{code=\"", code, "\"}"));
}

TEST_CASE("Prefill hints run with their chat and do not count in its usage") {
  Cluster c;
  Serve(c);
  HttpClient client(c.node->http()->address());
  client.Post("/v1/chat/completions", Chat());
  CHECK(c.prefill->Next().prefill().request_id() == "r");
  const worker::v1::PrefillJob hint = c.prefill->Next().prefill();
  CHECK(hint.open());
  CHECK(hint.decode_worker().empty());
  c.prefill->Send(DoneEvent("r", Incarnation(22)));
  CHECK(c.decode->Next().decode().request_id() == "r");

  c.decode->Send(TokensEvent("r", "hello, hello and hello", std::nullopt));
  const worker::v1::PrefillAppend append = c.prefill->Next().append();
  CHECK(append.request_id() == hint.request_id());
  CHECK_FALSE(append.last());
  c.decode->Send(TokensEvent("r", "!", FinishReason::kStop));
  const worker::v1::PrefillAppend last = c.prefill->Next().append();
  CHECK(last.last());
  CHECK(TextOf(hint.spec().tokens()) + TextOf(append.tokens()) + TextOf(last.tokens()) ==
        "<0123456789abcd><hello, hello and hello!>");

  const HttpAnswer answer = client.Read();
  CHECK(answer.headers.at("x-baton-followers") == "4");
  const json body = json::parse(answer.body);
  CHECK(body["choices"][0]["message"]["content"] == "hello, hello and hello!");
  CHECK(body["usage"]["prompt_tokens"] == 4);
  CHECK(body["usage"]["completion_tokens"] == 23);
  c.prefill->Send(DoneEvent(hint.request_id(), Incarnation(0)));
  Await("the prefill hint to end", [&] { return HintsEnded(c, "OK") == 1; });
  CHECK(MetricValue(c.metrics, "baton_prompt_tokens_total") == 4);
  CHECK(MetricValue(c.metrics, R"(baton_requests_total{code="OK"})") == 1);
}

TEST_CASE("A client that leaves cancels its prefill hints") {
  Cluster c;
  Serve(c);
  HttpClient client(c.node->http()->address());
  client.Post("/v1/chat/completions", Chat());
  PassPrefill(c);
  const RequestId hint = c.prefill->Next().prefill().request_id();
  client.Reset();
  CHECK(c.decode->Next().cancel().request_id() == "r");
  CHECK(c.prefill->Next().cancel().request_id() == hint);
}

TEST_CASE("A router answers a chat when template or context refuse its prefill hints") {
  Cluster c;
  Serve(c);
  HttpClient client(c.node->http()->address());
  client.Post("/v1/chat/completions", Chat(GENERATE(std::string("SHOUT"), std::string(100, 'x'))));
  PassPrefill(c);
  Await("the prefill hint to be refused", [&] { return HintsEnded(c, "INVALID_ARGUMENT") == 1; });
  c.decode->Send(TokensEvent("r", "hello", FinishReason::kStop));
  CHECK(json::parse(client.Read().body)["choices"][0]["message"]["content"] == "hello");
}

TEST_CASE("A router refuses a malformed prefill hint by name before the chat starts") {
  Cluster c;
  Serve(c);
  HttpClient client(c.node->http()->address());
  client.Post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "hi"}], "followers": [{}]})");
  const HttpAnswer answer = client.Read();
  CHECK(answer.status == 400);
  CHECK(json::parse(answer.body)["error"]["param"] == "followers[0].messages");
  CHECK(c.node->router().live_requests() == 0);
}

TEST_CASE("Prefill hints count in a tenant's tokens and leave half for calls") {
  const TempDir directory;
  const NewKey key = DrawKey();
  directory.Write("keys.toml", "[team]\nkeys = [\"" + key.hash + "\"]\ntokens_per_minute = 120\n");
  Cluster c(PatientLimits(), Schedule::kFirstCome, directory / "keys.toml");
  Serve(c);
  HttpClient client(c.node->http()->address());
  json body = json::parse(Chat("0123456789abcd", 4));
  body["max_tokens"] = 10;
  client.Post("/v1/chat/completions", body.dump(), "authorization: Bearer " + key.key + "\r\n");
  PassPrefill(c);
  for (int i = 0; i < 2; ++i) CHECK(c.prefill->Next().prefill().open());
  // The chat may use 14 tokens, and each hint about 18.
  Await("two prefill hints to be refused", [&] { return HintsEnded(c, "RESOURCE_EXHAUSTED") == 2; });
  c.decode->Send(TokensEvent("r", "hello", FinishReason::kStop));
  CHECK(client.Read().status == 200);
}

TEST_CASE("Prefill hints do not count as requests of a tenant") {
  const TempDir directory;
  const NewKey key = DrawKey();
  directory.Write("keys.toml", "[team]\nkeys = [\"" + key.hash + "\"]\nmax_requests = 1\n");
  Cluster c(PatientLimits(), Schedule::kFirstCome, directory / "keys.toml");
  Serve(c);
  const std::string bearer = "authorization: Bearer " + key.key + "\r\n";
  HttpClient client(c.node->http()->address());
  client.Post("/v1/chat/completions", Chat("0123456789abcd", 4), bearer);
  PassPrefill(c);
  for (int i = 0; i < 4; ++i) CHECK(c.prefill->Next().prefill().open());
  c.decode->Send(TokensEvent("r", "hello", FinishReason::kStop));
  CHECK(client.Read().status == 200);
  for (int i = 0; i < 4; ++i) CHECK(c.prefill->Next().append().last());

  // All four hints continue. One more chat is accepted, and no second one.
  client.Post("/v1/chat/completions", Chat("0123456789abcd", 0), bearer);
  PassPrefill(c);
  HttpClient other(c.node->http()->address());
  other.Post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "hi"}]})", bearer);
  CHECK(other.Read().status == 429);
  c.decode->Send(TokensEvent("r", "hello", FinishReason::kStop));
  CHECK(client.Read().status == 200);
}

}  // namespace
}  // namespace baton
