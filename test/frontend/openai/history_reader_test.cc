#include "frontend/openai/history_reader.h"

#include <string>

#include "base/status.h"
#include "base/strings.h"
#include "catch.h"
#include "frontend/openai/known_members.h"
#include "frontend/openai/openai_model.h"

namespace baton {
namespace {

struct History {
  v1::Chat chat{};
  ChatValues values{};
  MediaCounts left_out{};
  absl::Status status{};
};

// Reads messages, as the text of a JSON list.
History ReadHistory(std::string_view messages) {
  const Json list = Json::parse(messages);
  History out;
  HistoryReader reader(**TestModels().Find("plain"), /*own_output=*/false, out.chat, out.values);
  for (size_t i = 0; i < list.size() && out.status.ok(); ++i) {
    FieldReader message(list[i], ElementPath("messages", i));
    reader.Read(message);
    out.status = message.Finish();
  }
  out.left_out = reader.left_out();
  return out;
}

std::string ShowHistory(const History& history) {
  INFO(history.status);
  REQUIRE(history.status.ok());
  std::string text = history.chat.ShortDebugString();
  for (const jinja::Value& calls : history.values.tool_calls) {
    if (!calls.IsNone()) text += " calls " + *jinja::ToJson(calls, -1);
  }
  return text;
}

std::string OnlyMessage(std::string_view members) { return StrCat("[{", members, "}]"); }
std::string HistoryError(std::string_view messages) {
  return std::string(baton::Message(ReadHistory(messages).status));
}

constexpr char kAnswer[] = R"("role": "assistant", "content": "hi")";

TEST_CASE("HistoryReader ignores members that answers and clients add to a message") {
  const std::string plain = ShowHistory(ReadHistory(OnlyMessage(kAnswer)));
  CHECK(plain == R"(messages { role: "assistant" content: "hi" })");
  for (const char* members :
       {R"("refusal": null, "audio": null, "function_call": null, "tool_calls": null, "annotations": [])",
        R"("annotations": [{"type": "url_citation"}], "parsed": {"a": 1}, "tool_calls": [], "images": [])",
        R"("provider_specific_fields": {"refusal": null}, "thinking_blocks": [{"type": "thinking"}])",
        R"("reasoning": null, "reasoning_content": null, "reasoning_details": [], "id": "msg_1", "status": "done")",
        R"("cache_control": {"type": "ephemeral"}, "extra_content": {"google": {}}, "weight": 1, "prefix": false)"}) {
    CHECK(ShowHistory(ReadHistory(OnlyMessage(StrCat(kAnswer, ", ", members)))) == plain);
  }
  for (const KnownMember& member : MessageMembers()) {
    if (member.rule == KnownMember::Rule::kRead) continue;
    CHECK(ShowHistory(ReadHistory(OnlyMessage(StrCat(kAnswer, ", \"", member.name, "\": null")))) == plain);
    CHECK(ReadHistory(OnlyMessage(StrCat(kAnswer, ", \"", member.name, "\": {\"x\": 1}"))).status.ok() ==
          (member.rule == KnownMember::Rule::kIgnored));
  }
}

TEST_CASE("HistoryReader ignores members that answers and clients add to a call") {
  const auto calls = [](std::string_view call) {
    return ShowHistory(ReadHistory(OnlyMessage(StrCat(R"("role": "assistant", "tool_calls": [)", call, "]"))));
  };
  const std::string plain =
      R"(messages { role: "assistant" } calls [{"id": "c", "type": "function", "function": {"name": "f", "arguments": )"
      R"({"x": 1}}}])";
  CHECK(calls(R"({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}})") == plain);
  CHECK(calls(R"({"index": 0, "function": {"arguments": "{\"x\": 1}", "name": "f", "parsed_arguments": {"x": 1}},
                  "id": "c", "type": "function", "provider_specific_fields": {}, "extra_content": {}})") == plain);
  CHECK(calls(R"({"id": "c", "function": {"name": "f", "arguments": {"x": 1}}, "type": null, "index": null})") ==
        plain);
  for (const char* arguments : {"", R"(, "arguments": null)", R"(, "arguments": "")", R"(, "arguments": {})"}) {
    CHECK(calls(StrCat(R"({"function": {"name": "no name")", arguments, "}}")) ==
          R"(messages { role: "assistant" } calls [{"type": "function", "function": {"name": "no name", )"
          R"("arguments": {}}}])");
  }
  CHECK(calls(R"({"function": {"name": "f", "arguments": "no JSON"}})").ends_with(R"("arguments": "no JSON"}}])"));
}

TEST_CASE("HistoryReader reads a call of a function, and its result, as those of a tool") {
  CHECK(
      ShowHistory(
          ReadHistory(R"([{"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{}"}},
                        {"role": "function", "name": "f", "content": "2"}])")) ==
      R"(messages { role: "assistant" } messages { role: "tool" content: "2" name: "f" } calls [{"type": "function", )"
      R"("function": {"name": "f", "arguments": {}}}])");
  CHECK(HistoryError(OnlyMessage(R"("role": "assistant", "function_call": {"name": "f"}, "tool_calls": [{}])")) ==
        "messages[0].function_call: expected none beside tool_calls");
  CHECK(HistoryError(OnlyMessage(R"("role": "assistant", "function_call": {"arguments": "{}"})")) ==
        "messages[0].function_call.name: expected the name of a function, got none");
}

TEST_CASE("HistoryReader reads missing content of answers and results as an empty text") {
  CHECK(ShowHistory(ReadHistory(OnlyMessage(R"("role": "assistant", "content": null)"))) ==
        R"(messages { role: "assistant" })");
  CHECK(ShowHistory(ReadHistory(OnlyMessage(R"("role": "assistant")"))) == R"(messages { role: "assistant" })");
  CHECK(ShowHistory(ReadHistory(OnlyMessage(R"("role": "tool", "tool_call_id": "c", "content": null)"))) ==
        R"(messages { role: "tool" tool_call_id: "c" })");
  CHECK(ShowHistory(ReadHistory(OnlyMessage(R"("role": "function", "content": null)"))) ==
        R"(messages { role: "tool" })");
}

TEST_CASE("HistoryReader reads a refusal as text of the answer") {
  CHECK(ShowHistory(ReadHistory(OnlyMessage(R"("role": "assistant", "content": null, "refusal": "no")"))) ==
        R"(messages { role: "assistant" content: "no" })");
  CHECK(ShowHistory(
            ReadHistory(OnlyMessage(R"("role": "assistant", "content": [{"type": "refusal", "refusal": "no"}])"))) ==
        R"(messages { role: "assistant" parts { text: "no" } })");
  CHECK(ShowHistory(ReadHistory(
            OnlyMessage(R"("role": "assistant", "content": [{"type": "text", "text": "a"}], "refusal": "no")"))) ==
        R"(messages { role: "assistant" parts { text: "a" } parts { text: "no" } })");
}

TEST_CASE("HistoryReader reads parts of the texts of other APIs") {
  CHECK(ShowHistory(ReadHistory(OnlyMessage(R"("role": "user", "content": [
            {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
            {"type": "input_text", "text": "b"}, {"type": "output_text", "text": "c", "annotations": [], "logprobs": []},
            {"type": "text", "text": "d", "id": "i", "index": 0, "citations": null}])"))) ==
        R"(messages { role: "user" parts { text: "a" } parts { text: "b" } parts { text: "c" } parts { text: "d" } })");
  CHECK(ShowHistory(ReadHistory(OnlyMessage(R"("role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "redacted_thinking", "data": "d"},
            {"type": "text", "text": "a"}])"))) ==
        R"(messages { role: "assistant" parts { text: "a" } reasoning_content: "hm" })");
  CHECK(HistoryError(OnlyMessage(R"("role": "user", "content": [{"type": "thinking", "thinking": "hm"}])")) ==
        "messages[0].content[0].type: expected 'text' or 'output_of', got 'thinking', which is not supported");
}

TEST_CASE("HistoryReader refuses images, audio and files by the name of their part") {
  const std::pair<std::string, std::string> parts[] = {
      {"image_url", R"("image_url": {"url": "data:image/png;base64,aaaa", "detail": "low"})"},
      {"input_image", R"("image_url": "u")"},
      {"input_audio", R"("input_audio": {"data": "a", "format": "wav"})"},
      {"video_url", R"("video_url": {"url": "u"})"},
      {"file", R"("file": {"file_id": "f"})"},
      {"document", R"("source": {})"}};
  for (const auto& [type, members] : parts) {
    CHECK(HistoryError(
              StrCat(R"([{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text":
                             "a"}, {"type": ")",
                     type, "\", ", members, "}]}]")) ==
          StrCat("messages[1].content[1]: this model reads text, got a part of type '", type, "'"));
  }
}

TEST_CASE("HistoryReader replaces images in the results of tools by a text and counts them") {
  const History tool =
      ReadHistory(R"([{"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "see "},
      {"type": "image_url", "image_url": {"url": "u"}}, {"type": "input_audio", "input_audio": {}}]},
      {"role": "function", "content": [{"type": "input_image"}, {"type": "file"}, {"type": "video_url"}]}])");
  CHECK(ShowHistory(tool) ==
        R"(messages { role: "tool" parts { text: "see " } parts { text: "[image left out: this model reads text]" } )"
        R"(parts { text: "[audio left out: this model reads text]" } tool_call_id: "c" } messages { role: "tool" )"
        R"(parts { text: "[image left out: this model reads text]" } parts { text: "[file left out: this model reads )"
        R"(text]" } parts { text: "[video left out: this model reads text]" } })");
  CHECK(tool.left_out == MediaCounts{2, 1, 1, 1});
}

