#include "text/jinja/value.h"

#include <charconv>
#include <cmath>

#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status.h"
#include "base/strings.h"

namespace baton::jinja {
namespace {

// Returns Python's repr(float): the shortest text that parses to the same value, with a point or an
// exponent.
std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  const double magnitude = std::abs(value);
  const bool exponent = magnitude != 0 && (magnitude < 1e-4 || magnitude >= 1e16);
  char buffer[400];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value,
                                 exponent ? std::chars_format::scientific : std::chars_format::fixed);
  std::string text(buffer, end.ptr);
  if (!exponent && text.find('.') == std::string::npos) text += ".0";
  return text;
}

void AppendEscaped(std::string_view text, std::string* out) {
  out->push_back('"');
  for (const char c : text) {
    switch (c) {
      case '"':
        *out += "\\\"";
        break;
      case '\\':
        *out += "\\\\";
        break;
      case '\n':
        *out += "\\n";
        break;
      case '\r':
        *out += "\\r";
        break;
      case '\t':
        *out += "\\t";
        break;
      case '\b':
        *out += "\\b";
        break;
      case '\f':
        *out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          absl::StrAppendFormat(out, "\\u%04x", static_cast<unsigned>(c));
        } else {
          out->push_back(c);
        }
    }
  }
  out->push_back('"');
}

std::string QuotedRepr(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    if (c == quote || c == '\\') out.push_back('\\');
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else {
      out.push_back(c);
    }
  }
  out.push_back(quote);
  return out;
}

class JsonWriter {
 public:
  explicit JsonWriter(int indent) : indent_(indent) {}

  absl::Status Write(const Value& value, int depth) {
    if (value.IsNone()) {
      out_ += "null";
    } else if (const bool* b = value.As<bool>()) {
      out_ += *b ? "true" : "false";
    } else if (const std::string* s = value.As<std::string>()) {
      AppendEscaped(*s, &out_);
    } else if (value.IsNumber()) {
      out_ += value.ToText();
    } else if (const List* list = value.AsList()) {
      return WriteItems('[', ']', list->size(), depth, [&](size_t i) { return Write((*list)[i], depth + 1); });
    } else if (const Dict* dict = value.AsDict()) {
      return WriteItems('{', '}', dict->size(), depth, [&](size_t i) {
        AppendEscaped((*dict)[i].first, &out_);
        out_ += ": ";
        return Write((*dict)[i].second, depth + 1);
      });
    } else {
      return absl::InvalidArgumentError(StrCat("tojson: cannot write a value of type ", value.TypeName()));
    }
    return absl::OkStatus();
  }
  std::string Take() { return std::move(out_); }

 private:
  template <typename WriteItem>
  absl::Status WriteItems(char open, char close, size_t size, int depth, WriteItem write_item) {
    out_.push_back(open);
    for (size_t i = 0; i < size; ++i) {
      if (i > 0) out_ += indent_ < 0 ? ", " : ",";
      NewLine(depth + 1);
      RETURN_IF_ERROR(write_item(i));
    }
    if (size > 0) NewLine(depth);
    out_.push_back(close);
    return absl::OkStatus();
  }
  void NewLine(int depth) {
    if (indent_ < 0) return;
    out_.push_back('\n');
    out_.append(static_cast<size_t>(indent_) * depth, ' ');
  }

  const int indent_;
  std::string out_;
};

}  // namespace

Value Value::FromJson(const nlohmann::ordered_json& json) {
  switch (json.type()) {
    case nlohmann::json::value_t::boolean:
      return json.get<bool>();
    case nlohmann::json::value_t::number_integer:
    case nlohmann::json::value_t::number_unsigned:
      return json.get<int64_t>();
    case nlohmann::json::value_t::number_float:
      return json.get<double>();
    case nlohmann::json::value_t::string:
      return json.get<std::string>();
    case nlohmann::json::value_t::array: {
      List list;
      for (const auto& item : json) list.push_back(FromJson(item));
      return MakeList(std::move(list));
    }
    case nlohmann::json::value_t::object: {
      Dict dict;
      for (const auto& [key, item] : json.items()) dict.emplace_back(key, FromJson(item));
      return MakeDict(std::move(dict));
    }
    default:
      return None{};
  }
}

