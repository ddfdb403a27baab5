// Requests over HTTP whose output other requests have stopped to need.
#include <string>

#include "absl/strings/match.h"
#include "http_client.h"
#include "nlohmann/json.hpp"
#include "shell/router_cluster.h"

namespace baton {
namespace {

using nlohmann::json;

// Sends a request that refers to the output, and closes its connection.
void ReadAndLeave(Cluster& c, const RequestId& upstream) {
  HttpClient reader(c.node->http()->address());
  reader.Post("/v1/completions", R"({"request_id": "down", "segments": [{"output_of": ")" + upstream + "\"}]}");
  CHECK(c.prefill->Next().prefill().request_id() == "down");
  reader.Close();
  CHECK(c.prefill->Next().cancel().request_id() == "down");
}

TEST_CASE("A stream has the text of an output that no request needs, and then an error") {
  Cluster c;
  HttpClient client(c.node->http()->address());
  client.Post("/v1/completions", R"({"prompt": "hello", "request_id": "up", "stream": true})");
  PassPrefill(c, "up");
  c.decode->Send(TokensEvent("up", "abc", std::nullopt));
  REQUIRE(client.ReadHead().status == 200);
  const std::string first = client.ReadPart().value_or("");
  CHECK(absl::StrContains(first, R"("text":"abc")"));
  ReadAndLeave(c, "up");
  CHECK(c.decode->Next().cancel().request_id() == "up");
  const std::string error = client.ReadPart().value_or("");
  CHECK(absl::StrContains(error, R"("code":"cancelled")"));
  CHECK(absl::StrContains(error, "set `keep`"));
}

TEST_CASE("An output over HTTP goes on with keep, and if its call has several choices") {
  Cluster c;
  HttpClient client(c.node->http()->address());
  const bool several = GENERATE(false, true);
  const std::string id = several ? "up-0" : "up";
  client.Post("/v1/completions",
              R"({"prompt": "hello", "request_id": "up", )" + std::string(several ? R"("n": 2})" : R"("keep": true})"));
  PassPrefill(c, id);
  if (several) PassPrefill(c, "up-1");
  ReadAndLeave(c, id);
  c.decode->Send(TokensEvent(id, "abc", FinishReason::kStop));
  if (several) c.decode->Send(TokensEvent("up-1", "abc", FinishReason::kStop));
  const HttpAnswer answer = client.Read();
  CHECK(answer.status == 200);
  CHECK(json::parse(answer.body)["choices"].size() == (several ? 2 : 1));
}

}  // namespace
}  // namespace baton
