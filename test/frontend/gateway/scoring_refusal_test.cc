// A decode worker that cannot compute log probabilities of prompts, over HTTP and gRPC.
#include <string>
#include <utility>

#include "base/strings.h"
#include "http_client.h"
#include "nlohmann/json.hpp"
#include "shell/router_cluster.h"

namespace baton {
namespace {

using nlohmann::json;

const absl::Status kNeverComputes = absl::UnimplementedError("is not supported by this model");

// Refuses the next request, as a decoder behind a frozen prefill module does.
void RefuseNext(Cluster& c) {
  const RequestId id = FromProto(c.decode->Next().decode()).request_id;
  c.decode->Send(FailedEvent<worker::v1::DecodeEvent>(id, kNeverComputes));
}

TEST_CASE("An error about scoring names the field that asked for it") {
  Cluster c;
  const std::pair<std::string, std::string> calls[] = {
      {R"("echo": true, "logprobs": 1)", "echo"},
      {R"("prompt_logprobs": 1)", "prompt_logprobs"},
      {R"("prompt_logprobs": 0, "echo": true, "logprobs": 1)", "prompt_logprobs"},
  };
  for (const auto& [fields, param] : calls) {
    CAPTURE(fields);
    HttpClient client(c.node->http()->address());
    client.Post("/v1/completions", StrCat(R"({"prompt": "hello", "max_tokens": 4, )", fields, "}"));
    RefuseNext(c);
    const HttpAnswer answer = client.Read();
    CHECK(answer.status == 400);
    const json error = json::parse(answer.body)["error"];
    CHECK(error["param"] == param);
    CHECK(error["message"] == param + ": is not supported by this model");
  }
  v1::GenerateRequest request = Call::Request("r", "hello");
  request.mutable_sampling()->set_prompt_logprobs(1);
  Call call(c, request);
  RefuseNext(c);
  CHECK(call.Finish().status == absl::InvalidArgumentError("sampling.prompt_logprobs: is not supported by this model"));
}

}  // namespace
}  // namespace baton
