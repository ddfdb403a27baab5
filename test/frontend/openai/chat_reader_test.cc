#include "frontend/openai/chat_reader.h"

#include "base/strings.h"
#include "catch.h"
#include "frontend/openai/openai_model.h"
#include "frontend/prompt_reader.h"

namespace baton {
namespace {

constexpr char kHello[] = R"("messages": [{"role": "user", "content": "hello"}])";
constexpr char kTool[] =
    R"({"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}})";

absl::StatusOr<CompletionCall> Read(std::string_view model, std::string_view fields) {
  const auto body = ParseJsonBody(StrCat(R"({"model": ")", model, "\", ", fields, "}"));
  INFO(body.status());
  REQUIRE(body.ok());
  return ReadChat(*body, TestModels());
}

CompletionCall MustRead(std::string_view fields, std::string_view model = "plain") {
  auto call = Read(model, fields);
  INFO(call.status());
  REQUIRE(call.ok());
  return *std::move(call);
}

std::string ErrorOf(std::string_view fields, std::string_view model = "plain") {
  const auto call = Read(model, fields);
  CHECK(absl::IsInvalidArgument(call.status()));
  return std::string(Message(call.status()));
}

std::string TextOf(const jinja::Value& value) { return *jinja::ToJson(value, -1); }
std::string WithHello(std::string_view fields) { return StrCat(kHello, ", ", fields); }
std::string OneMessage(std::string_view message) { return StrCat("\"messages\": [", message, "]"); }

TEST_CASE("A chat is one request with the server's default of max_tokens") {
  const CompletionCall call = MustRead(kHello);
  REQUIRE(call.requests.size() == 1);
  CHECK(call.requests[0].ShortDebugString() ==
        R"(model: "plain" chat { messages { role: "user" content: "hello" } } sampling { })");
  CHECK(call.chat);
  CHECK(call.tools == ToolFormat::kNone);
}

TEST_CASE("A chat body without messages is still a chat, also with a context") {
  CHECK(MustRead(R"("messages": [], "context_id": "trip")").requests[0].has_chat());
}

TEST_CASE("ReadChat reads roles, names, parts and references") {
  const CompletionCall call = MustRead(
      R"("messages": [{"role": "developer", "content": "be kind"}, {"role": "user", "name": "ann", "content":
         [{"type": "text", "text": "a"}, {"type": "token_ids", "token_ids": [1, 2]},
         {"type": "output_of", "output_of": "up"}, {"type": "output_of", "output_of":
         {"request_id": "up2", "on_failure": "partial"}}, {"type": "group", "group": [{"agent_name": {}},
         {"text": ": "}, {"output_of": "up3"}]}]}])");
  CHECK(
      call.requests[0].chat().ShortDebugString() ==
      R"(messages { role: "system" content: "be kind" } messages { role: "user" parts { text: "a" } parts { )"
      R"(token_ids { ids: 1 ids: 2 } } parts { output_of { request_id: "up" } } parts { output_of { request_id: "up2" on_failure: ON_FAILURE_PARTIAL } } )"
      R"(parts { group { parts { agent_name { } } parts { text: ": " } parts { output_of { request_id: "up3" } } } } )"
      R"(name: "ann" })");
}

TEST_CASE("ReadChat reads an assistant's calls and a tool's answer") {
  const CompletionCall call = MustRead(
      R"("messages": [{"role": "assistant", "content": null, "refusal": null, "audio": null, "function_call": null,
         "annotations": [], "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments":
         "{\"x\": 1}"}}]}, {"role": "tool", "tool_call_id": "call_1", "content": "2"}])",
      "qwen");
  const v1::Chat& chat = call.requests[0].chat();
  CHECK(chat.messages(0).content().empty());
  REQUIRE(call.values.tool_calls.size() == 2);
  CHECK(TextOf(call.values.tool_calls[0]) ==
        R"([{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}])");
  CHECK(call.values.tool_calls[1].IsNone());
  CHECK(chat.messages(1).tool_call_id() == "call_1");
  CHECK(chat.messages(1).content() == "2");
}

