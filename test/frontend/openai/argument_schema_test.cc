#include "frontend/openai/argument_schema.h"

#include "base/strings.h"
#include "catch.h"

namespace baton {
namespace {

bool Accepts(const char* schema, const char* arguments) {
  return ArgumentSchema(Json::parse(schema)).Accepts(arguments);
}

TEST_CASE("ArgumentSchema accepts objects with the required members and right types") {
  constexpr char kSchema[] = R"({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type":
      "integer"}, "rate": {"type": "number"}, "unit": {"type": ["string", "null"]}, "any": {"enum": [1]}},
      "required": ["city", "unit"], "additionalProperties": false})";
  CHECK(Accepts(kSchema, R"({"city": "Rome", "unit": null})"));
  CHECK(Accepts(kSchema, R"({"city": "Rome", "unit": "C", "days": 2, "rate": 2, "any": []})"));
  CHECK(Accepts(kSchema, R"({"city": "Rome", "unit": "C", "days": 2.0, "rate": 2.5})"));
  CHECK_FALSE(Accepts(kSchema, R"({"city": "Rome"})"));
  CHECK_FALSE(Accepts(kSchema, R"({"city": 3, "unit": null})"));
  CHECK_FALSE(Accepts(kSchema, R"({"city": "Rome", "unit": false})"));
  CHECK_FALSE(Accepts(kSchema, R"({"city": "Rome", "unit": null, "days": 2.5})"));
  CHECK_FALSE(Accepts(kSchema, R"({"city": "Rome", "unit": null, "days": true})"));
  CHECK_FALSE(Accepts(kSchema, R"({"city": "Rome", "unit": null, "town": "x"})"));
  CHECK_FALSE(Accepts(kSchema, R"(["city", "unit"])"));
  CHECK_FALSE(Accepts(kSchema, R"({"city": "Rome", "unit": null)"));
}

TEST_CASE("ArgumentSchema ignores keywords that it does not have") {
  for (const char* schema : {"null", "{}", "[]", "3", R"({"properties": []})", R"({"required": {}})",
                             R"({"required": [1]})", R"({"additionalProperties": {}})", R"({"properties": {"x": 1}})",
                             R"({"properties": {"x": {"type": 7}}})", R"({"properties": {"x": {"type": "date"}}})"}) {
    INFO(schema);
    CHECK(Accepts(schema, R"({"x": 1})"));
    CHECK_FALSE(Accepts(schema, "[]"));
    CHECK_FALSE(Accepts(schema, ""));
  }
}

TEST_CASE("ArgumentSchema ignores the members of a schema that has very many") {
  const auto with = [](int members) {
    Json required = Json::array();
    for (int i = 0; i < members; ++i) required.push_back(StrCat("m", i));
    return ArgumentSchema(Json({{"required", required}}));
  };
  CHECK_FALSE(with(128).Accepts("{}"));
  CHECK(with(129).Accepts("{}"));
}

}  // namespace
}  // namespace baton
