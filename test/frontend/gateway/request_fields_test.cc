// The errors of requests, as clients of HTTP and gRPC see them.
#include <optional>
#include <string>
#include <vector>

#include "frontend/openai/openai_model.h"
#include "http_client.h"
#include "nlohmann/json.hpp"
#include "shell/router_cluster.h"

namespace baton {
namespace {

using nlohmann::json;

// Returns the error of a call that the router refuses, in OpenAI's format.
json ErrorOf(Cluster& c, const std::string& path, const std::string& body) {
  HttpClient client(c.node->http()->address());
  client.Post(path, body);
  const HttpAnswer answer = client.Read();
  INFO(body << ": " << answer.status << " " << answer.body);
  REQUIRE(answer.status >= 400);
  return json::parse(answer.body)["error"];
}

// Returns the sampling parameters that reach a decode worker. The call has one choice.
SamplingParams SamplingOf(Cluster& c, const std::string& path, const std::string& body) {
  HttpClient client(c.node->http()->address());
  client.Post(path, body);
  const RequestId id = c.prefill->Next().prefill().request_id();
  c.prefill->Send(DoneEvent(id, Incarnation(22)));
  const DecodeJob job = FromProto(c.decode->Next().decode());
  c.decode->Send(TokensEvent(id, "x", FinishReason::kStop));
  CHECK(client.Read().status == 200);
  return job.spec.sampling;
}

TEST_CASE("A router checks and shows a float as the client sent it") {
  Cluster c;
  const std::pair<std::string, std::string> refused[] = {
      {R"("top_p": 1.0000001)", "top_p: expected a number in [0, 1], got 1.0000001"},
      {R"("top_p": -1e-50)", "top_p: expected a number in [0, 1], got -1e-50"},
      {R"("min_p": 1)", "min_p: expected a number in [0, 1), got 1"},
      {R"("temperature": 100.000001)", "temperature: expected a number in [0, 100], got 100.000001"},
      {R"("temperature": 1e300)", "temperature: expected a number in [0, 100], got 1e+300"},
      {R"("repetition_penalty": 0.00999999999)",
       "repetition_penalty: expected a number in [0.01, 100], got 0.00999999999"},
      {R"("presence_penalty": -2.00000001)", "presence_penalty: expected a number in [-2, 2], got -2.00000001"},
      {R"("frequency_penalty": 2.00000001)", "frequency_penalty: expected a number in [-2, 2], got 2.00000001"},
  };
  for (const auto& [field, message] : refused) {
    const json error = ErrorOf(c, "/v1/completions", R"({"prompt": "a", )" + field + "}");
    CHECK(error["message"] == message);
    CHECK(error["param"] == message.substr(0, message.find(':')));
  }
  const std::string call = R"({"prompt": "hello", "max_tokens": 4, )";
  CHECK(SamplingOf(c, "/v1/completions", call + R"("top_p": 1e-50})").draw.top_p == 0);
  CHECK(SamplingOf(c, "/v1/completions", call + R"("top_p": 0})").draw.top_p == 0);
  CHECK(SamplingOf(c, "/v1/completions", call + R"("min_p": 0.99999999999})").draw.min_p == std::nextafter(1.0f, 0.0f));
  CHECK(SamplingOf(c, "/v1/completions", call + R"("repetition_penalty": 0.01})").draw.repetition_penalty == 0.01f);

  v1::GenerateRequest request = Call::Request("r", "hello");
  request.mutable_sampling()->set_top_p(1.0000001f);
  CHECK(Message(Call(c, request).Finish().status) == "sampling.top_p: expected a number in [0, 1], got 1.0000001");
  request = Call::Request("r", "hello");
  request.mutable_sampling()->set_min_p(static_cast<float>(0.99999999999));
  CHECK(Message(Call(c, request).Finish().status) == "sampling.min_p: expected a number in [0, 1), got 1");
  CHECK(ErrorOf(c, "/generate",
                R"({"segments": {"segments": [{"text": "a"}]}, "sampling": {"top_p": 1.0000001}})")["message"]
            .get<std::string>()
            .ends_with("got 1.0000001"));
}

}  // namespace
}  // namespace baton
