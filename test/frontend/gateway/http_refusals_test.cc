// The answers, counts and log lines of refused HTTP calls.
#include <set>
#include <string>
#include <vector>

#include "base/logging.h"
#include "frontend/gateway/keyed_router.h"
#include "http_client.h"
#include "metric_value.h"
#include "nlohmann/json.hpp"
#include "shell/router_cluster.h"
#include "spdlog/sinks/ostream_sink.h"
#include "temp_dir.h"

namespace baton {
namespace {

using nlohmann::json;

struct World : KeyedRouter {
  double Count(const std::string& code) {
    return MetricValue(c.metrics, absl::StrCat("baton_http_responses_total{code=\"", code, "\"}"));
  }
};

TEST_CASE("A router counts every HTTP answer by its code") {
  World w;
  for (const char* code : {"200", "401", "403", "404", "405", "413", "415", "431"}) {
    CHECK(w.c.metrics.Text().find(absl::StrCat("baton_http_responses_total{code=\"", code, "\"} 0")) !=
          std::string::npos);
  }
  CHECK(w.Ask("GET /version").status == 401);
  CHECK(w.Ask("GET /nowhere", "authorization: Bearer wrong\r\n").status == 401);
  CHECK(w.Ask("GET /metrics", w.Mine()).status == 403);
  CHECK(w.Ask("GET /nowhere", w.Mine()).status == 404);
  CHECK(w.Ask("GET /v1/completions", w.Mine()).status == 405);
  CHECK(w.Ask("POST /v1/completions", w.Mine() + "Content-Length: 99999999\r\n").status == 413);
  CHECK(w.Ask("POST /v1/completions", w.Mine() + "Content-Encoding: br\r\nContent-Length: 9\r\n").status == 415);
  CHECK(w.Ask("GET /version", "a: " + std::string(20 << 10, 'x') + "\r\n").status == 431);
  CHECK(w.Ask("GET /version", w.Mine()).status == 200);
  CHECK(w.Count("401") == 2);
  for (const char* code : {"200", "403", "404", "405", "413", "415", "431"}) {
    INFO(code);
    CHECK(w.Count(code) == 1);
  }
}

TEST_CASE("A router names Bearer and logs the address, but no key, when a key is wrong") {
  World w;
  std::ostringstream log;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log)));
  for (int i = 0; i < 3; ++i) {
    CHECK(w.Ask("GET /version", "authorization: Bearer sesame\r\n").headers.at("www-authenticate") == "Bearer");
  }
  w.c.node.reset();
  spdlog::set_default_logger(before);
  const std::string text = log.str();
  const size_t line = text.find("127.0.0.1 called /version with an unknown key");
  CHECK(line != std::string::npos);
  CHECK(text.find("called", line + 20) == std::string::npos);
  CHECK(text.find("sesame") == std::string::npos);
}

TEST_CASE("A router refuses a call with two keys") {
  World w;
  const HttpAnswer answer = w.Ask("GET /version", w.Mine() + "authorization: Bearer other\r\n");
  CHECK(answer.status == 400);
  CHECK(json::parse(answer.body)["error"]["param"] == "Authorization");
}

TEST_CASE("A router accepts a key in x-api-key, and refuses another key beside it") {
  World w;
  const std::string mine = "x-api-key: " + w.key.key + "\r\n";
  CHECK(w.Ask("GET /version", mine).status == 200);
  CHECK(w.Ask("GET /version", mine + w.Mine()).status == 200);
  CHECK(w.Ask("GET /version", "x-api-key: wrong\r\n").status == 401);
  // A proxy's own scheme is no key.
  CHECK(w.Ask("GET /version", mine + "authorization: Basic eDp5\r\n").status == 200);
  for (const std::string& two : {"x-api-key: wrong\r\n" + w.Mine(), mine + "authorization: Bearer wrong\r\n"}) {
    const HttpAnswer answer = w.Ask("GET /version", two);
    CHECK(answer.status == 401);
    CHECK(json::parse(answer.body)["error"]["message"] ==
          "x-api-key: expected the key of authorization, or only one of the two headers");
  }
  Cluster open;
  HttpClient client(open.node->http()->address());
  client.Post("/tokenize", R"({"prompt": "a"})", "x-api-key: a\r\nauthorization: Bearer b\r\n");
  CHECK(client.Read().status == 200);
  CHECK(w.Ask("GET /version", mine + mine).status == 400);
}