const List* Value::AsList() const {
  const auto* list = As<std::shared_ptr<const List>>();
  return list ? list->get() : nullptr;
}

const Dict* Value::AsDict() const {
  if (const auto* space = As<Namespace>()) return space->values.get();
  const auto* dict = As<std::shared_ptr<const Dict>>();
  return dict ? dict->get() : nullptr;
}

double Value::ToDouble() const {
  if (const auto* i = As<int64_t>()) return static_cast<double>(*i);
  if (const auto* b = As<bool>()) return *b ? 1 : 0;
  const auto* d = As<double>();
  BATON_CHECK(d != nullptr, "ToDouble of a value that is not a number");
  return *d;
}

std::string_view Value::TypeName() const {
  static constexpr std::string_view kNames[] = {"undefined", "none", "bool",      "int",      "float", "str",
                                                "list",      "dict", "namespace", "function", "macro"};
  static_assert(std::size(kNames) == std::variant_size_v<Variant>);
  return kNames[data_.index()];
}

bool Value::Truthy() const {
  if (IsUndefined() || IsNone()) return false;
  if (IsNumber()) return ToDouble() != 0;
  if (const auto* s = As<std::string>()) return !s->empty();
  if (const List* list = AsList()) return !list->empty();
  if (As<Namespace>()) return true;
  if (const Dict* dict = AsDict()) return !dict->empty();
  return true;
}

std::string Value::ToText() const {
  if (IsUndefined()) return "";
  if (const auto* s = As<std::string>()) return *s;
  return Repr();
}

std::string Value::Repr() const {
  if (IsUndefined()) return "Undefined";
  if (IsNone()) return "None";
  if (const auto* b = As<bool>()) return *b ? "True" : "False";
  if (const auto* i = As<int64_t>()) return StrCat(*i);
  if (const auto* d = As<double>()) return FloatText(*d);
  if (const auto* s = As<std::string>()) return QuotedRepr(*s);
  std::string out;
  if (const List* list = AsList()) {
    for (const Value& item : *list) absl::StrAppend(&out, out.empty() ? "" : ", ", item.Repr());
    return StrCat("[", out, "]");
  }
  if (const Dict* dict = AsDict()) {
    for (const auto& [key, item] : *dict) {
      absl::StrAppend(&out, out.empty() ? "" : ", ", QuotedRepr(key), ": ", item.Repr());
    }
    return StrCat("{", out, "}");
  }
  return "<macro or function>";
}

bool operator==(const Value& a, const Value& b) {
  if (a.IsNumber() && b.IsNumber()) return a.ToDouble() == b.ToDouble();
  if (a.data_.index() != b.data_.index()) return false;
  if (a.IsUndefined() || a.IsNone()) return true;
  if (const auto* s = a.As<std::string>()) return *s == *b.As<std::string>();
  if (const List* list = a.AsList()) return *list == *b.AsList();
  if (const auto* space = a.As<Namespace>()) return space->values == b.As<Namespace>()->values;
  if (const Dict* dict = a.AsDict()) {
    const Dict& other = *b.AsDict();
    if (dict->size() != other.size()) return false;
    for (const auto& [key, item] : *dict) {
      const Value* found = Find(other, key);
      if (found == nullptr || !(*found == item)) return false;
    }
    return true;
  }
  if (const auto* function = a.As<Function>()) return function->name == b.As<Function>()->name;
  return *a.As<const Macro*>() == *b.As<const Macro*>();
}

const Value* Find(const Dict& dict, std::string_view key) {
  for (const auto& [name, value] : dict) {
    if (name == key) return &value;
  }
  return nullptr;
}

absl::StatusOr<std::string> ToJson(const Value& value, int indent) {
  JsonWriter writer(indent);
  RETURN_IF_ERROR(writer.Write(value, 0));
  return writer.Take();
}

std::vector<std::string_view> CodePoints(std::string_view text) {
  std::vector<std::string_view> points;
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    size_t length = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    for (size_t k = 1; k < length; ++k) {
      if (i + k >= text.size() || (static_cast<unsigned char>(text[i + k]) & 0xC0) != 0x80) length = 1;
    }
    points.push_back(text.substr(i, length));
    i += length;
  }
  return points;
}

}  // namespace baton::jinja
