#include "frontend/openai/argument_schema.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace baton {
namespace {

struct TypeName {
  std::string_view name;
  uint8_t bit;
};

constexpr TypeName kTypeNames[] = {{"string", 1}, {"integer", 2}, {"number", 2 | 4}, {"boolean", 8},
                                   {"null", 16},  {"array", 32},  {"object", 64}};
constexpr uint8_t kAnyType = 127;

uint8_t TypeNamed(const Json& name) {
  for (const TypeName& type : kTypeNames) {
    if (name == type.name) return type.bit;
  }
  return 0;
}

// Returns the type of a value. A number without a fraction is an integer.
uint8_t TypeOf(const Json& value) {
  if (value.is_number_float()) {
    const double number = value.get<double>();
    return std::trunc(number) == number ? 2 : 4;
  }
  return TypeNamed(value.is_number() ? "integer" : value.type_name());
}

// Returns a member of an object, or null.
const Json* Member(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

}  // namespace

ArgumentSchema::Types ArgumentSchema::TypesOf(const Json& type) {
  if (!type.is_array()) return TypeNamed(type);
  Types types = 0;
  for (const Json& name : type) types |= TypeNamed(name);
  return types;
}

ArgumentSchema::ArgumentSchema(const Json& parameters) {
  const Json* required = Member(parameters, "required");
  const Json* properties = Member(parameters, "properties");
  for (const Json* list : {required, properties}) {
    if (list != nullptr && list->size() > kMostMembers) return;
  }
  if (required != nullptr && required->is_array()) {
    for (const Json& name : *required) {
      if (name.is_string()) required_.push_back(name.get<std::string>());
    }
  }
  if (properties != nullptr && properties->is_object()) {
    for (const auto& [name, schema] : properties->items()) {
      const Json* type = Member(schema, "type");
      const Types types = type == nullptr ? kAnyType : TypesOf(*type);
      members_[name] = types == 0 ? kAnyType : types;  // names of no type are ignored
    }
  }
  const Json* additional = Member(parameters, "additionalProperties");
  closed_ = additional != nullptr && *additional == false;
}

bool ArgumentSchema::AcceptsMember(const std::string& name, const Json& value) const {
  const auto known = members_.find(name);
  return known == members_.end() ? !closed_ : (TypeOf(value) & known->second) != 0;
}

bool ArgumentSchema::Accepts(std::string_view arguments) const {
  const absl::StatusOr<Json> object = ParseJson(arguments, "arguments");
  if (!object.ok() || !object->is_object()) return false;
  for (const auto& [name, value] : object->items()) {
    if (!AcceptsMember(name, value)) return false;
  }
  return std::ranges::all_of(required_, [&](const std::string& name) { return object->contains(name); });
}

}  // namespace baton
