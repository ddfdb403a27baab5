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
  CHECK(ErrorOf("{\"a\": nope}") == "a: expected JSON, byte 8: syntax error while parsing value - invalid literal");
  CHECK(ErrorOf("{} {}").starts_with("body: expected JSON, byte 4: syntax error while parsing value"));
  CHECK(ErrorOf("{\"a\": NaN}").starts_with("a: expected JSON, byte 7"));
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
  CHECK(ErrorOf("{\"a\": 18446744073709551616}") == "a: expected an integer of 64 bits, got 18446744073709551616");
  CHECK(ErrorOf("{\"a\": -9223372036854775809}") == "a: expected an integer of 64 bits, got -9223372036854775809");
  CHECK(ErrorOf("{\"a\": 1e999}").find("byte 11: number overflow") != std::string::npos);
}

TEST_CASE("ParseJsonBody names the member at fault, or a value around it") {
  const auto path_of = [](const std::string& text) {
    const std::string error = ErrorOf(text);
    return error.substr(0, error.find(": "));
  };
  // A lone surrogate, in each place that a value or a name may have.
  constexpr std::string_view kBad = R"("\ud800")";
  CHECK(path_of(StrCat(R"({"a": 1, "b": )", kBad, "}")) == "b");
  CHECK(path_of(StrCat(R"({"a": [[], {"b": [1, 2, )", kBad, "]}]}")) == "a[1].b[2]");
  CHECK(path_of(StrCat(R"({"a": [{"b": 1}, )", kBad, "]}")) == "a[1]");
  CHECK(path_of(StrCat(R"({"a": {"b": {"c": 1}}, "d": )", kBad, "}")) == "d");
  CHECK(path_of(StrCat("{", kBad, ": 1}")) == "body");
  CHECK(path_of(StrCat(R"({"a": 1, )", kBad, ": 1}")) == "body");
  CHECK(path_of(StrCat(R"({"a": {"b": 1, )", kBad, ": 1}}")) == "a");
  CHECK(path_of(StrCat(R"({"a": 1} )", kBad)) == "body");
  CHECK(path_of(R"({"a": 1 "b": 2})") == "body");
  // Names that `param` cannot have, and the limit of levels.
  for (const std::string& name : {std::string(), std::string("x y"), std::string("x.y"), std::string("\u00e9"),
                                  std::string("\\u0000"), std::string(65, 'x')}) {
    INFO(name);
    CHECK(path_of(StrCat(R"({"a": {")", name, R"(": {"b": )", kBad, "}}}")) == "a");
    CHECK(path_of(StrCat("{\"", name, "\": ", kBad, "}")) == "body");
  }
  CHECK(path_of(StrCat("{\"", std::string(64, 'x'), "\": ", kBad, "}")) == std::string(64, 'x'));
  CHECK(path_of(StrCat(R"({"a": )", std::string(60, '['), kBad)) == "a[0][0][0][0][0][0][0]");
}

TEST_CASE("ParseJson begins the path of an error with the field") {
  const auto error_of = [](std::string_view text) {
    return std::string(Message(ParseJson(text, "chat.tools").status()));
  };
  CHECK(error_of("[{\"a\": 18446744073709551616}]") ==
        "chat.tools[0].a: expected an integer of 64 bits, got 18446744073709551616");
  CHECK(error_of("").starts_with("chat.tools: expected JSON, byte 1: "));
}

TEST_CASE("ParseJsonBody refuses an object with two members of one name") {
  CHECK(ErrorOf(R"({"a": 1, "b": {"a": 2}, "a": 3})") == "a: expected one member 'a', got two");
  CHECK(ErrorOf(R"({"b": [{"a": 1, "a": 2}]})") == "b[0].a: expected one member 'a', got two");
}

TEST_CASE("ParseJsonBody limits depth and size without recursion") {
  CHECK(ParseJsonBody(Nested(kMaxJsonDepth)).ok());
  CHECK(ErrorOf(Nested(kMaxJsonDepth + 1)) == "a: JSON is nested deeper than 64");
  CHECK(ErrorOf(StrCat("{\"a\":", std::string(8 << 20, '['))) == "a: JSON is nested deeper than 64");
  std::string wide = "{";
  for (size_t i = 0; i <= kMaxJsonMembers; ++i) wide += StrCat(i > 0 ? "," : "", "\"", i, "\":0");
  CHECK(ErrorOf(wide + "}") == "body: expected at most 4096 members, got more");
  CHECK(ErrorOf(StrCat("{\"a\": ", wide, "}}")) == "a: expected at most 4096 members, got more");
  std::string many = "{\"a\":[0";
  for (size_t i = 0; i < kMaxJsonValues; ++i) many += ",0";
  CHECK(ErrorOf(many + "]}") == "body: more than 2097152 JSON values");
}

}  // namespace
}  // namespace baton
