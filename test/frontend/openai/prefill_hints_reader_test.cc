#include "absl/strings/str_join.h"
#include "base/strings.h"
#include "catch.h"
#include "frontend/openai/chat_reader.h"
#include "frontend/openai/openai_model.h"

namespace baton {
namespace {

constexpr char kHint[] = R"({"messages": [{"role": "user", "content": [{"type": "output"}]}]})";

absl::StatusOr<CompletionCall> ReadWithHints(std::string_view hints, std::string_view more = "") {
  const auto body = ParseJsonBody(StrCat(
      R"({"model": "plain", "messages": [{"role": "user", "content": "hello"}], "followers": )", hints, more, "}"));
  INFO(body.status());
  REQUIRE(body.ok());
  return ReadChat(*body, TestModels());
}

std::string HintsError(std::string_view hints, std::string_view more = "") {
  const auto call = ReadWithHints(hints, more);
  CHECK(absl::IsInvalidArgument(call.status()));
  return std::string(Message(call.status()));
}

// The error of a body with one prefill hint that has this message.
std::string HintMessageError(std::string_view message) {
  return HintsError(StrCat(R"([{"messages": [)", message, "]}]"));
}

TEST_CASE("A chat's prefill hints contain its own output") {
  const auto call =
      ReadWithHints(R"([{"messages": [{"role": "developer", "content": "be kind"}, {"role": "user", "content":
      [{"type": "text", "text": "a"}, {"type": "output"}]}]}, {"model": "qwen", "messages": [{"role": "assistant",
      "content": [{"type": "output"}]}], "tools": [{"type": "function", "function": {"name": "f"}}],
      "chat_template_kwargs": {"x": 1}}])");
  INFO(call.status());
  REQUIRE(call.ok());
  REQUIRE(call->prefill_hints.size() == 2);
  CHECK(call->prefill_hints[0].request.ShortDebugString() ==
        R"(model: "plain" chat { messages { role: "system" content: "be kind" } messages { role: "user" )"
        R"(parts { text: "a" } parts { output_of { } } } } sampling { max_tokens: 0 })");
  CHECK(call->prefill_hints[1].request.model() == "qwen");
  CHECK(*jinja::ToJson(call->prefill_hints[1].values.tools, -1) ==
        R"([{"type": "function", "function": {"name": "f"}}])");
  CHECK(*jinja::ToJson(call->prefill_hints[1].values.variables, -1) == R"({"x": 1})");
  // The hints do not change the chat itself.
  CHECK(call->tools == ToolFormat::kNone);
  CHECK(call->tool_names.empty());
  CHECK(call->requests[0].ShortDebugString() ==
        R"(model: "plain" chat { messages { role: "user" content: "hello" } } sampling { })");
}

TEST_CASE("An empty list of hints counts as absent") {
  for (const char* none : {"[]", "null"}) CHECK(ReadWithHints(none)->prefill_hints.empty());
}

TEST_CASE("ReadChat names the wrong field of a prefill hint") {
  CHECK(HintsError("{}") == "followers: expected a list, got an object");
  CHECK(HintsError("[1]") == "followers[0]: expected an object, got 1");
  CHECK(HintsError(StrCat("[", kHint, ", {}]")) == "followers[1].messages: expected a list of messages, got none");
  CHECK(HintsError(R"([{"messages": [], "session_id": "s"}])") ==
        "followers[0].messages: expected 1 to 16 parts of type 'output', got 0");
  CHECK(HintMessageError(R"({"role": "user", "content": [{"type": "output", "of": "x"}]})") ==
        "followers[0].messages[0].content[0].of: is not supported");
  CHECK(
      HintMessageError(R"({"role": "user", "content": [{"type": "output_of", "output_of": "x"}]})") ==
      "followers[0].messages[0].content[0].type: expected 'text' or 'output', got 'output_of', which is not supported");
  CHECK(HintMessageError(R"({"role": "nobody", "content": [{"type": "output"}]})")
            .starts_with("followers[0].messages[0].role"));
  CHECK(HintsError(R"([{"messages": [{"role": "user", "content": [{"type": "output"}]}], "cache_salt": "s"}])") ==
        "followers[0].cache_salt: is not supported");
  CHECK(HintsError(R"([{"messages": [{"role": "user", "content": [{"type": "output"}]}], "tools": [{}]}])")
            .starts_with("followers[0].tools[0].function: "));
  CHECK(HintsError(R"([{"messages": [{"role": "user", "content": [{"type": "output"}]}],
                     "tools": {}}])")
            .starts_with("followers[0].tools: "));
  const auto unknown = ReadWithHints(R"([{"model": "nobody", "messages": []}])");
  CHECK(absl::IsNotFound(unknown.status()));
  CHECK(Message(unknown.status()).starts_with("followers[0].model: "));
}

TEST_CASE("Prefill hints are few, need one choice, and are for chats only") {
  CHECK(ReadWithHints(StrCat("[", absl::StrJoin(std::vector<std::string>(4, kHint), ","), "]")).ok());
  CHECK(HintsError(StrCat("[", absl::StrJoin(std::vector<std::string>(5, kHint), ","), "]")) ==
        "followers: 5 elements, limit 4");
  const auto outputs = [](size_t count) {
    return StrCat(R"({"role": "user", "content": [)",
                  absl::StrJoin(std::vector<std::string>(count, R"({"type": "output"})"), ","), "]}");
  };
  CHECK(ReadWithHints(StrCat(R"([{"messages": [)", outputs(16), "]}]")).ok());
  CHECK(HintMessageError(outputs(17)) == "followers[0].messages: expected 1 to 16 parts of type 'output', got 17");
  CHECK(HintsError(StrCat("[", kHint, "]"), R"(, "n": 2)") == "followers: expected n = 1, got 2");
  CHECK(HintMessageError(R"({"role": "user", "content": [{"type": "output"}]}], "followers": [)") ==
        "followers[0].followers: is not supported");
}

TEST_CASE("A chat cannot refer to its own output") {
  const auto body =
      ParseJsonBody(R"({"model": "plain", "messages": [{"role": "user", "content": [{"type": "output"}]}]})");
  CHECK(Message(ReadChat(*body, TestModels()).status()) ==
        "messages[0].content[0].type: expected 'text' or 'output_of', got 'output', which is not supported");
}

}  // namespace
}  // namespace baton
