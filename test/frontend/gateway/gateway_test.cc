// The HTTP front end over real sockets. The workers are fakes that a test controls.
#include <algorithm>
#include <future>
#include <string>
#include <vector>

#include "await.h"
#include "certificates.h"
#include "frontend/openai/openai_model.h"
#include "http_client.h"
#include "metric_value.h"
#include "nlohmann/json.hpp"
#include "shell/router_cluster.h"

namespace baton {
namespace {

using nlohmann::json;

const std::string kHello = R"({"prompt": "hello", "max_tokens": 8, "seed": 99, "request_id": "r"})";

HttpClient Connect(Cluster& c) { return HttpClient(c.node->http()->address()); }

HttpAnswer Post(Cluster& c, const std::string& path, const std::string& body, const std::string& headers = "") {
  HttpClient client = Connect(c);
  client.Post(path, body, headers);
  return client.Read();
}

HttpAnswer Get(Cluster& c, const std::string& path) {
  HttpClient client = Connect(c);
  client.Get(path);
  return client.Read();
}

json Parse(const HttpAnswer& answer) {
  INFO(answer.body);
  CHECK(answer.headers.at("content-type") == "application/json");
  json body = json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
  REQUIRE_FALSE(body.is_discarded());
  return body;
}

// The message of an error in OpenAI's format.
std::string ErrorMessageOf(const HttpAnswer& answer) {
  const json body = Parse(answer);
  REQUIRE(body.contains("error"));
  for (const char* key : {"message", "type", "param", "code"}) CHECK(body["error"].contains(key));
  CHECK(answer.headers.contains("x-request-id"));
  return body["error"]["message"];
}

// The events of a stream. REQUIRES: if `whole`, the last event is [DONE].
std::vector<json> EventsOf(const std::string& stream, bool whole = true) {
  std::vector<json> events;
  size_t at = 0;
  bool done = false;
  while (at < stream.size()) {
    const size_t end = stream.find("\n\n", at);
    REQUIRE(end != std::string::npos);
    const std::string event = stream.substr(at, end - at);
    REQUIRE(event.starts_with("data: "));
    CHECK_FALSE(done);
    done = event == "data: [DONE]";
    if (!done) events.push_back(json::parse(event.substr(6)));
    at = end + 2;
  }
  CHECK(done == whole);
  return events;
}

// Passes `count` requests of one call through both workers. Returns their ids.
std::vector<RequestId> PassPrefills(Cluster& c, size_t count) {
  std::vector<RequestId> ids;
  for (size_t i = 0; i < count; ++i) {
    ids.push_back(c.prefill->Next().prefill().request_id());
    c.prefill->Send(DoneEvent(ids.back(), Incarnation(22)));
    CHECK(c.decode->Next().decode().request_id() == ids.back());
  }
  return ids;
}

TEST_CASE("A router answers a completion whole or as a stream") {
  Cluster c;
  HttpClient client = Connect(c);
  client.Post("/v1/completions", kHello, "x-request-id: mine\r\n");
  PassPrefill(c);
  c.decode->Send(TokensEvent("r", "wor", std::nullopt));
  c.decode->Send(TokensEvent("r", "ld", FinishReason::kStop));
  const HttpAnswer answer = client.Read();
  CHECK(answer.status == 200);
  CHECK(answer.headers.at("x-request-id") == "r");
  const json body = Parse(answer);
  CHECK(body["object"] == "text_completion");
  CHECK(body["choices"][0]["text"] == "world");
  CHECK(body["choices"][0]["finish_reason"] == "stop");
  CHECK(body["usage"]["prompt_tokens"] == 5);
  CHECK(body["usage"]["completion_tokens"] == 5);
  CHECK(body["usage"]["prompt_tokens_details"]["cached_tokens"] == 3);

  // On the same connection. Each part arrives as soon as it is written.
  client.Post("/v1/completions", R"({"prompt": [1, 2], "stream": true, "request_id": "s"})");
  PassPrefill(c, "s");
  c.decode->Send(TokensEvent("s", "a", std::nullopt));
  const HttpAnswer head = client.ReadHead();
  CHECK(head.status == 200);
  CHECK(head.headers.at("content-type") == "text/event-stream");
  std::string stream = client.ReadPart().value_or("");
  CHECK(stream.find("\"text\":\"a\"") != std::string::npos);
  c.decode->Send(TokensEvent("s", "b", FinishReason::kLength));
  while (const auto part = client.ReadPart()) stream += *part;
  std::string text;
  for (const json& event : EventsOf(stream)) text += event["choices"][0]["text"].get<std::string>();
  CHECK(text == "ab");
}

TEST_CASE("A router renders a chat by the template and answers whole or as a stream") {
  Cluster c;
  ServedModel model = ByteModel("bytes");
  auto chat_template = ChatTemplate::Parse("{% for m in messages %}<{{ m.content }}>{% endfor %}", "", "");
  REQUIRE(chat_template.ok());
  model.chat_template = *std::move(chat_template);
  c.Serve(std::move(model));

  HttpClient client = Connect(c);
  const std::string messages = R"("messages": [{"role": "user", "content": "hi"}], "request_id": "r")";
  client.Post("/v1/chat/completions", "{" + messages + "}");
  const auto prompt = c.prefill->Next().prefill().spec().tokens();
  CHECK(std::string(prompt.begin(), prompt.end()) == "<hi>");
  c.prefill->Send(DoneEvent("r", Incarnation(22)));
  CHECK(c.decode->Next().decode().request_id() == "r");
  c.decode->Send(TokensEvent("r", "hello", FinishReason::kStop));
  const json body = Parse(client.Read());
  CHECK(body["object"] == "chat.completion");
  CHECK(body["choices"][0]["message"]["role"] == "assistant");
  CHECK(body["choices"][0]["message"]["content"] == "hello");

  client.Post("/v1/chat/completions",
              "{\"stream\": true, \"stream_options\": {\"include_usage\": true}, " + messages + "}");
  PassPrefill(c);
  c.decode->Send(TokensEvent("r", "hel", std::nullopt));
  c.decode->Send(TokensEvent("r", "lo", FinishReason::kStop));
  std::string content;
  const std::vector<json> events = EventsOf(client.Read().body);
  for (const json& event : events) {
    CHECK(event["object"] == "chat.completion.chunk");
    if (event["choices"].empty()) continue;
    content += event["choices"][0]["delta"].value("content", "");
  }
  CHECK(content == "hello");
  CHECK(events.back()["usage"]["completion_tokens"] == 5);
}

TEST_CASE("A router separates a chat's reasoning unless its variables disable thinking") {
  Cluster c;
  c.Serve(MarkedModel("bytes",
                      "{{ messages[0].content }}:{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"));
  HttpClient client = Connect(c);
  const auto message = [&](const std::string& more, const std::string& prompt) {
    client.Post("/v1/chat/completions",
                R"({"messages": [{"role": "user", "content": "hi"}], "request_id": "r")" + more + "}");
    const auto tokens = c.prefill->Next().prefill().spec().tokens();
    CHECK(std::string(tokens.begin(), tokens.end()) == prompt);
    c.prefill->Send(DoneEvent("r", Incarnation(22)));
    CHECK(c.decode->Next().decode().request_id() == "r");
    c.decode->Send(TokensEvent("r", "<think>hm</think>hello", FinishReason::kStop));
    return json(Parse(client.Read())["choices"][0]["message"]);
  };
  json answer = message("", "hi:");
  CHECK(answer["reasoning_content"] == "hm");
  CHECK(answer["content"] == "hello");
  answer = message(R"(, "chat_template_kwargs": {"enable_thinking": false})", "hi:<think>\n\n</think>\n\n");
  CHECK_FALSE(answer.contains("reasoning_content"));
  CHECK(answer["content"] == "<think>hm</think>hello");
  CHECK(ErrorMessageOf(
            Post(c, "/v1/chat/completions",
                 R"({"messages": [{"role": "user", "content": "hi"}], "chat_template_kwargs": {"messages": []}})")) ==
        "chat_template_kwargs.messages: a client may not set this variable");
}

TEST_CASE("Several prompts and samples make one answer, in order") {
  Cluster c;
  HttpClient client = Connect(c);
  client.Post("/v1/completions", R"({"prompt": ["a", "b"], "n": 2, "max_tokens": 4})");
  const std::vector<RequestId> ids = PassPrefills(c, 4);
  for (const size_t i : {3u, 0u, 2u, 1u}) {
    c.decode->Send(TokensEvent(ids[i], std::string(1, static_cast<char>('0' + i)), FinishReason::kStop));
  }
  const json body = Parse(client.Read());
  REQUIRE(body["choices"].size() == 4);
  for (size_t i = 0; i < 4; ++i) {
    CHECK(body["choices"][i]["index"] == i);
    CHECK(body["choices"][i]["text"] == std::to_string(i));
  }
  // In a stream, events of several choices interleave.
  client.Post("/v1/completions", R"({"prompt": "a", "n": 2, "stream": true})");
  const std::vector<RequestId> streams = PassPrefills(c, 2);
  for (const char* text : {"x", "y"}) {
    for (size_t i = 0; i < 2; ++i) c.decode->Send(TokensEvent(streams[i], absl::StrCat(text, i), std::nullopt));
  }
  for (const RequestId& id : streams) c.decode->Send(TokensEvent(id, "", FinishReason::kStop));
  std::vector<std::string> texts(2);
  for (const json& event : EventsOf(client.Read().body)) {
    const json& choice = event["choices"][0];
    texts[choice["index"].get<size_t>()] += choice["text"].get<std::string>();
  }
  CHECK(texts == std::vector<std::string>{"x0y0", "x1y1"});
}

TEST_CASE("One failed choice cancels the others, and there is one error") {
  Cluster c;
  HttpClient client = Connect(c);
  SECTION("a choice fails before the first part of the stream") {
    client.Post("/v1/completions", R"({"prompt": "a", "n": 2, "stream": true})");
    const std::vector<RequestId> ids = PassPrefills(c, 2);
    c.decode->Send(FailedEvent<worker::v1::DecodeEvent>(ids[1], absl::InternalError("the backend broke")));
    CHECK(c.decode->Next().cancel().request_id() == ids[0]);
    const HttpAnswer answer = client.Read();
    CHECK(answer.status == 500);
    CHECK(ErrorMessageOf(answer) == "the backend broke");
  }
  SECTION("a choice fails in the middle of the stream") {
    client.Post("/v1/completions", R"({"prompt": "a", "n": 2, "stream": true})");
    const std::vector<RequestId> ids = PassPrefills(c, 2);
    c.decode->Send(TokensEvent(ids[0], "x", std::nullopt));
    CHECK(client.ReadHead().status == 200);
    c.decode->Send(FailedEvent<worker::v1::DecodeEvent>(ids[1], absl::InternalError("the backend broke")));
    CHECK(c.decode->Next().cancel().request_id() == ids[0]);
    std::string stream;
    while (const auto part = client.ReadPart()) stream += *part;
    CHECK(EventsOf(stream, /*whole=*/false).back()["error"]["message"] == "the backend broke");
  }
  SECTION("the last prompt is refused") {
    client.Post("/v1/completions", kHello);  // when its job arrives, the workers are attached
    PassPrefill(c);
    c.decode->Send(TokensEvent("r", "x", FinishReason::kStop));
    CHECK(client.Read().status == 200);
    const std::string body = absl::StrCat(R"({"max_tokens": 4, "prompt": ["a", ")", std::string(70, 'x'), "\"]}");
    client.Post("/v1/completions", body);
    const HttpAnswer answer = client.Read();
    CHECK(answer.status == 400);
    ErrorMessageOf(answer);
    const RequestId first = c.prefill->Next().prefill().request_id();
    CHECK(c.prefill->Next().cancel().request_id() == first);
  }
  Await("the requests to end", [&] { return c.node->router().live_requests() == 0; });
}

TEST_CASE("A client that leaves cancels all its requests") {
  Cluster c;
  HttpClient client = Connect(c);
  SECTION("the client leaves while it waits for a whole answer") {
    client.Post("/v1/completions", R"({"prompt": "a", "n": 2})");
    std::vector<RequestId> ids = PassPrefills(c, 2);
    client.Close();
    for (int i = 0; i < 2; ++i) std::erase(ids, c.decode->Next().cancel().request_id());
    CHECK(ids.empty());
  }
  SECTION("the client leaves while it reads a stream") {
    client.Post("/v1/completions", R"({"prompt": "hello", "stream": true, "request_id": "r"})");
    PassPrefill(c);
    c.decode->Send(TokensEvent("r", "a", std::nullopt));
    CHECK(client.ReadHead().status == 200);
    client.Reset();
    CHECK(c.decode->Next().cancel().request_id() == "r");
  }
  SECTION("the client of /generate leaves") {
    client.Post("/generate", R"({"segments": {"segments": [{"text": "hello"}]}, "request_id": "r"})");
    c.prefill->Next();
    client.Reset();
    CHECK(c.prefill->Next().cancel().request_id() == "r");
  }
}

TEST_CASE("A waiting stream sends comments, and a later error is an event") {
  Cluster c;
  c.options.stream_silence = 0.05;
  c.Serve(ByteModel("bytes"));
  HttpClient client = Connect(c);
  const auto waits = [&] {
    CHECK(client.ReadHead().status == 200);
    for (int i = 0; i < 2; ++i) CHECK(client.ReadPart() == ": waiting\n\n");
  };
  // The next part that is not the comment ": waiting".
  const auto next = [&] {
    std::optional<std::string> part;
    while ((part = client.ReadPart()) == ": waiting\n\n") continue;
    return part.value_or("");
  };
  const auto breaks = [&] {
    c.decode->Send(FailedEvent<worker::v1::DecodeEvent>("r", absl::InternalError("the backend broke")));
    CHECK(EventsOf(next(), /*whole=*/false).back()["error"]["message"] == "the backend broke");
    CHECK_FALSE(client.ReadPart().has_value());
  };
  SECTION("a completion fails after its first token") {
    client.Post("/v1/completions", R"({"prompt": "hello", "stream": true, "request_id": "r"})");
    PassPrefill(c);
    waits();
    c.decode->Send(TokensEvent("r", "a", std::nullopt));
    CHECK(next().find("\"text\":\"a\"") != std::string::npos);
    CHECK(client.ReadPart() == ": waiting\n\n");
    breaks();
  }
  SECTION("a completion fails before its first token") {
    client.Post("/v1/completions", R"({"prompt": "hello", "stream": true, "request_id": "r"})");
    PassPrefill(c);
    waits();
    breaks();
  }
  SECTION("a request to /generate fails") {
    client.Post("/generate?stream=true", R"({"segments": {"segments": [{"text": "hello"}]}, "request_id": "r"})");
    PassPrefill(c);
    waits();
    breaks();
  }
  SECTION("a client has left, which the write of a comment detects") {
    client.Post("/v1/completions", R"({"prompt": "hello", "stream": true, "request_id": "r"})");
    PassPrefill(c);
    waits();
    client.Close();
    CHECK(c.decode->Next().cancel().request_id() == "r");
  }
}

TEST_CASE("Errors name the wrong field in OpenAI's format") {
  Cluster c;
  const auto refused = [&](const std::string& path, const std::string& body) {
    const HttpAnswer answer = Post(c, path, body);
    CHECK(answer.status == 400);
    return ErrorMessageOf(answer);
  };
  CHECK(refused("/v1/completions", "{").starts_with("body"));
  CHECK(refused("/v1/completions", "[]").starts_with("body"));
  CHECK(refused("/v1/completions", R"({"prompt": "a", "wishes": 3})").find("wishes") != std::string::npos);
  CHECK(refused("/v1/completions", R"({"prompt": "a", "temperature": -1})").find("temperature") != std::string::npos);
  CHECK(refused("/v1/chat/completions", R"({"messages": 1})").find("messages") != std::string::npos);
  CHECK(refused("/generate", R"({"wishes": 3})").find("wishes") != std::string::npos);
  CHECK(refused("/generate?wishes=3", "{}").find("wishes=3") != std::string::npos);
  CHECK(refused("/prefill_only", "{}").find("prompt") != std::string::npos);
  CHECK(refused("/tokenize", R"({"prompt": "a", "wishes": 3})").find("wishes") != std::string::npos);
  CHECK(refused("/detokenize", R"({"tokens": [-1]})").find("tokens") != std::string::npos);
  CHECK(Post(c, "/v1/completions", R"({"model": "nobody", "prompt": "a"})").status == 404);
  CHECK(MetricValue(c.metrics, R"(baton_requests_total{code="INVALID_ARGUMENT"})") >= 8);
}

TEST_CASE("A router names a way out when a chat's model has no template") {
  Cluster c;
  const HttpAnswer answer = Post(c, "/v1/chat/completions", R"({"messages": [{"role": "user", "content": "hi"}]})");
  CHECK(answer.status == 400);
  CHECK(ErrorMessageOf(answer).find("/v1/completions") != std::string::npos);
  CHECK(Parse(answer)["error"]["param"] == "messages");
}

TEST_CASE("A router refuses unknown paths and methods") {
  Cluster c;
  const HttpAnswer unknown = Get(c, "/v2/completions");
  CHECK(unknown.status == 404);
  CHECK(ErrorMessageOf(unknown).find("/v2/completions") != std::string::npos);
  const HttpAnswer wrong = Get(c, "/v1/completions");
  CHECK(wrong.status == 405);
  CHECK(wrong.headers.at("allow") == "POST, OPTIONS");
  ErrorMessageOf(wrong);
  HttpClient client = Connect(c);
  client.Send("OPTIONS /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const HttpAnswer options = client.Read();
  CHECK(options.status == 204);
  CHECK(options.headers.at("allow") == "GET, HEAD, OPTIONS");
  client.Send("HEAD /version HTTP/1.1\r\nHost: localhost\r\n\r\n");
  CHECK(client.Read(/*head_only=*/true).headers.at("content-length") != "0");
  client.Send("nonsense\r\n\r\n");
  const HttpAnswer broken = client.Read();
  CHECK(broken.status == 400);
  ErrorMessageOf(broken);
}

TEST_CASE("A router refuses requests from pages of other sites") {
  Cluster c;
  for (const char* origin : {"http://evil.example", "null", "http://localhost:1", "http://localhostx"}) {
    const HttpAnswer answer = Post(c, "/tokenize", R"({"prompt": "a"})", absl::StrCat("Origin: ", origin, "\r\n"));
    CHECK(answer.status == 403);
    ErrorMessageOf(answer);
  }
  // The second form is for a router behind a proxy.
  for (const char* ours : {"http://localhost", "https://localhost"}) {
    CHECK(Post(c, "/tokenize", R"({"prompt": "a"})", absl::StrCat("Origin: ", ours, "\r\n")).status == 200);
  }
}

TEST_CASE("An HTTPS port refuses pages that were loaded over plain HTTP") {
  Authority authority("ours");
  Cluster c;
  c.options.tls = authority.Issue("router");
  c.options.tls.authority.clear();
  c.Serve(ByteModel("bytes"));
  const auto status_for = [&](const std::string& origin) {
    HttpClient client(c.node->http()->address(), 0, authority.ClientContext().get());
    client.Post("/tokenize", R"({"prompt": "a"})", "Origin: " + origin + "\r\n");
    return client.Read().status;
  };
  CHECK(status_for("https://localhost") == 200);
  CHECK(status_for("http://localhost") == 403);
}

TEST_CASE("Without keys, a loopback router accepts only addresses and localhost") {
  Cluster c;
  const auto status_for = [&](const std::string& host, const std::string& version = "HTTP/1.1") {
    HttpClient client = Connect(c);
    client.Send(absl::StrCat("GET /version ", version, "\r\n", host, "\r\n"));
    const HttpAnswer answer = client.Read();
    if (answer.status == 403) CHECK(ErrorMessageOf(answer).find("--keys") != std::string::npos);
    return answer.status;
  };
  CHECK(status_for("Host: 127.0.0.1:8000\r\n") == 200);
  CHECK(status_for("Host: evil.example\r\n") == 403);
  // An origin of another site is refused even if it equals the host.
  CHECK(status_for("Host: evil.example\r\nOrigin: http://evil.example\r\n") == 403);
  CHECK(status_for("", "HTTP/1.0") == 200);
  // A router that is open to other machines accepts any host name.
  c.options.http = "0.0.0.0:0";
  c.Serve(ByteModel("bytes"));
  CHECK(status_for("Host: baton-router\r\n") == 200);
}

TEST_CASE("A router refuses with a retry delay when it is overloaded or has no workers") {
  Cluster c({.live_requests = 1, .worker_wait = absl::Milliseconds(50)});
  Await("the workers to attach", [&] { return Get(c, "/health").status == 200; });
  HttpClient first = Connect(c);
  first.Post("/v1/completions", kHello);
  c.prefill->Next();
  const HttpAnswer busy = Post(c, "/v1/completions", R"({"prompt": "b"})");
  CHECK(busy.status == 429);
  CHECK(busy.headers.at("retry-after") == "1");
  ErrorMessageOf(busy);
  c.prefill->Die();
  const HttpAnswer lost = first.Read();
  CHECK(lost.status == 503);
  CHECK(lost.headers.contains("retry-after"));
  CHECK(Post(c, "/v1/completions", R"({"prompt": "b"})").status == 503);
}

TEST_CASE("A call's timeout sets the deadline of its requests") {
  Cluster c;
  HttpClient client = Connect(c);
  const auto is_late = [&](const char* path, const char* body) {
    INFO(path);
    client.Post(path, body);
    const HttpAnswer answer = client.Read();
    CHECK(answer.status == 504);
    ErrorMessageOf(answer);
  };
  is_late("/v1/completions", R"({"prompt": "hello", "timeout_ms": 50, "request_id": "r"})");
  for (const char* path :
       {"/generate?timeout_ms=50", "/generate?stream=true&timeout_ms=50", "/prefill_only?timeout_ms=50"}) {
    is_late(path, R"({"segments": {"segments": [{"text": "hello"}]}})");
  }
}

TEST_CASE("A router reads long bodies on another thread with the same answers") {
  Cluster c;
  const std::string body = absl::StrCat(R"({"prompt": "hello", "request_id": "r")", std::string(40'000, ' '), "}");
  HttpClient client = Connect(c);
  client.Post("/v1/completions", body);
  PassPrefill(c);
  c.decode->Send(TokensEvent("r", "world", FinishReason::kStop));
  CHECK(Parse(client.Read())["choices"][0]["text"] == "world");
  const HttpAnswer too_long =
      Post(c, "/v1/completions", absl::StrCat(R"({"prompt": ")", std::string(1 << 20, 'x'), "\"}"));
  CHECK(too_long.status == 400);
  ErrorMessageOf(too_long);
}

TEST_CASE("A router serves the gRPC calls as JSON over HTTP") {
  Cluster c;
  HttpClient client = Connect(c);
  const std::string request = R"({"segments": {"segments": [{"text": "hello"}]}, "request_id": "r",
                                  "sampling": {"max_tokens": 8}})";
  client.Post("/generate", request);
  PassPrefill(c);
  c.decode->Send(TokensEvent("r", "wor", std::nullopt));
  c.decode->Send(TokensEvent("r", "ld", FinishReason::kStop));
  const json whole = Parse(client.Read());
  CHECK(whole["request_id"] == "r");
  CHECK(whole["text"] == "world");
  CHECK(whole["token_ids"] == json({'w', 'o', 'r', 'l', 'd'}));
  CHECK(whole["final"]["finish_reason"] == "FINISH_REASON_STOP");
  CHECK(whole["final"]["usage"]["prompt_tokens"] == 5);

  client.Post("/generate?stream=true", request);
  PassPrefill(c);
  c.decode->Send(TokensEvent("r", "a", std::nullopt));
  CHECK(client.ReadHead().headers.at("content-type") == "text/event-stream");
  c.decode->Send(TokensEvent("r", "b", FinishReason::kStop));
  std::string stream;
  while (const auto part = client.ReadPart()) stream += *part;
  const std::vector<json> events = EventsOf(stream, /*whole=*/false);
  REQUIRE(events.size() >= 2);
  CHECK(events.front()["request_id"] == "r");
  CHECK(events.front()["text"] == "a");
  CHECK(events.back().contains("final"));

  client.Post("/prefill_only", R"({"segments": {"segments": [{"text": "hello"}]}, "context_id": "c"})");
  const RequestId id = c.prefill->Next().prefill().request_id();
  c.prefill->Send(DoneEvent(id, Incarnation(0)));
  const json filled = Parse(client.Read());
  CHECK(filled["request_id"] == id);
  CHECK(filled["context_length"] == 5);
}

TEST_CASE("Routes of health, version, models and metrics answer") {
  Cluster c;
  HttpClient client = Connect(c);
  client.Post("/v1/completions", kHello);  // when its job arrives, the workers are attached
  c.prefill->Next();
  CHECK(Parse(Get(c, "/health"))["status"] == "ok");
  CHECK(Parse(Get(c, "/version"))["version"].is_string());
  CHECK(Parse(Get(c, "/v1/models"))["data"][0]["id"] == "bytes");
  CHECK(Parse(Get(c, "/v1/models/byte%73"))["id"] == "bytes");
  CHECK(Get(c, "/v1/models/nobody").status == 404);
  CHECK(Parse(Post(c, "/tokenize", R"({"prompt": "ab"})"))["tokens"] == json({'a', 'b'}));
  CHECK(Post(c, "/detokenize", R"({"tokens": [97, 98]})").status == 200);
  const HttpAnswer metrics = Get(c, "/metrics");
  CHECK(metrics.headers.at("content-type").starts_with("text/plain"));
  CHECK(metrics.body.find("# TYPE baton_live_requests gauge") != std::string::npos);
  c.decode->Die();
  HttpAnswer health;
  Await("the router to lose a worker", [&] { return (health = Get(c, "/health")).status != 200; });
  CHECK(health.status == 503);
  CHECK(health.headers.contains("retry-after"));
  ErrorMessageOf(health);
}

TEST_CASE("A router that shuts down finishes requests and refuses new ones") {
  Cluster c;
  HttpClient client = Connect(c), other = Connect(c);
  client.Post("/v1/completions", kHello);
  PassPrefill(c);
  const auto shutdown = std::async(std::launch::async, [&] { c.node->Shutdown(absl::Hours(1)); });
  HttpAnswer refused;
  Await("the router to refuse what is new", [&] { return (refused = Get(c, "/health")).status != 200; });
  CHECK(refused.status == 503);
  other.Post("/v1/completions", R"({"prompt": "b"})");
  refused = other.Read();
  CHECK(refused.status == 503);
  CHECK(refused.headers.at("retry-after") == "1");
  CHECK(refused.headers.at("connection") == "close");
  c.decode->Send(TokensEvent("r", "world", FinishReason::kStop));
  CHECK(Parse(client.Read())["choices"][0]["text"] == "world");
  shutdown.wait();
}

TEST_CASE("A router ends requests that run beyond its grace period") {
  Cluster c;
  HttpClient late = Connect(c);
  late.Post("/v1/completions", R"({"prompt": "hello", "request_id": "late"})");
  c.prefill->Next();
  c.node->Shutdown(absl::ZeroDuration());
  const HttpAnswer ended = late.Read();
  CHECK(ended.status == 503);
  ErrorMessageOf(ended);
}

TEST_CASE("A router disconnects a client that does not read, which delays no other") {
  Cluster c;
  HttpClient slow(c.node->http()->address(), /*receive_buffer=*/4096);
  slow.Post("/v1/completions", R"({"prompt": "hello", "stream": true, "request_id": "slow"})");
  PassPrefill(c, "slow");
  HttpClient quick = Connect(c);
  quick.Post("/v1/completions", R"({"prompt": "hello", "stream": true, "request_id": "quick"})");
  PassPrefill(c, "quick");
  const std::string text(64 << 10, 'x');  // more of it than the buffers of sockets and router hold
  int rounds = 0;                         // rounds of 64 KiB each
  for (; c.node->router().live_requests() == 2 && rounds < 400; ++rounds) {
    c.decode->Send(TokensEvent("slow", text, std::nullopt));
    c.decode->Send(TokensEvent("quick", "q", std::nullopt));
    if (rounds == 0) CHECK(quick.ReadHead().status == 200);
    REQUIRE(quick.ReadPart().has_value());
  }
  CHECK(rounds < 400);
  CHECK(c.decode->Next().cancel().request_id() == "slow");
}

}  // namespace
}  // namespace baton