TEST_CASE("A router shows its routes, and near ones, to callers with a key only") {
  World w;
  CHECK(w.Ask("GET /").status == 401);
  CHECK(w.Ask("GET /", w.Mine()).status == 200);
  CHECK(w.Ask("POST /chat/completions").body.find("/v1/chat/completions") == std::string::npos);
  CHECK(w.Ask("POST /chat/completions", w.Mine()).body.find("/v1/chat/completions") != std::string::npos);
}

TEST_CASE("Errors that would repeat ask the client not to retry") {
  Cluster c;
  HttpClient client(c.node->http()->address());
  client.Post("/v1/completions", R"({"prompt": "hello", "timeout_ms": 50})");
  const HttpAnswer late = client.Read();
  CHECK(late.status == 504);
  CHECK(late.headers.at("x-should-retry") == "false");
  client.Post("/v1/completions", R"({"prompt": 3})");
  CHECK_FALSE(client.Read().headers.contains("x-should-retry"));
}

TEST_CASE("Every route refuses a body that nests too deep") {
  Cluster c;
  HttpClient client(c.node->http()->address());
  const std::string arrays = R"({"prompt":)" + std::string(50'000, '[') + std::string(50'000, ']') + "}";
  std::string objects, closed;
  for (int i = 0; i < 10'000; ++i) objects += R"({"segments":)", closed += "}";
  objects += "1" + closed;
  const auto check = [&](const char* path, const std::string& body, const std::string& why) {
    INFO(path);
    client.Post(path, body);
    const HttpAnswer answer = client.Read();
    CHECK(answer.status == 400);
    const std::string message = json::parse(answer.body)["error"]["message"];
    CHECK(message.substr(0, why.size()) == why);
  };
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize", "/generate",
                           "/prefill_only", "/ui/workflows", "/ui/trace"}) {
    check(path, arrays, "prompt: JSON is nested deeper than 64");
    check(path, objects, "segments: JSON is nested deeper than 64");
  }
}

