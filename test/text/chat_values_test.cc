#include "text/chat_values.h"

#include "catch.h"

namespace baton {
namespace {

std::string CallsText(const char* calls) { return *jinja::ToJson(ToolCallsValue(Json::parse(calls)), -1); }

TEST_CASE("the arguments of a call are the object that their JSON is") {
  CHECK(CallsText(R"([{"id": "1", "function": {"name": "f", "arguments": "{\"y\": [1.5, null], \"x\": \"é\"}"}}])") ==
        R"([{"id": "1", "function": {"name": "f", "arguments": {"y": [1.5, null], "x": "é"}}}])");
}

TEST_CASE("arguments that are no object of JSON stay as they are") {
  for (const char* arguments : {R"("no JSON")", R"("[1]")", R"("")", R"({"a": 1})", "null"}) {
    const std::string call = std::string(R"([{"function": {"arguments": )") + arguments + "}}]";
    CHECK(CallsText(call.c_str()) == call);
  }
}

TEST_CASE("only the arguments of a function are looked at") {
  for (const char* calls : {"[]", R"([{"arguments": "{}"}])", R"([{"function": "{}"}])", R"([{"function": {}}, 3])"}) {
    CHECK(CallsText(calls) == calls);
  }
}

}  // namespace
}  // namespace baton
