#include "base/json/json_body.h"

#include "base/strings.h"
#include "catch.h"

namespace baton {
namespace {

std::string ErrorOf(std::string_view text) {
  const auto parsed = ParseJsonBody(text);
  CHECK(absl::IsInvalidArgument(parsed.status()));
  return std::string(Message(parsed.status()));
}

std::string Nested(size_t depth) {
  return StrCat("{\"a\":", std::string(depth - 1, '['), std::string(depth - 1, ']'), "}");
}

TEST_CASE("ParseJsonBody returns members in their order") {
  const auto body = ParseJsonBody(R"( {"b": [1, -2, 2.5, true, null, "\u00e9\n"], "a": {"c": 18446744073709551615}} )");
  REQUIRE(body.ok());
  CHECK(body->dump() == "{\"b\":[1,-2,2.5,true,null,\"\u00e9\\n\"],\"a\":{\"c\":18446744073709551615}}");
}

TEST_CASE("JsonBytes returns the number of bytes of a value's JSON text") {
  for (const char* text :
       {R"({})", R"([])", R"({"a": []})", R"({"a": {"b": [1, -2.5, 1e300, true, null]}, "c": [[], 2]})",
        R"({"\u00e9\u0001\"": "\\ \n\t\b\f\r\u000b\u001f\u007f /\ud83d\ude00"})"}) {
    const auto value = ParseJson(text, "f");
    INFO(text);
    REQUIRE(value.ok());
    CHECK(JsonBytes(*value) == value->dump().size());
  }
}

TEST_CASE("ParseJsonBody refuses text that is not JSON with position and reason") {
  CHECK(ErrorOf("") ==
        "body: expected JSON, byte 1: syntax error while parsing value - unexpected end of input; expected "
        "'[', '{', or a literal");
  CHECK(ErrorOf("{\"a\": nope}") == "body: expected JSON, byte 8: syntax error while parsing value - invalid literal");
  CHECK(ErrorOf("{} {}").starts_with("body: expected JSON, byte 4: syntax error while parsing value"));
  CHECK(ErrorOf("{\"a\": NaN}").starts_with("body: expected JSON, byte 7"));
  CHECK(ErrorOf("{\"a\": \"\xff\"}").find("ill-formed UTF-8 byte") != std::string::npos);
  CHECK(ErrorOf("{\"a\": \"\\ud800\"}").find("surrogate") != std::string::npos);
  CHECK(ErrorOf("{\"a\": 1").find("unexpected end of input") != std::string::npos);
  // The error does not repeat a long text.
  CHECK(ErrorOf(StrCat("{\"a\": \"", std::string(1 << 20, 'x'))).size() < 300);
}

TEST_CASE("ParseJsonBody refuses a body that is not an object") {
  CHECK(ErrorOf("[1]") == "body: expected a JSON object, got a list of 1");
  CHECK(ErrorOf("\"text\"") == "body: expected a JSON object, got 'text'");
  CHECK(ErrorOf("null") == "body: expected a JSON object, got null");
}

TEST_CASE("ParseJsonBody refuses numbers that no type holds") {
  CHECK(ErrorOf("{\"a\": 18446744073709551616}") == "body: expected integers of 64 bits, got 18446744073709551616");
  CHECK(ErrorOf("{\"a\": -9223372036854775809}") == "body: expected integers of 64 bits, got -9223372036854775809");
  CHECK(ErrorOf("{\"a\": 1e999}").find("byte 11: number overflow") != std::string::npos);
}

TEST_CASE("ParseJsonBody refuses an object with two members of one name") {
  CHECK(ErrorOf(R"({"a": 1, "b": {"a": 2}, "a": 3})") == "body: an object has two members 'a'");
}

TEST_CASE("ParseJsonBody limits depth and size without recursion") {
  CHECK(ParseJsonBody(Nested(kMaxJsonDepth)).ok());
  CHECK(ErrorOf(Nested(kMaxJsonDepth + 1)) == "body: JSON is nested deeper than 64");
  CHECK(ErrorOf(StrCat("{\"a\":", std::string(8 << 20, '['))) == "body: JSON is nested deeper than 64");
  std::string wide = "{";
  for (size_t i = 0; i <= kMaxJsonMembers; ++i) wide += StrCat(i > 0 ? "," : "", "\"", i, "\":0");
  CHECK(ErrorOf(wide + "}") == "body: an object has more than 4096 members");
  std::string many = "{\"a\":[0";
  for (size_t i = 0; i < kMaxJsonValues; ++i) many += ",0";
  CHECK(ErrorOf(many + "]}") == "body: more than 2097152 JSON values");
}

}  // namespace
}  // namespace baton
