#include "frontend/openai/json_text.h"

#include <cmath>

#include "base/json/json_body.h"
#include "catch.h"

namespace baton {
namespace {

TEST_CASE("JSON text reads back unchanged") {
  CHECK(JsonString("a \"b\" \\ / \n\r\t\b\x01\x1f\x7f") == "\"a \\\"b\\\" \\\\ / \\n\\r\\t\\u0008\\u0001\\u001f\x7f\"");
  std::string all;
  for (char c = 0; c >= 0; ++c) {
    all += c;
    if (c == 127) break;
  }
  all += "\u00e9\u20ac\U0001d11e\u2028";
  const auto back = ParseJson(JsonString(all), "text");
  REQUIRE(back.ok());
  CHECK(back->get<std::string>() == all);
}

TEST_CASE("JsonString replaces each maximal subpart of invalid UTF-8 once") {
  CHECK(JsonString("a\xff"
                   "b\xe2\x82"
                   "c\xe2\x82") == "\"a\uFFFDb\uFFFDc\uFFFD\"");
  CHECK(JsonString("\xed\xa0\x80").find('\xed') == std::string::npos);  // a surrogate
  CHECK(ParseJson(JsonString("\xc0\x80\xf5\xf0\x9f"), "text").ok());
}

TEST_CASE("Log probabilities are JSON numbers") {
  const auto text = [](float value) {
    std::string out;
    AppendLogprob(out, value);
    return out;
  };
  CHECK(text(-0.1f) == "-0.1");
  CHECK(text(0) == "0");
  CHECK(text(-1e-7f) == "-1e-07");
  CHECK(text(-INFINITY) == "-9999");
  CHECK(text(NAN) == "-9999");
}

}  // namespace
}  // namespace baton