TEST_CASE("ReadChat passes on an assistant's reasoning, which replaces missing text") {
  const CompletionCall call = MustRead(
      OneMessage(R"({"role": "assistant", "content": "2", "reasoning_content": "hm"}, {"role": "assistant", "content":
                    null, "reasoning_content": "well"}, {"role": "assistant", "content": "3", "reasoning_content": null})"));
  CHECK(call.requests[0].chat().ShortDebugString() ==
        R"(messages { role: "assistant" content: "2" reasoning_content: "hm" } messages { role: "assistant" )"
        R"(reasoning_content: "well" } messages { role: "assistant" content: "3" })");
  const CompletionCall renamed = MustRead(OneMessage(R"({"role": "assistant", "content": "2", "reasoning": "hm"})"));
  CHECK(renamed.requests[0].chat().messages(0).reasoning_content() == "hm");
  CHECK(ErrorOf(OneMessage(R"({"role": "assistant", "content": "2", "reasoning_content": "a", "reasoning": "b"})")) ==
        "messages[0].reasoning: expected the same text as reasoning_content, or only one of the two");
  CHECK(ErrorOf(OneMessage(R"({"role": "user", "content": "x", "reasoning_content": "y"})")) ==
        "messages[0].reasoning_content: is not supported for this role");
}

TEST_CASE("ReadChat passes on template variables, except reserved ones") {
  const auto with = [](std::string_view variables) {
    return WithHello(StrCat("\"chat_template_kwargs\": ", variables));
  };
  CHECK(TextOf(MustRead(with(R"({"enable_thinking": false, "b": {"c": [1]}})")).values.variables) ==
        R"({"enable_thinking": false, "b": {"c": [1]}})");
  CHECK(MustRead(with("{}")).values.variables.IsNone());
  CHECK(ErrorOf(with("[]")) == "chat_template_kwargs: expected an object, got a list of 0");
  CHECK(ErrorOf(with(R"({"bos_token": "x"})")) == "chat_template_kwargs.bos_token: a client may not set this variable");
  CHECK(ErrorOf(with(StrCat("{\"x\": \"", std::string(1 << 16, 'y'), "\"}"))) ==
        "chat_template_kwargs: expected at most 65536 bytes of JSON, got 65544");
}

TEST_CASE("Both max_tokens and max_completion_tokens set the same limit") {
  CHECK(MustRead(WithHello(R"("max_tokens": 5)")).requests[0].sampling().max_tokens() == 5);
  CHECK(MustRead(WithHello(R"("max_completion_tokens": 6)")).requests[0].sampling().max_tokens() == 6);
  CHECK(ErrorOf(WithHello(R"("max_tokens": 5, "max_completion_tokens": 6)")) ==
        "max_completion_tokens: expected the same as max_tokens, 5, got 6");
}

TEST_CASE("Two fields request log probabilities") {
  CHECK(MustRead(WithHello(R"("logprobs": true)")).logprobs == 0);
  CHECK(MustRead(WithHello(R"("logprobs": true, "top_logprobs": 20)")).requests[0].sampling().logprobs() == 20);
  CHECK_FALSE(MustRead(WithHello(R"("logprobs": false, "top_logprobs": 0)")).logprobs);
  CHECK(ErrorOf(WithHello(R"("top_logprobs": 2)")) == "top_logprobs: requires logprobs: true");
  CHECK(ErrorOf(WithHello(R"("logprobs": true, "top_logprobs": 21)")) ==
        "top_logprobs: expected an integer in [0, 20], got 21");
  CHECK(ErrorOf(WithHello(R"("logprobs": 3)")) == "logprobs: expected true or false, got 3");
}

TEST_CASE("All samples of a chat share one prompt") {
  const CompletionCall call = MustRead(WithHello(R"("n": 3, "seed": 1, "timeout_ms": 10)"));
  REQUIRE(call.requests.size() == 1);
  CHECK(call.choices() == 3);
  CHECK(call.requests[0].sampling().seed() == 1);
  CHECK(call.requests[0].chat().messages(0).content() == "hello");
}

