// The values of chat templates: the subset of Python's values that templates use.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace baton::jinja {

struct Macro;
class Value;

using List = std::vector<Value>;
// A dict in insertion order, as in Python. Dicts of templates are small, so a look-up is a scan.
using Dict = std::vector<std::pair<std::string, Value>>;

struct Undefined {
  std::string name;  // the name of the missing variable or attribute, for messages
};
struct None {};
// The result of namespace(...). It is the only value whose attributes a template may set.
struct Namespace {
  std::shared_ptr<Dict> values;
};

// A function of the template language, as in "strftime_now is defined".
struct Function {
  std::string name;
};

// A value. Copies are cheap, because lists and dicts are shared and immutable.
class Value {
 public:
  using Variant = std::variant<Undefined, None, bool, int64_t, double, std::string, std::shared_ptr<const List>,
                               std::shared_ptr<const Dict>, Namespace, Function, const Macro*>;

  Value() : data_(Undefined{}) {}
  template <typename T>
  requires std::constructible_from<Variant, T> Value(T value)
      : data_(std::move(value)) {}  // NOLINT: implicit, as literals are
  Value(const char* text) : data_(std::string(text)) {}
  static Value MakeList(List items) { return std::make_shared<const List>(std::move(items)); }
  static Value MakeDict(Dict items) { return std::make_shared<const Dict>(std::move(items)); }
  static Value FromJson(const nlohmann::ordered_json& json);

  template <typename T>
  const T* As() const {
    return std::get_if<T>(&data_);
  }
  const List* AsList() const;
  const Dict* AsDict() const;
  bool IsUndefined() const { return As<Undefined>() != nullptr; }
  bool IsNone() const { return As<None>() != nullptr; }
  bool IsNumber() const { return As<int64_t>() || As<double>() || As<bool>(); }
  double ToDouble() const;            // REQUIRES: IsNumber()
  std::string_view TypeName() const;  // Python's name of the type, for messages
  bool Truthy() const;
  std::string ToText() const;  // Python's str()
  std::string Repr() const;    // Python's repr()

  friend bool operator==(const Value& a, const Value& b);  // Python's ==: 1 == 1.0 == True

 private:
  Variant data_;
};

// Returns null if `dict` has no such key.
const Value* Find(const Dict& dict, std::string_view key);

// Returns json.dumps(value, ensure_ascii=False, indent=indent) of Python. If `indent` is negative,
// the result is one line. Fails if the value contains undefined.
absl::StatusOr<std::string> ToJson(const Value& value, int indent);

// Returns the code points of a UTF-8 text, by which Python indexes it. Each byte that is not UTF-8
// counts as one code point.
std::vector<std::string_view> CodePoints(std::string_view text);

}  // namespace baton::jinja
