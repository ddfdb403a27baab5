// Errors of calls that have generated text. They have the text in `error.partial`.
#include <string>

#include "http_client.h"
#include "nlohmann/json.hpp"
#include "shell/router_cluster.h"
#include "text/chat_template.h"

namespace baton {
namespace {

using nlohmann::json;

void Break(Cluster& c, const RequestId& id) {
  c.decode->Send(FailedEvent<worker::v1::DecodeEvent>(id, absl::InternalError("the backend broke")));
}

json ErrorOf(HttpClient& client) {
  const HttpAnswer answer = client.Read();
  CHECK(answer.status == 500);
  json error = json::parse(answer.body)["error"];
  CHECK(error["message"] == "the backend broke");
  return error;
}

TEST_CASE("An error of a whole answer has the text of its choices so far") {
  Cluster c;
  HttpClient client(c.node->http()->address());
  client.Post("/v1/completions", R"({"prompt": ["a", "b", "c"], "request_id": "r"})");
  for (const char* id : {"r-0", "r-1", "r-2"}) PassPrefill(c, id);
  c.decode->Send(TokensEvent("r-0", "xy", FinishReason::kStop));
  c.decode->Send(TokensEvent("r-2", "\"z", std::nullopt));
  Break(c, "r-2");
  const json expected = json::parse(R"([{"index": 0, "text": "xy", "logprobs": null, "finish_reason": "stop"},
                                        {"index": 2, "text": "\"z", "logprobs": null, "finish_reason": null}])");
  CHECK(ErrorOf(client)["partial"] == expected);
}

TEST_CASE("An error of a chat or of /generate has the partial answer in its own form") {
  Cluster c;
  ServedModel model = ByteModel("bytes");
  model.chat_template = *ChatTemplate::Parse("{{ messages[0].content }}", "", "");
  c.Serve(std::move(model));
  HttpClient client(c.node->http()->address());
  client.Post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "a"}], "request_id": "r"})");
  PassPrefill(c);
  c.decode->Send(TokensEvent("r", "wor", std::nullopt));
  Break(c, "r");
  const json choice = ErrorOf(client)["partial"][0];
  CHECK(choice["message"]["content"] == "wor");
  CHECK(choice["finish_reason"].is_null());
  client.Post("/generate", R"({"segments": {"segments": [{"text": "a"}]}, "request_id": "r"})");
  PassPrefill(c);
  c.decode->Send(TokensEvent("r", "wor", std::nullopt));
  Break(c, "r");
  CHECK(ErrorOf(client)["partial"]["text"] == "wor");
}

TEST_CASE("An error has no partial answer when there is no text, or when the text was streamed") {
  Cluster c;
  HttpClient client(c.node->http()->address());
  client.Post("/v1/completions", R"({"prompt": "a", "request_id": "r", "echo": true})");
  PassPrefill(c);
  Break(c, "r");
  CHECK_FALSE(ErrorOf(client).contains("partial"));
  client.Post("/generate?stream=true", R"({"segments": {"segments": [{"text": "a"}]}, "request_id": "r"})");
  PassPrefill(c);
  c.decode->Send(TokensEvent("r", "wor", std::nullopt));
  Break(c, "r");
  const HttpAnswer stream = client.Read();
  CHECK(stream.body.find("wor") != std::string::npos);
  CHECK(stream.body.find("partial") == std::string::npos);
}

}  // namespace
}  // namespace baton
