#include "text/chat_values.h"

#include "catch.h"

namespace baton {
namespace {

std::string CallsText(const char* calls) { return *jinja::ToJson(ToolCallsValue(Json::parse(calls)), -1); }

TEST_CASE("ToolCallsValue parses arguments that are a JSON object") {
  CHECK(CallsText(R"([{"id": "1", "function": {"name": "f", "arguments": "{\"y\": [1.5, null], \"x\": \"é\"}"}}])") ==
        R"([{"id": "1", "function": {"name": "f", "arguments": {"y": [1.5, null], "x": "é"}}}])");
}

TEST_CASE("ToolCallsValue keeps arguments that are not a JSON object") {
  for (const char* arguments : {R"("no JSON")", R"("[1]")", R"("")", R"({"a": 1})", "null"}) {
    const std::string call = std::string(R"([{"function": {"arguments": )") + arguments + "}}]";
    CHECK(CallsText(call.c_str()) == call);
  }
}

TEST_CASE("ToolCallsValue parses only the arguments of functions") {
  for (const char* calls : {"[]", R"([{"arguments": "{}"}])", R"([{"function": "{}"}])", R"([{"function": {}}, 3])"}) {
    CHECK(CallsText(calls) == calls);
  }
}

}  // namespace
}  // namespace baton
