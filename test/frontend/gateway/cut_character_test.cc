// Answers to prompts that end inside a character. The workers are fakes that a test controls.
#include "http_client.h"
#include "nlohmann/json.hpp"
#include "shell/router_cluster.h"

namespace baton {
namespace {

using nlohmann::json;

TEST_CASE("An answer begins with the character that its prompt begins") {
  Cluster c;
  HttpClient client(c.node->http()->address());
  client.Post("/v1/completions", R"({"prompt": [97, 226], "logprobs": 0, "request_id": "r"})");
  PassPrefill(c);
  worker::v1::DecodeEvent event = TokensEvent("r", "bc", FinishReason::kStop);
  worker::v1::TokenUpdate& update = *event.mutable_updates()->mutable_updates(0);
  update.set_text("\uFFFDbc");
  for (int i = 0; i < 2; ++i) update.add_logprobs()->set_logprob(-1);
  c.decode->Send(event);
  const json choice = json::parse(client.Read().body)["choices"][0];
  CHECK(choice["text"] == "\uFFFDbc");
  CHECK(choice["logprobs"]["text_offset"] == json({1, 2}));

  client.Post("/v1/completions", R"({"prompt": [97, 240, 159], "echo": true, "request_id": "s"})");
  PassPrefill(c, "s");
  event = TokensEvent("s", "\x8C\xB6", FinishReason::kStop);
  event.mutable_updates()->mutable_updates(0)->set_text("🌶");
  c.decode->Send(event);
  CHECK(json::parse(client.Read().body)["choices"][0]["text"] == "a🌶");
}

}  // namespace
}  // namespace baton