TEST_CASE("Every route names the field whose value the JSON parser refuses") {
  Cluster c;
  HttpClient client(c.node->http()->address());
  const auto check = [&](const char* route, const std::string& field, const std::string& body) {
    INFO(route << " " << field << " " << body.substr(0, 128));
    client.Post(route, body);
    const HttpAnswer answer = client.Read();
    CHECK(answer.status == 400);
    const json error = json::parse(answer.body)["error"];
    CHECK(error["param"] == field);
    CHECK(std::string(error["message"]).starts_with(field + ": expected "));
  };
  std::string biases = "{\"0\":1";
  for (int i = 1; i < 100'000; ++i) biases += absl::StrCat(",\"", i, "\":1");
  biases += "}";
  const std::string text = R"("a\ud800b")", number = "18446744073709551616";
  const std::string prompt = R"({"prompt": "a", )", chat = R"({"messages": [{"role": "user", "content": "a"}], )";
  for (const auto& [route, begin] : {std::pair{"/v1/completions", prompt}, {"/v1/chat/completions", chat}}) {
    check(route, "logit_bias", begin + R"("logit_bias": )" + biases + "}");
    check(route, "logit_bias", begin + R"("logit_bias": {"\udc00": 1}})");
    check(route, "logit_bias", begin + R"("logit_bias": {"a b": )" + number + "}}");
    for (const char* name : {"seed", "max_tokens", "min_tokens", "n", "priority"}) {
      check(route, name, absl::StrCat(begin, "\"", name, "\": ", number, "}"));
    }
    check(route, "allowed_token_ids[1]", begin + R"("allowed_token_ids": [1, )" + number + "]}");
    check(route, "temperature", begin + R"("temperature": 1e999})");
    check(route, "stop", begin + R"("stop": )" + text + "}");
    check(route, "stop[1]", begin + R"("stop": ["a", )" + text + "]}");
    check(route, "bad_words[0]", begin + R"("bad_words": [)" + text + "]}");
    check(route, "user", begin + R"("user": )" + text + "}");
    check(route, "seed", begin + R"("seed": 1, "seed": 1})");
  }
  check("/v1/completions", "prompt", R"({"prompt": )" + text + "}");
  check("/v1/completions", "prompt[1]", R"({"prompt": [1, )" + number + "]}");
  check("/v1/chat/completions", "tools[0].function.name",
        chat + R"("tools": [{"type": "function", "function": {"name": )" + text + "}}]}");
  const std::string message = R"({"messages": [{"role": "user", "content": )" + text + "}]}";
  for (const char* route : {"/v1/chat/completions", "/tokenize"}) check(route, "messages[0].content", message);
  check("/tokenize", "prompt", R"({"prompt": )" + text + "}");
  check("/detokenize", "tokens[2]", R"({"tokens": [1, 2, )" + number + "]}");
  const std::string sampling = R"({"segments": {"segments": [{"text": "a"}]}, "sampling": )";
  for (const char* name : {"seed", "max_tokens", "min_tokens"}) {
    check("/generate", absl::StrCat("sampling.", name), absl::StrCat(sampling, "{\"", name, "\": ", number, "}}"));
  }
  check("/generate", "sampling.logit_bias", sampling + R"({"logit_bias": )" + biases + "}}");
  check("/generate", "sampling.stop[0]", sampling + R"({"stop": [)" + text + "]}}");
  check("/generate", "segments.segments[0].text", R"({"segments": {"segments": [{"text": )" + text + "}]}}");
}

TEST_CASE("A prompt that is too long gets OpenAI's message on every route") {
  Cluster c;
  HttpClient client(c.node->http()->address());
  const std::string text(70, 'x');  // the model's context has 64 tokens
  json ids = json::array();
  for (int i = 0; i < 70; ++i) ids.push_back(97);
  const std::vector<std::pair<std::string, json>> calls = {
      {"/v1/completions", {{"prompt", text}}},
      {"/v1/completions", {{"prompt", ids}}},
      {"/v1/completions", {{"prompt", "a"}, {"max_tokens", 64}}},
      {"/generate", {{"segments", {{"segments", {{{"text", text}}}}}}}},
      {"/tokenize", {{"prompt", text}}},
      {"/detokenize", {{"tokens", ids}}}};
  for (const auto& [path, body] : calls) {
    INFO(path << " " << body.dump());
    client.Post(path, body.dump());
    const HttpAnswer answer = client.Read();
    CHECK(answer.status == 400);
    const json error = json::parse(answer.body)["error"];
    CHECK(error["code"] == "context_length_exceeded");
    CHECK(std::string(error["message"]).starts_with("This model's maximum context length is 64 tokens. "));
  }
}

TEST_CASE("A max_tokens that fits no decode worker is refused by the name that was sent") {
  Cluster c;
  c.ShrinkDecode(2);  // 32 tokens
  HttpClient client(c.node->http()->address());
  for (const auto& [path, fields] : std::vector<std::pair<std::string, json>>{
           {"/v1/completions", {{"prompt", "hello"}, {"max_tokens", 29}}},
           {"/v1/completions", {{"prompt", "hello"}, {"max_tokens", 29}, {"n", 2}}},
           {"/generate", {{"segments", {{"segments", {{{"text", "hello"}}}}}}, {"sampling", {{"max_tokens", 29}}}}}}) {
    client.Post(path, fields.dump());
    const HttpAnswer answer = client.Read();
    INFO(path << " " << answer.body);
    CHECK(answer.status == 400);
    const json error = json::parse(answer.body)["error"];
    const std::string field = path == "/generate" ? "sampling.max_tokens" : "max_tokens";
    CHECK(error["param"] == field);
    CHECK(error["code"] == "context_length_exceeded");
    CHECK(error["message"] == "This model's maximum context length is 33 tokens. " + field +
                                  ": 29 after a prompt of 5 tokens, limit 28 (KV memory for 33 tokens of 'bytes': the "
                                  "largest decode worker has 2 blocks of 16 tokens and the context length 64); send "
                                  "less, or leave it out to generate what fits");
  }
  client.Post("/v1/completions", R"({"prompt": "hello", "max_tokens": 28})");
  CHECK(c.prefill->Next().has_prefill());
}

TEST_CASE("Drawn request ids are unpredictable") {
  World w;
  std::set<std::string> ids, beginnings;
  for (int i = 0; i < 20; ++i) {
    const std::string id = w.Ask("GET /health").headers.at("x-request-id");
    CHECK(id.size() == 32);
    ids.insert(id);
    beginnings.insert(id.substr(0, 8));
  }
  CHECK(ids.size() == 20);
  CHECK(beginnings.size() == 20);
}

TEST_CASE("Series by code exist before the first count") {
  Cluster c;
  const std::string text = c.metrics.Text();
  for (const char* name : {"baton_requests_total", "baton_followers_total"}) {
    for (const char* code : {"OK", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "UNAUTHENTICATED"}) {
      CHECK(text.find(absl::StrCat(name, "{code=\"", code, "\"} 0")) != std::string::npos);
    }
  }
}

}  // namespace
}  // namespace baton