TEST_CASE("Tools reach the template unchanged when its format is supported") {
  const std::string fields = WithHello(StrCat("\"tools\": [", kTool, "]"));
  const CompletionCall call = MustRead(fields, "qwen");
  CHECK(call.tools == ToolFormat::kHermes);
  CHECK(call.tool_names == std::vector<std::string>{"f"});
  CHECK(TextOf(call.values.tools) ==
        R"([{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}])");
  CHECK(call.requests[0].chat().tools().empty());
  CHECK_FALSE(call.one_tool_call);
  CHECK(MustRead(WithHello(StrCat("\"parallel_tool_calls\": false, \"tools\": [", kTool, "]")), "qwen").one_tool_call);
  CHECK(MustRead(fields, "llama").tools == ToolFormat::kLlama);
  CHECK(MustRead(fields, "plain").tools == ToolFormat::kHermes);
  CHECK(ErrorOf(fields, "other") ==
        "tools: expected a chat template with JSON in <tool_call> (Qwen, Hermes) or with Llama 3's JSON, got another "
        "in 'other'");
}

TEST_CASE("The chat template determines the format of calls") {
  const auto format = [](const char* chat_template) { return ToolFormatOf(MarkedModel("m", chat_template)); };
  CHECK(*format("{% if tools %}<tool_call>{% endif %}") == ToolFormat::kHermes);
  CHECK(*format("{% if tools %}<|python_tag|>{% endif %}") == ToolFormat::kLlama);
  CHECK(*format("{% if tools %}{\"name\": function name, \"parameters\": dictionary of argument name{% endif %}") ==
        ToolFormat::kLlama);
  CHECK(absl::IsInvalidArgument(format("{% if tools %}<tool_call><function=f>{% endif %}").status()));
  CHECK(*format("no tools") == ToolFormat::kHermes);
  ServedModel none = MarkedModel("m", "");
  none.chat_template = nullptr;
  CHECK(absl::IsInvalidArgument(ToolFormatOf(none).status()));
}

TEST_CASE("ReadChat refuses tools and calls of more than 1 MiB by name") {
  const std::string large(1 << 20, 'x');
  CHECK(ErrorOf(WithHello(StrCat(R"("tools": [{"function": {"name": "f", "description": ")", large, "\"}}]")),
                "qwen") == "tools: 1048620 bytes, limit 1048576");
  const std::string calls =
      StrCat(R"({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": ")", large, "\"}}]}");
  CHECK(ErrorOf(OneMessage(calls), "qwen") == "messages[0].tool_calls: 1048618 bytes, limit 1048576");
}

TEST_CASE("Chats with tools use the default template when the calls of tool_use are unknown") {
  ServedModel model = MarkedModel("m", "plain");
  model.tool_template = *ChatTemplate::Parse("Action: {{ tools }}", "", "");
  CHECK(absl::IsInvalidArgument(ToolFormatOf(model).status()));
  DropUnknownToolTemplate(model);
  CHECK(model.TemplateFor(/*tools=*/true) == model.chat_template.get());
  CHECK(*ToolFormatOf(model) == ToolFormat::kHermes);
  model.tool_template = *ChatTemplate::Parse(kLlamaTemplate, "", "");
  DropUnknownToolTemplate(model);
  CHECK(*ToolFormatOf(model) == ToolFormat::kLlama);
}

TEST_CASE("A template of its own renders chats with tools and chooses the format of calls") {
  ServedModel model = MarkedModel("m", "plain");
  model.tool_template = *ChatTemplate::Parse(StrCat("tools:", kLlamaTemplate), "", "");
  CHECK(*ToolFormatOf(model) == ToolFormat::kLlama);
  const auto rendered = [&](const char* tools) {
    v1::Chat chat;
    chat.add_messages()->set_role("user");
    chat.set_tools(tools);
    const std::vector<TokenId> ids = *ChatTokens(chat, model, absl::UnixEpoch());
    return std::string(ids.begin(), ids.end());
  };
  CHECK(rendered("") == "plain");
  CHECK(rendered("[]") == "plain");
  CHECK(rendered(R"([{"a": 1}])") == R"(tools:[{"a": 1}]<|python_tag|>)");
}

