#include "frontend/prompt_reader.h"

#include "base/strings.h"
#include "catch.h"
#include "model/byte_model.h"

namespace baton {
namespace {

ServedModel WithTemplate(const char* source) {
  ServedModel model = ByteModel("bytes");
  model.context = 10'000;
  model.chat_template = *ChatTemplate::Parse(source, "", "");
  return model;
}

std::string Render(const v1::Chat& chat, const char* source) {
  const auto tokens = ChatTokens(chat, WithTemplate(source), absl::UnixEpoch());
  INFO(tokens.status());
  REQUIRE(tokens.ok());
  return std::string(tokens->begin(), tokens->end());
}

std::string ChatError(const v1::Chat& chat) {
  const auto tokens = ChatTokens(chat, WithTemplate("{{ messages[0].content }}"), absl::UnixEpoch());
  CHECK(absl::IsInvalidArgument(tokens.status()));
  return std::string(Message(tokens.status()));
}

v1::Chat Hello() {
  v1::Chat chat;
  chat.add_messages()->set_role("user");
  chat.mutable_messages(0)->set_content("hi");
  return chat;
}

TEST_CASE("Tools reach the template with their members in order") {
  v1::Chat chat = Hello();
  constexpr char kTemplate[] = "{% if tools %}{% for t in tools %}{{ t | tojson }};{% endfor %}{% endif %}.";
  CHECK(Render(chat, kTemplate) == ".");
  chat.set_tools(R"([{"type":"function","function":{"name":"z","description":"a"}},{"b":1,"a":2}])");
  CHECK(Render(chat, kTemplate) ==
        R"({"type": "function", "function": {"name": "z", "description": "a"}};{"b": 1, "a": 2};.)");
}

TEST_CASE("A call's arguments are an object when they are JSON, else a string") {
  v1::Chat chat = Hello();
  chat.mutable_messages(0)->set_tool_calls(
      R"([{"id":"1","function":{"name":"f","arguments":"{\"y\": 1, \"x\": [\"é\"]}"}},)"
      R"({"function":{"name":"g","arguments":"no JSON"}},{"function":{"name":"h"}}])");
  CHECK(Render(chat,
               "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.name }}={{ c.function.arguments | "
               "default(0) | tojson }};{% endfor %}{% endfor %}") == R"(f={"y": 1, "x": ["é"]};g="no JSON";h=0;)");
}

TEST_CASE("ReadPrompt uses given values and does not parse the chat's JSON texts") {
  v1::Chat chat = Hello();
  chat.set_tools("no JSON");
  chat.set_template_kwargs("no JSON");
  chat.mutable_messages(0)->set_tool_calls("no JSON");
  const ChatValues values{.tools = jinja::Value::FromJson(Json::parse(R"([{"b": 1, "a": "é"}])")),
                          .variables = jinja::Value::FromJson(Json::parse(R"({"x": 2})")),
                          .tool_calls = {ToolCallsValue(Json::parse(R"([{"function": {"arguments": "{}"}}])"))}};
  constexpr char kTemplate[] =
      "{{ tools | tojson }}{{ x }}{% for m in messages %}{% for c in m.tool_calls %}{{ c | tojson }}{% endfor %}"
      "{% endfor %}";
  const auto tokens = ChatTokens(chat, WithTemplate(kTemplate), absl::UnixEpoch(), {}, &values);
  INFO(tokens.status());
  REQUIRE(tokens.ok());
  CHECK(std::string(tokens->begin(), tokens->end()) == R"([{"b": 1, "a": "é"}]2{"function": {"arguments": {}}})");
  CHECK(Render(Hello(), "{{ tools is none }}{{ messages[0].tool_calls is defined }}") == "TrueFalse");
}

TEST_CASE("A template without tools shows a block of text, calls and results") {
  constexpr char kTemplate[] = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
  v1::Chat chat = Hello();
  CHECK(Render(chat, kTemplate) == "<user>hi");
  chat.set_tools(R"([{"type":"function","function":{"name":"f"}}])");
  const std::string with_tools = Render(chat, kTemplate);
  INFO(with_tools);
  CHECK(with_tools.starts_with("<system>You may call functions."));
  CHECK(with_tools.find("<tools>\n{\"type\": \"function\", \"function\": {\"name\": \"f\"}}\n</tools>") !=
        std::string::npos);
  CHECK(with_tools.ends_with("<user>hi"));
  chat.clear_tools();
  v1::ChatMessage& answer = *chat.add_messages();
  answer.set_role("assistant");
  answer.set_tool_calls(R"([{"id":"1","function":{"name":"f","arguments":"{\"x\":1}"}}])");
  v1::ChatMessage& result = *chat.add_messages();
  result.set_role("tool");
  result.add_parts()->set_text("2");
  CHECK(Render(chat, kTemplate) ==
        "<user>hi<assistant><tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>"
        "<user><tool_response>\n2\n</tool_response>");
}