TEST_CASE("HistoryReader refuses unknown members and the members of other roles by name") {
  CHECK(HistoryError(OnlyMessage(R"("role": "user", "content": "x", "nmae": "y")")) ==
        "messages[0].nmae: is not supported");
  CHECK(HistoryError(OnlyMessage(R"("role": "user", "content": "x", "contents": "y")")) ==
        "messages[0].contents: is not supported. Did you mean 'content'?");
  CHECK(HistoryError(OnlyMessage(R"("role": "user", "content": [{"type": "text", "text": "x", "texts": "y"}])")) ==
        "messages[0].content[0].texts: is not supported. Did you mean 'text'?");
  CHECK(HistoryError(OnlyMessage(R"("role": "user", "content": "x", "tool_calls": [{}])")) ==
        "messages[0].tool_calls: is not supported for this role");
  CHECK(HistoryError(OnlyMessage(R"("role": "user", "content": "x", "tool_call_id": "c")")) ==
        "messages[0].tool_call_id: is not supported for this role");
  CHECK(
      ReadHistory(OnlyMessage(R"("role": "user", "content": "x", "tool_calls": [], "tool_call_id": "", "refusal": "")"))
          .status.ok());
  CHECK(HistoryError(OnlyMessage(R"("role": "assistant", "content": "x", "audio": {"id": "a"})")) ==
        "messages[0].audio: is not supported");
  CHECK(HistoryError(OnlyMessage(R"("role": "assistant", "content": "x", "prefix": true)")) ==
        "messages[0].prefix: is not supported");
  CHECK(HistoryError(
            OnlyMessage(R"("role": "assistant", "tool_calls": [{"type": "custom", "custom": {"name": "f"}}])")) ==
        "messages[0].tool_calls[0].type: expected 'function', got 'custom', which is not supported");
  CHECK(HistoryError(
            OnlyMessage(R"("role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": [1]}}])")) ==
        "messages[0].tool_calls[0].function.arguments: expected a string of JSON or an object, got a list of 1");
}

}  // namespace
}  // namespace baton