TEST_CASE("ReadChat hides tools from the model when tool_choice is none") {
  const CompletionCall call =
      MustRead(WithHello(StrCat("\"tools\": [", kTool, "], \"tool_choice\": \"none\"")), "qwen");
  CHECK(call.tools == ToolFormat::kNone);
  CHECK(call.values.tools.IsNone());
  CHECK(MustRead(WithHello("\"tools\": [], \"tool_choice\": \"auto\"")).tools == ToolFormat::kNone);
}

TEST_CASE("ReadChat reads functions as tools whose answers have the older form") {
  const std::string functions = R"("functions": [{"name": "f", "description": "d", "parameters": {"type": "object"}}])";
  const CompletionCall call = MustRead(WithHello(functions), "qwen");
  CHECK(call.tools == ToolFormat::kHermes);
  CHECK(call.tool_names == std::vector<std::string>{"f"});
  CHECK(call.legacy_calls);
  CHECK(call.one_tool_call);
  const CompletionCall as_tools = MustRead(WithHello(StrCat("\"tools\": [", kTool, "]")), "qwen");
  CHECK(TextOf(call.values.tools) == TextOf(as_tools.values.tools));
  CHECK_FALSE(as_tools.legacy_calls);
  const CompletionCall hidden = MustRead(WithHello(StrCat(functions, R"(, "function_call": "none")")), "qwen");
  CHECK(hidden.tools == ToolFormat::kNone);
  CHECK(hidden.values.tools.IsNone());
  CHECK(MustRead(WithHello(R"("functions": [], "function_call": "none")")).tools == ToolFormat::kNone);
}

TEST_CASE("ReadChat keeps the schema of strict tools") {
  const CompletionCall call = MustRead(
      WithHello(R"("tools": [{"type": "function", "cache_control": {"type": "ephemeral"}, "function": {"name": "f",
                   "strict": true, "parameters": {"required": ["x"]}}}, {"function": {"name": "g", "strict": false}}])"),
      "qwen");
  REQUIRE(call.strict_tools.size() == 1);
  CHECK(call.strict_tools[0].name == "f");
  CHECK(call.strict_tools[0].schema.Accepts("{\"x\": 1}"));
  CHECK_FALSE(call.strict_tools[0].schema.Accepts("{}"));
  CHECK(TextOf(call.values.tools) ==
        R"([{"type": "function", "function": {"name": "f", "strict": true, "parameters": {"required": ["x"]}}}, )"
        R"({"function": {"name": "g", "strict": false}}])");
}

TEST_CASE("ReadChat passes on whether the prompt begins an answer") {
  CHECK(MustRead(kHello).values.add_generation_prompt);
  CHECK_FALSE(MustRead(WithHello(R"("add_generation_prompt": false)")).values.add_generation_prompt);
}

TEST_CASE("ReadChat refuses unsupported fields of tools by name") {
  const auto with = [](std::string_view tool) { return WithHello(StrCat("\"tools\": [", tool, "]")); };
  CHECK(ErrorOf(with(R"({"type": "custom"})"), "qwen") ==
        "tools[0].type: expected 'function', got 'custom', which is not supported");
  CHECK(ErrorOf(with(R"({"type": "function"})"), "qwen") == "tools[0].function: expected an object, got none");
  CHECK(ErrorOf(with(R"({"function": {"name": "a b"}})"), "qwen") ==
        "tools[0].function.name: expected 1 to 64 letters, digits and \"_-.\", got 'a b'");
  CHECK(ErrorOf(with(R"({"function": {"name": "f", "strict": 1}})"), "qwen") ==
        "tools[0].function.strict: expected true or false, got 1");
  CHECK(ErrorOf(with(R"({"function": {"name": "f", "parameters": []}})"), "qwen") ==
        "tools[0].function.parameters: expected an object, got a list of 0");
  CHECK(ErrorOf(WithHello(R"("tool_choice": "required")"), "qwen") ==
        "tool_choice: expected 'auto' or 'none', got 'required', which is not supported");
  CHECK(ErrorOf(WithHello(R"("tool_choice": {"type": "function", "function": {"name": "f"}})"), "qwen") ==
        "tool_choice.type: is not supported: tools cannot be forced or selected");
  CHECK(ErrorOf(WithHello(R"("tool_choice": {})"), "qwen") ==
        "tool_choice: expected 'auto' or 'none', got an object, which is not supported");
  CHECK(ErrorOf(WithHello(R"("parallel_tool_calls": "no")")) ==
        "parallel_tool_calls: expected true or false, got 'no'");
  CHECK(ErrorOf(WithHello(R"("functions": [{}])")) ==
        "functions[0].name: expected 1 to 64 letters, digits and \"_-.\", got none");
  CHECK(ErrorOf(WithHello(R"("functions": [3])")) == "functions[0]: expected an object, got 3");
  CHECK(ErrorOf(WithHello(R"("functions": [{"name": "f"}], "tools": [{"function": {"name": "f"}}])"), "qwen") ==
        "functions: expected none beside tools");
  CHECK(ErrorOf(WithHello(R"("functions": [{"name": "f"}], "function_call": {"name": "f"})"), "qwen") ==
        "function_call.name: is not supported: tools cannot be forced or selected");
}

