// Fields of requests over HTTP and gRPC: the values that reach workers, and the errors that clients
// see. The workers are fakes.
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

// Returns the sampling parameters of each choice of a call, as they reach a decode worker.
std::vector<SamplingParams> SamplingsOf(Cluster& c, const std::string& path, const std::string& body, size_t choices) {
  HttpClient client(c.node->http()->address());
  client.Post(path, body);
  std::vector<SamplingParams> samplings;
  std::vector<RequestId> ids;
  for (size_t i = 0; i < choices; ++i) {
    ids.push_back(c.prefill->Next().prefill().request_id());
    c.prefill->Send(DoneEvent(ids.back(), Incarnation(22)));
    samplings.push_back(FromProto(c.decode->Next().decode()).spec.sampling);
  }
  for (const RequestId& id : ids) c.decode->Send(TokensEvent(id, "x", FinishReason::kStop));
  CHECK(client.Read().status == 200);
  return samplings;
}

SamplingParams SamplingOf(Cluster& c, const std::string& path, const std::string& body) {
  return SamplingsOf(c, path, body, 1).at(0);
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

TEST_CASE("A call without max_tokens gets what the prompt leaves of the context length") {
  Cluster c;
  ServedModel model = ByteModel("bytes");
  model.chat_template = *ChatTemplate::Parse("{{ messages[0].content }}", "", "");
  c.Serve(std::move(model));
  const auto body = [](size_t tokens, const std::string& more = "") {
    return absl::StrCat("{\"prompt\": \"", std::string(tokens, 'p'), "\"", more, "}");
  };
  CHECK(SamplingOf(c, "/v1/completions", body(10)).max_tokens == 16);
  CHECK(SamplingOf(c, "/v1/completions", body(48)).max_tokens == 16);
  CHECK(SamplingOf(c, "/v1/completions", body(62)).max_tokens == 2);
  CHECK(SamplingOf(c, "/v1/completions", body(62, ", \"max_tokens\": null")).max_tokens == 2);
  CHECK(SamplingOf(c, "/v1/completions", body(62, ", \"max_tokens\": 2")).max_tokens == 2);
  const json error = ErrorOf(c, "/v1/completions", body(62, ", \"max_tokens\": 3"));
  CHECK(error["param"] == "max_tokens");
  CHECK(error["code"] == "context_length_exceeded");
  CHECK(ErrorOf(c, "/v1/completions", body(64))["param"] == "prompt");

  const auto list = SamplingsOf(c, "/v1/completions",
                                absl::StrCat("{\"prompt\": [\"a\", \"", std::string(61, 'p'), "\"], \"n\": 2}"), 4);
  for (size_t i = 0; i < 4; ++i) CHECK(list[i].max_tokens == (i < 2 ? 16 : 3));

  CHECK(SamplingOf(c, "/v1/chat/completions",
                   absl::StrCat("{\"messages\": [{\"role\": \"user\", \"content\": \"", std::string(62, 'p'), "\"}]}"))
            .max_tokens == 2);
  CHECK(SamplingOf(c, "/generate",
                   absl::StrCat("{\"segments\": {\"segments\": [{\"text\": \"", std::string(62, 'p'), "\"}]}}"))
            .max_tokens == 2);

  v1::GenerateRequest request = Call::Request("r", std::string(62, 'p'));
  request.mutable_sampling()->clear_max_tokens();
  Call call(c, request);
  CHECK(c.prefill->Next().prefill().request_id() == "r");
  c.prefill->Send(DoneEvent("r", Incarnation(22)));
  CHECK(FromProto(c.decode->Next().decode()).spec.sampling.max_tokens == 2);
  c.decode->Send(TokensEvent("r", "x", FinishReason::kStop));
  CHECK(call.Finish().status.ok());
}

TEST_CASE("A prompt from a context or an output leaves its default of max_tokens") {
  Cluster c;
  HttpClient client(c.node->http()->address());
  const std::string sixty(60, 'p');
  client.Post("/v1/completions", absl::StrCat(R"({"context_id": "c", "max_tokens": 0, "prompt": ")", sixty, "\"}"));
  c.prefill->Send(DoneEvent(c.prefill->Next().prefill().request_id(), Incarnation()));
  CHECK(client.Read().status == 200);
  CHECK(SamplingOf(c, "/v1/completions", R"({"context_id": "c", "prompt": "ab"})").max_tokens == 2);
  CHECK(SamplingOf(c, "/v1/completions", R"({"context_id": "c"})").max_tokens == 4);

  Call up(c, "up");
  PassPrefill(c, "up");
  c.decode->Send(TokensEvent("up", "ab", FinishReason::kStop));
  CHECK(up.Finish().status.ok());
  CHECK(SamplingOf(c, "/v1/completions",
                   absl::StrCat(R"({"segments": [{"text": ")", sixty, R"("}, {"output_of": "up"}]})"))
            .max_tokens == 2);
}

}  // namespace
}  // namespace baton
