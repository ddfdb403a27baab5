// Slightly wrong bodies. Every reader must return a status and must not crash.
#include <random>

#include "base/strings.h"
#include "catch.h"
#include "frontend/openai/chat_reader.h"
#include "frontend/openai/completion_reader.h"
#include "frontend/openai/model_routes.h"
#include "frontend/openai/openai_error.h"
#include "frontend/openai/openai_model.h"
#include "seeds.h"

namespace baton {
namespace {

const std::vector<std::string>& Bodies() {
  static const std::vector<std::string> bodies = {
      R"({"model":"plain","prompt":["a",[1,2],"é"],"n":2,"max_tokens":3,"temperature":0.5,"seed":1,"stop":["x"],)"
      R"("stop_token_ids":[1],"logprobs":2,"stream":true,"stream_options":{"include_usage":true},"echo":false})",
      R"({"model":"plain","prompt":["a",[1,2]],"max_tokens":0,"logprobs":1,"prompt_logprobs":2,"echo":true})",
      R"({"model":"plain","segments":[{"text":"a"},{"token_ids":[1]},{"output_of":{"request_id":"u","announced":true,)"
      R"("on_failure":"substitute","substitute":"s","timeout_ms":5,"with_reasoning":true}},{"group":[{"text":"a"},{"agent_name":{}},)"
      R"({"output_of":"v"}]}],"join":"arrival","first":1,"keep":true,"priority":1,"echo":true,"workflow":"w",)"
      R"("workflow_limits":{"deadline_ms":5,"max_tokens":9}})",
      R"({"model":"qwen","messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text",)"
      R"("text":"t"},{"type":"group","group":[{"output_of":"u"}]},{"type":"output_of","output_of":"u"}]},{"role":"assistant","content":null,"tool_calls":[{"id":)"
      R"("c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c",)"
      R"("content":"r"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],)"
      R"("tool_choice":"auto","logprobs":true,"top_logprobs":3,"response_format":{"type":"text"},"best_of":1})",
      R"({"model":"plain","messages":[{"role":"user","content":"u"}],"followers":[{"model":"qwen","messages":[{"role":)"
      R"("user","content":[{"type":"text","text":"t"},{"type":"output"}]}],"tools":[{"type":"function","function":)"
      R"({"name":"f"}}],"tool_choice":"auto"}]})",
      R"({"model":"qwen","messages":[{"role":"assistant","content":[{"type":"refusal","refusal":"r","cache_control":{}},)"
      R"({"type":"thinking","thinking":"t","signature":"s"}],"refusal":"no","annotations":[],"tool_calls":[{"index":0,)"
      R"("function":{"name":"f","arguments":{"x":1},"parsed_arguments":null}}]},{"role":"function","name":"f","content":)"
      R"([{"type":"image_url","image_url":{"url":"u"}},{"type":"file"}]},{"role":"assistant","function_call":{"name":)"
      R"("f","arguments":null}}],"functions":[{"name":"f","parameters":{}}],"function_call":"auto","seed":1.0})",
      R"({"model":"qwen","messages":[{"role":"user","content":"u"}],"tools":[{"type":"function","cache_control":{},)"
      R"("function":{"name":"f","strict":true,"parameters":{"properties":{"x":{"type":["string",1]}},"required":["x"],)"
      R"("additionalProperties":false}}}],"skip_special_tokens":true,"length_penalty":1.0,"use_beam_search":false,)"
      R"("add_generation_prompt":false,"documents":[],"reasoning_effort":"medium","guided_json":null})",
      R"({"model":"plain","prompt":"p","logit_bias":{"1":-100,"2":0.5},"min_tokens":3,"allowed_token_ids":[1,2],)"
      R"("bad_words":["a"," b"],"thinking_token_budget":5,"max_tokens":9})",
      R"({"model":"plain","prompt":"p","stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":)"
      R"(true,"include_obfuscation":false},"return_token_ids":true,"return_tokens_as_token_ids":true,"logprobs":1,)"
      R"("stop":["","x"],"seed":-1,"prompt_cache_options":{"mode":"explicit"},"stream_interval":1,"watermarking":)"
      R"(false})",
      R"({"model":"plain","tokens":[1,2,257],"prompt":"p","add_special_tokens":false})"};
  return bodies;
}

// Replaces, adds or removes a value, or changes bytes.
std::string Mutate(std::string body, std::mt19937& random) {
  static const std::vector<std::string> values = {"null",
                                                  "true",
                                                  "-1",
                                                  "0",
                                                  "1.5",
                                                  "1e308",
                                                  "9223372036854775807",
                                                  "18446744073709551615",
                                                  "-0.0",
                                                  "3.0",
                                                  "NaN",
                                                  "\"\\ud800\"",
                                                  "\"\\udc00x\"",
                                                  "\"image_url\"",
                                                  "\"\"",
                                                  "\"\\ud834\\udd1e\"",
                                                  "[]",
                                                  "[[[]]]",
                                                  "{}",
                                                  "[null]",
                                                  "{\"a\":{}}",
                                                  "\"output_of\"",
                                                  ",",
                                                  "\"",
                                                  "\xff",
                                                  "\\u0000"};
  for (uint32_t i = random() % 3 + 1; i > 0; --i) {
    const size_t at = random() % (body.size() + 1);
    const std::string& value = values[random() % values.size()];
    switch (random() % 4) {
      case 0:
        body.insert(at, value);
        break;
      case 1:
        body.erase(at, random() % 8);
        break;
      // A whole value. The colon before it shows where it begins.
      case 2: {
        const size_t colon = body.find(':', at);
        if (colon == std::string::npos) break;
        const size_t end = body.find_first_of(",}", colon);
        body.replace(colon + 1, end == std::string::npos ? end : end - colon - 1, value);
        break;
      }
      default:
        if (at < body.size()) body[at] = static_cast<char>(random());
    }
  }
  return body;
}

template <typename T>
bool IsAnswer(const absl::StatusOr<T>& result) {
  if (result.ok()) return true;
  if (!absl::IsInvalidArgument(result.status()) && !absl::IsNotFound(result.status())) return false;
  const std::string body = ErrorBody(result.status());
  return HttpStatusOf(result.status()) < 500 && body.size() < 2000 && ParseJsonBody(body).ok();
}

TEST_CASE("The readers of bodies read or refuse a nearly right body") {
  ForEachSeed(20, [](uint64_t seed) {
    std::mt19937 random(seed);
    const auto chat_tokens = [](const v1::Chat&, const ChatValues&,
                                const ServedModel&) -> absl::StatusOr<std::vector<TokenId>> {
      return std::vector<TokenId>{1};
    };
    int parsed = 0;
    for (int i = 0; i < 1000; ++i) {
      const std::string text = Mutate(Bodies()[random() % Bodies().size()], random);
      INFO(text);
      const auto body = ParseJsonBody(text);
      REQUIRE(IsAnswer(body));
      if (!body.ok()) continue;
      ++parsed;
      REQUIRE(IsAnswer(ReadCompletion(*body, TestModels())));
      REQUIRE(IsAnswer(ReadChat(*body, TestModels())));
      REQUIRE(IsAnswer(TokenizeBody(*body, TestModels(), chat_tokens)));
      REQUIRE(IsAnswer(DetokenizeBody(*body, TestModels())));
    }
    CHECK(parsed > 100);
  });
}

}  // namespace
}  // namespace baton
