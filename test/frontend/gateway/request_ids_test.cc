// The ids of requests over HTTP. One id names the answer and the request, so that later prompts can
// refer to each answer.
#include <string>

#include "http_client.h"
#include "nlohmann/json.hpp"
#include "shell/router_cluster.h"

namespace baton {
namespace {

using nlohmann::json;

// Ends the next request with this output. Returns its id.
RequestId Answer(Cluster& c, const std::string& output) {
  const RequestId id = c.prefill->Next().prefill().request_id();
  c.prefill->Send(DoneEvent(id, Incarnation(22)));
  CHECK(c.decode->Next().decode().request_id() == id);
  c.decode->Send(TokensEvent(id, output, FinishReason::kStop));
  return id;
}

void Post(HttpClient& client, const std::string& path, const std::string& body) {
  client.Post(path, body, "x-request-id: mine\r\n");
}

TEST_CASE("One id names an answer over HTTP, its completion and its output") {
  Cluster c;
  HttpClient client(c.node->http()->address());
  const std::string own = GENERATE("", "own");
  const std::string field = own.empty() ? "" : R"(, "request_id": "own")";
  Post(client, "/v1/completions", R"({"prompt": "hello")" + field + "}");
  const RequestId id = Answer(c, "one");
  const HttpAnswer answer = client.Read();
  CHECK(answer.headers.at("x-request-id") == id);
  CHECK(json::parse(answer.body)["id"] == "cmpl-" + id);
  if (!own.empty()) CHECK(id == own);

  // A later prompt refers to the answer by this id.
  Post(client, "/v1/completions", R"({"segments": [{"output_of": ")" + id + R"("}]})");
  const auto job = c.prefill->Next().prefill();
  const auto& tokens = job.spec().tokens();
  CHECK(std::string(tokens.begin(), tokens.end()) == "one");
  c.prefill->Send(DoneEvent(job.request_id(), Incarnation(22)));
  c.decode->Next();
  c.decode->Send(TokensEvent(job.request_id(), "x", FinishReason::kStop));
  CHECK(client.Read().status == 200);

  Post(client, "/generate", R"({"segments": {"segments": [{"text": "a"}]})" + field + "}");
  const RequestId generated = Answer(c, "two");
  const HttpAnswer whole = client.Read();
  CHECK(whole.headers.at("x-request-id") == generated);
  CHECK(json::parse(whole.body)["request_id"] == generated);
}

TEST_CASE("A choice of several has the id of the answer and its number") {
  Cluster c;
  HttpClient client(c.node->http()->address());
  Post(client, "/v1/completions", R"({"prompt": ["a", "b"], "request_id": "both"})");
  CHECK(Answer(c, "x") == "both-0");
  CHECK(Answer(c, "y") == "both-1");
  const HttpAnswer answer = client.Read();
  CHECK(answer.headers.at("x-request-id") == "both");
  CHECK(json::parse(answer.body)["id"] == "cmpl-both");
}

TEST_CASE("A malformed id is refused and does not become a header") {
  Cluster c;
  HttpClient client(c.node->http()->address());
  for (const char* id : {"a b", "a\\r\\nset-cookie: b", "\u00e9"}) {
    Post(client, "/v1/completions", R"({"prompt": "a", "request_id": ")" + std::string(id) + "\"}");
    const HttpAnswer answer = client.Read();
    CHECK(answer.status == 400);
    CHECK(answer.headers.at("x-request-id") == "mine");
  }
  const std::string longest(128, 'i');
  Post(client, "/v1/completions", R"({"prompt": "a", "n": 2, "request_id": ")" + longest + "\"}");
  const HttpAnswer answer = client.Read();
  CHECK(answer.status == 400);
  CHECK(answer.body.find("with the number of a choice it has 130 bytes, limit 128") != std::string::npos);
}

TEST_CASE("A refused call over HTTP fails the prompts that wait for its choices") {
  Cluster c;
  HttpClient waiting(c.node->http()->address()), client(c.node->http()->address());
  waiting.Post("/v1/completions",
               R"({"segments": [{"output_of": {"request_id": "up-1", "announced": true}}], "request_id": "down"})");
  CHECK(c.prefill->Next().prefill().request_id() == "down");
  // The second prompt is too long for the context.
  Post(client, "/v1/completions", R"({"prompt": ["a", ")" + std::string(70, 'x') + R"("], "request_id": "up"})");
  CHECK(client.Read().status == 400);
  const HttpAnswer answer = waiting.Read();
  CHECK(answer.status == 409);
  CHECK(json::parse(answer.body)["error"]["root"]["request_id"] == "up-1");
}

TEST_CASE("A prompt finds the reason of a refused call only if the call named the request") {
  Cluster c;
  HttpClient client(c.node->http()->address());
  const bool named = GENERATE(false, true);
  const std::string id = named ? R"("request_id": "up", )" : "", too_long(70, 'x');
  const std::pair<const char*, std::string> calls[] = {
      {"/v1/completions", "{" + id + R"("prompt": ")" + too_long + R"("})"},
      {"/v1/completions", "{" + id + R"("prompt": "a", "context_id": "none"})"},
      {"/generate", "{" + id + R"("segments": {"segments": [{"text": ")" + too_long + R"("}]}})"},
      {"/generate", "{" + id + R"("segments": {"segments": [{"text": "a"}]}, "context_id": "none"})"},
  };
  for (const auto& [path, body] : calls) {
    INFO(path << " " << body);
    client.Post(path, body);
    const HttpAnswer refused = client.Read();
    CHECK((refused.status == 400 || refused.status == 404));
    client.Post("/v1/completions", R"({"segments": [{"output_of": ")" + refused.headers.at("x-request-id") + R"("}]})");
    CHECK(client.Read().status == (named ? 409 : 404));
  }
}

}  // namespace
}  // namespace baton
