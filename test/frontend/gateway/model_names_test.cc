// Served names and aliases of models, over HTTP and gRPC. The workers are fakes.
#include <string>
#include <vector>

#include "base/strings.h"
#include "http_client.h"
#include "nlohmann/json.hpp"
#include "shell/router_cluster.h"

namespace baton {
namespace {

using nlohmann::json;

struct NamedCluster : Cluster {
  NamedCluster() {
    options.served_names = {"org/best", "bytes=fast"};
    options.aliases = {"claude-*=org/best", "gpt-4=bytes"};
    ServedModel model = ByteModel("bytes");
    model.chat_template = *ChatTemplate::Parse("{% for m in messages %}{{ m.content }}{% endfor %}", "", "");
    Serve(std::move(model));
  }

  HttpAnswer Ask(const std::string& path, const json& body) const {
    HttpClient client(node->http()->address());
    client.Post(path, body.dump());
    return client.Read();
  }
  json Get(const std::string& path) const {
    HttpClient client(node->http()->address());
    client.Send(StrCat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    return json::parse(client.Read().body);
  }
  // Returns the bodies or events of the answer to a call that generates "x".
  HttpAnswer Answer(const std::string& path, const json& body) {
    HttpClient client(node->http()->address());
    client.Post(path, body.dump());
    const RequestId id = prefill->Next().prefill().request_id();
    prefill->Send(DoneEvent(id, Incarnation(22)));
    decode->Next();
    decode->Send(TokensEvent(id, "x", FinishReason::kStop));
    return client.Read();
  }
};

TEST_CASE("A router lists served names and aliases, and not patterns or the own name") {
  NamedCluster c;
  std::vector<std::string> ids;
  const json list = c.Get("/v1/models");
  for (const json& model : list["data"]) {
    ids.push_back(model["id"]);
    CHECK(model["root"] == "bytes");
  }
  CHECK(ids == std::vector<std::string>{"org/best", "fast", "gpt-4"});
  grpc::ClientContext context;
  v1::ListModelsResponse models;
  REQUIRE(c.stub->ListModels(&context, {}, &models).ok());
  REQUIRE(models.models_size() == 3);
  for (int i = 0; i < 3; ++i) {
    CHECK(models.models(i).name() == ids[static_cast<size_t>(i)]);
    CHECK(models.models(i).context() == 64);
  }
  // Each accepted name can be looked up.
  for (const char* name : {"org/best", "org%2Fbest", "fast", "bytes", "gpt-4", "claude-3"}) {
    const json model = c.Get(StrCat("/v1/models/", name));
    CHECK(model["id"] == (std::string(name) == "org%2Fbest" ? "org/best" : name));
    CHECK(model["root"] == "bytes");
  }
  CHECK(c.Get("/v1/models/other")["error"]["message"] ==
        "model: expected one of 'org/best', 'fast', 'gpt-4', got 'other'");
}

TEST_CASE("An answer has the model's name as the client sent it") {
  NamedCluster c;
  for (const std::string name : {"org/best", "fast", "bytes", "gpt-4", "claude-\"haiku\"", ""}) {
    CAPTURE(name);
    const std::string shown = name.empty() ? "org/best" : name;
    json body = {{"model", name}, {"prompt", "hello"}, {"max_tokens", 4}};
    CHECK(json::parse(c.Answer("/v1/completions", body).body)["model"] == shown);
    body = {{"model", name}, {"messages", {{{"role", "user"}, {"content", "hi"}}}}, {"max_tokens", 4}};
    CHECK(json::parse(c.Answer("/v1/chat/completions", body).body)["model"] == shown);
    body["stream"] = true;
    const std::string events = c.Answer("/v1/chat/completions", body).body;
    CHECK(json::parse(events.substr(6, events.find('\n') - 6))["model"] == shown);
  }
}

TEST_CASE("Every call with a model accepts served names and aliases") {
  NamedCluster c;
  for (const std::string name : {"fast", "gpt-4", "claude-3"}) {
    CAPTURE(name);
    CHECK(c.Ask("/tokenize", {{"model", name}, {"prompt", "hi"}}).status == 200);
    CHECK(c.Ask("/detokenize", {{"model", name}, {"tokens", {104}}}).status == 200);
    const json segments = {{"segments", {{{"text", "hello"}}}}};
    CHECK(c.Answer("/generate", {{"model", name}, {"segments", segments}, {"sampling", {{"max_tokens", 4}}}}).status ==
          200);
    v1::GenerateRequest request = Call::Request("r", "hello");
    request.set_model(name);
    Call call(c, request);
    PassPrefill(c);
    c.decode->Send(TokensEvent("r", "x", FinishReason::kStop));
    CHECK(call.Finish().status.ok());
  }
  CHECK(c.Ask("/v1/completions", {{"model", "Fast"}, {"prompt", "hi"}}).status == 404);
}

TEST_CASE("An error about a request shows the served name of the model") {
  const NamedCluster c;
  const HttpAnswer answer = c.Ask("/v1/completions", {{"model", "gpt-4"}, {"prompt", std::string(65, 'a')}});
  CHECK(answer.status == 400);
  CHECK(answer.body.find("(context length 64 of 'org/best', less one token to generate)") != std::string::npos);
}

}  // namespace
}  // namespace baton