TEST_CASE("A message has name and tool_call_id only when they are set") {
  v1::Chat chat = Hello();
  constexpr char kTemplate[] =
      "{% for m in messages %}{% if m.name is defined %}{{ m.name }}{% endif %}{% if 'tool_calls' in m %}!{% endif %}"
      "{% if m.tool_call_id %}{{ m.tool_call_id }}{% endif %}{% if m.role == 'tool' %}={{ m.content }}{% endif %};"
      "{% endfor %}";
  chat.add_messages()->set_role("tool");
  chat.mutable_messages(1)->set_name("n");
  chat.mutable_messages(1)->set_tool_call_id("c");
  CHECK(Render(chat, kTemplate) == ";nc=;");
}

TEST_CASE("The template receives a chat's variables and reasoning") {
  v1::Chat chat = Hello();
  constexpr char kTemplate[] =
      "{{ messages[0].reasoning_content | default('-') }};{% if thinking is defined %}{{ thinking }}{% endif %}";
  CHECK(Render(chat, kTemplate) == "-;");
  chat.mutable_messages(0)->set_reasoning_content("hm");
  chat.set_template_kwargs(R"({"thinking": false})");
  CHECK(Render(chat, kTemplate) == "hm;False");
}

TEST_CASE("ReadPrompt refuses variables that are reserved or no object, by field") {
  v1::Chat chat = Hello();
  chat.set_template_kwargs("[1]");
  CHECK(ChatError(chat) == "chat.template_kwargs: expected a JSON object, got a list of 1");
  chat.set_template_kwargs("{");
  CHECK(ChatError(chat).starts_with("chat.template_kwargs: expected JSON, byte 2: "));
  chat.set_template_kwargs(R"({"tools": []})");
  CHECK(ChatError(chat) == "chat.template_kwargs.tools: a client may not set this variable");
}

TEST_CASE("ReadPrompt refuses tools and calls that are not JSON, too deep or too large") {
  v1::Chat chat = Hello();
  SECTION("the chat's tools") {
    chat.set_tools("[");
    CHECK(ChatError(chat).starts_with("chat.tools[0]: expected JSON, byte 2: "));
    chat.set_tools("{}");
    CHECK(ChatError(chat) == "chat.tools: expected a JSON array, got an object");
    chat.set_tools(std::string(65, '['));
    CHECK(ChatError(chat) == "chat.tools[0]: JSON is nested deeper than 64");
    chat.set_tools(std::string((1 << 20) + 1, ' '));
    CHECK(ChatError(chat) == "chat.tools: 1048577 bytes, limit 1048576");
  }
  SECTION("a message's tool calls") {
    chat.mutable_messages(0)->set_tool_calls("3");
    CHECK(ChatError(chat) == "chat.messages[0].tool_calls: expected a JSON array, got 3");
    for (const char* calls : {"[3]", "[{}]", R"([{"function":"f"}])"}) {
      chat.mutable_messages(0)->set_tool_calls(calls);
      CHECK(ChatError(chat) == "chat.messages[0].tool_calls[0].function: expected an object");
    }
  }
}

TEST_CASE("Text that looks like a mark never becomes a reference") {
  v1::Chat chat = Hello();
  chat.mutable_messages(0)->clear_content();
  chat.mutable_messages(0)->add_parts()->mutable_output_of()->set_request_id("up");
  const std::string fake = R"([{"a":"\ue002\ue0000\ue001"}])";  // a mark, written with JSON escapes
  const char* source =
      GENERATE("{{ tools | tojson }}{{ messages[0].content }}!", "{{ v | tojson }}{{ messages[0].content }}!",
               "{{ messages[0].reasoning_content }}{{ messages[0].content }}!");
  switch (source[3]) {
    case 't':
      chat.set_tools(fake);
      break;
    case 'v':
      chat.set_template_kwargs(StrCat("{\"v\":", fake, "}"));
      break;
    default:
      chat.mutable_messages(0)->set_reasoning_content("[{\"a\": \"\ue002\ue0000\ue001\"}]");
  }
  const ServedModel model = WithTemplate(source);
  const auto segments = ReadPrompt(chat, PromptLimit{model, 1}, absl::UnixEpoch());
  REQUIRE(segments.ok());
  REQUIRE(segments->size() == 3);
  const auto& before = std::get<std::vector<TokenId>>((*segments)[0]);
  CHECK(std::string(before.begin(), before.end()) == "[{\"a\": \"\ue002\ue0000\ue001\"}]");
  CHECK(std::get<Reference>((*segments)[1]).upstream == "up");
  const auto tokens = ChatTokens(chat, model, absl::UnixEpoch());
  CHECK(Message(tokens.status()) == "chat.messages: expected text only, got output_of");
}

}  // namespace
}  // namespace baton