TEST_CASE("ReadChat refuses fields of other kinds of answer unless they have no effect") {
  CHECK(ErrorOf(WithHello(R"("modalities": ["audio"])")) ==
        R"(modalities: expected ["text"], got a list of 1, which is not supported)");
  CHECK(ErrorOf(WithHello(R"("audio": {"voice": "v"})")) == "audio: is not supported: this server writes text");
  CHECK(ErrorOf(WithHello(R"("prediction": {})")) == "prediction: is not supported");
  CHECK(ErrorOf(WithHello(R"("echo": true)")) == "echo: expected false, got true, which is not supported");
  CHECK(ErrorOf(WithHello(R"("prompt": "x")")) == "prompt: is not supported");
  CHECK(MustRead(WithHello(R"("modalities": ["text"], "verbosity": "medium", "parallel_tool_calls": true,
                              "prompt_cache_key": "k", "safety_identifier": "me", "audio": null)"))
            .requests.size() == 1);
}

TEST_CASE("ReadChat refuses a wrong message by field") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("n": 1)", "messages: expected a list of messages, got none"},
      {R"("messages": "hi")", "messages: expected a list, got 'hi'"},
      {OneMessage("3"), "messages[0]: expected an object, got 3"},
      {OneMessage("{}"),
       "messages[0].role: expected 'system', 'developer', 'user', 'assistant', 'tool' or 'function', got none"},
      {OneMessage(R"({"role": "robot", "content": "x"})"),
       "messages[0].role: expected 'system', 'developer', 'user', 'assistant', 'tool' or 'function', got 'robot'"},
      {OneMessage(R"({"role": "user"})"), "messages[0].content: expected a string or a list of parts, got none"},
      {OneMessage(R"({"role": "user", "content": 3})"),
       "messages[0].content: expected a string or a list of parts, got 3"},
      {OneMessage(R"({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]})"),
       "messages[0].content[0]: this model reads text, got a part of type 'image_url'"},
      {OneMessage(R"({"role": "user", "content": [{"type": "text"}]})"),
       "messages[0].content[0].text: expected a string, got none"},
      {OneMessage(R"({"role": "user", "content": [{"type": "text", "text": "x", "cache": 1}]})"),
       "messages[0].content[0].cache: is not supported"},
      {OneMessage(R"({"role": "tool", "content": "x"})"),
       "messages[0].tool_call_id: expected the id of the call that it answers, got none"},
      {OneMessage(R"({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 3}}]})"),
       "messages[0].tool_calls[0].function.arguments: expected a string of JSON or an object, got 3"},
      {OneMessage(R"({"role": "assistant", "content": "x", "audio": {"id": "a"}})"),
       "messages[0].audio: is not supported"},
  };
  for (const auto& [fields, error] : cases) CHECK(ErrorOf(fields) == error);
}

}  // namespace
}  // namespace baton
