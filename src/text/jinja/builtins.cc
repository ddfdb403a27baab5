#include "text/jinja/builtins.h"

#include <algorithm>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "base/strings.h"

namespace baton::jinja {
namespace {

constexpr int64_t kMaxRange = 10'000;  // items of one range()

absl::Status WrongArgument(std::string_view what, std::string_view expected, const Value& got) {
  return absl::InvalidArgumentError(StrCat(what, ": expected ", expected, ", got ", got.TypeName()));
}

absl::StatusOr<std::string> TextArgument(std::string_view what, const Value& value) {
  if (const auto* text = value.As<std::string>()) return *text;
  return WrongArgument(what, "str", value);
}

// Returns true for white space of Unicode, which Python's strip removes.
bool IsSpace(std::string_view point) {
  static constexpr std::string_view kSpaces[] = {" ",
                                                 "\t",
                                                 "\n",
                                                 "\v",
                                                 "\f",
                                                 "\r",
                                                 "\x1c",
                                                 "\x1d",
                                                 "\x1e",
                                                 "\x1f",
                                                 "\xc2\x85",
                                                 "\xc2\xa0",
                                                 "\xe1\x9a\x80",
                                                 "\xe2\x80\x80",
                                                 "\xe2\x80\x81",
                                                 "\xe2\x80\x82",
                                                 "\xe2\x80\x83",
                                                 "\xe2\x80\x84",
                                                 "\xe2\x80\x85",
                                                 "\xe2\x80\x86",
                                                 "\xe2\x80\x87",
                                                 "\xe2\x80\x88",
                                                 "\xe2\x80\x89",
                                                 "\xe2\x80\x8a",
                                                 "\xe2\x80\xa8",
                                                 "\xe2\x80\xa9",
                                                 "\xe2\x80\xaf",
                                                 "\xe2\x81\x9f",
                                                 "\xe3\x80\x80"};
  return std::find(std::begin(kSpaces), std::end(kSpaces), point) != std::end(kSpaces);
}

// Implements str.strip, lstrip and rstrip of Python. If `chars` is undefined or None, removes white
// space.
absl::StatusOr<std::string> Strip(const std::string& text, const Value& chars, bool left, bool right) {
  std::vector<std::string_view> set;
  std::string set_text;
  const bool spaces = chars.IsUndefined() || chars.IsNone();
  if (!spaces) {
    ASSIGN_OR_RETURN(set_text, TextArgument("strip", chars));
    set = CodePoints(set_text);
  }
  const auto goes = [&](std::string_view point) {
    return spaces ? IsSpace(point) : std::find(set.begin(), set.end(), point) != set.end();
  };
  const std::vector<std::string_view> points = CodePoints(text);
  size_t begin = 0, end = points.size();
  while (left && begin < end && goes(points[begin])) ++begin;
  while (right && begin < end && goes(points[end - 1])) --end;
  std::string out;
  for (size_t i = begin; i < end; ++i) out += points[i];
  return out;
}

absl::StatusOr<Value> Split(const std::string& text, const Arguments& arguments) {
  const Value separator = arguments.Get(0, "sep");
  const Value limit_value = arguments.Get(1, "maxsplit");
  const int64_t* given = limit_value.As<int64_t>();
  int64_t limit = given && *given >= 0 ? *given : std::numeric_limits<int64_t>::max();
  List parts;
  if (separator.IsUndefined() || separator.IsNone()) {
    if (given) return absl::UnimplementedError("split: maxsplit without a separator is not implemented");
    std::string word;
    for (const std::string_view point : CodePoints(text)) {
      if (!IsSpace(point)) {
        word += point;
      } else if (!word.empty()) {
        parts.push_back(std::exchange(word, ""));
      }
    }
    if (!word.empty()) parts.push_back(std::move(word));
    return Value::MakeList(std::move(parts));
  }
  ASSIGN_OR_RETURN(const std::string sep, TextArgument("split", separator));
  if (sep.empty()) return absl::InvalidArgumentError("split: empty separator");
  size_t begin = 0;
  for (size_t at = text.find(sep); at != std::string::npos && limit > 0; at = text.find(sep, begin), --limit) {
    parts.push_back(text.substr(begin, at - begin));
    begin = at + sep.size();
  }
  parts.push_back(text.substr(begin));
  return Value::MakeList(std::move(parts));
}

absl::StatusOr<Value> Replace(const std::string& text, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const std::string from, TextArgument("replace", arguments.Get(0, "old")));
  ASSIGN_OR_RETURN(const std::string to, TextArgument("replace", arguments.Get(1, "new")));
  if (!arguments.Get(2, "count").IsUndefined()) {
    return absl::UnimplementedError("replace: a count is not implemented");
  }
  if (from.empty()) return absl::InvalidArgumentError("replace: empty search text");
  return absl::StrReplaceAll(text, {{from, to}});
}

// Changes ASCII letters only. Other letters stay as they are.
std::string ChangeCase(std::string_view name, const std::string& text) {
  if (name == "upper") return absl::AsciiStrToUpper(text);
  std::string out = absl::AsciiStrToLower(text);
  bool first = true;
  for (char& c : out) {
    if (first && name != "lower") c = absl::ascii_toupper(c);
    first = name == "title" && !absl::ascii_isalnum(c) && static_cast<unsigned char>(c) < 0x80;
  }
  return out;
}

Value Pairs(const Dict& dict) {
  List pairs;
  for (const auto& [key, value] : dict) pairs.push_back(Value::MakeList({key, value}));
  return Value::MakeList(std::move(pairs));
}

// ---- filters ----

using Filter = absl::StatusOr<Value> (*)(std::string_view name, const Value& input, const Arguments& arguments);

absl::StatusOr<Value> Length(std::string_view name, const Value& input, const Arguments&) {
  if (input.AsDict() == nullptr && input.IsNone()) return WrongArgument(name, "a value with a length", input);
  ASSIGN_OR_RETURN(const List items, Items(input));
  return static_cast<int64_t>(items.size());
}

absl::StatusOr<Value> Trim(std::string_view, const Value& input, const Arguments& arguments) {
  return Strip(input.ToText(), arguments.Get(0, "chars"), true, true);
}

absl::StatusOr<Value> ToJsonFilter(std::string_view, const Value& input, const Arguments& arguments) {
  const Value indent = arguments.Get(0, "indent");
  const Value ascii = arguments.Get(1, "ensure_ascii");
  if (ascii.Truthy()) return absl::UnimplementedError("tojson: ensure_ascii=true is not implemented");
  const int64_t* width = indent.As<int64_t>();
  return ToJson(input, width ? static_cast<int>(std::clamp<int64_t>(*width, 0, 16)) : -1);
}

absl::StatusOr<Value> ItemsFilter(std::string_view name, const Value& input, const Arguments&) {
  if (input.IsUndefined()) return Value::MakeList({});
  const Dict* dict = input.AsDict();
  return dict ? Pairs(*dict) : absl::StatusOr<Value>(WrongArgument(name, "dict", input));
}

absl::StatusOr<Value> Join(std::string_view, const Value& input, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const List items, Items(input));
  const std::string separator = arguments.Get(0, "d").ToText();
  return absl::StrJoin(items, separator, [](std::string* out, const Value& item) { *out += item.ToText(); });
}

absl::StatusOr<Value> Default(std::string_view, const Value& input, const Arguments& arguments) {
  const bool replace = input.IsUndefined() || (arguments.Get(1, "boolean").Truthy() && !input.Truthy());
  if (!replace) return input;
  const Value fallback = arguments.Get(0, "default_value");
  return fallback.IsUndefined() ? Value("") : fallback;
}

absl::StatusOr<Value> CaseFilter(std::string_view name, const Value& input, const Arguments&) {
  return ChangeCase(name, input.ToText());
}

absl::StatusOr<Value> ReplaceFilter(std::string_view, const Value& input, const Arguments& arguments) {
  return Replace(input.ToText(), arguments);
}

absl::StatusOr<Value> FirstOrLast(std::string_view name, const Value& input, const Arguments&) {
  ASSIGN_OR_RETURN(const List items, Items(input));
  if (items.empty()) return Undefined{std::string(name)};
  return name == "first" ? items.front() : items.back();
}

absl::StatusOr<Value> ListFilter(std::string_view name, const Value& input, const Arguments&) {
  ASSIGN_OR_RETURN(List items, Items(input));
  if (name == "reverse") std::reverse(items.begin(), items.end());
  return Value::MakeList(std::move(items));
}

absl::StatusOr<Value> StringFilter(std::string_view, const Value& input, const Arguments&) { return input.ToText(); }

absl::StatusOr<Value> IntFilter(std::string_view, const Value& input, const Arguments&) {
  int64_t value = 0;
  if (const auto* text = input.As<std::string>()) {
    if (!absl::SimpleAtoi(*text, &value)) value = 0;
  } else if (input.IsNumber() && std::abs(input.ToDouble()) < 9e18) {
    value = static_cast<int64_t>(input.ToDouble());
  }
  return value;
}

Value AttributeOf(const Value& item, std::string_view name) {
  const Dict* dict = item.AsDict();
  const Value* found = dict ? Find(*dict, name) : nullptr;
  return found ? *found : Value(Undefined{std::string(name)});
}

// Implements select, reject, selectattr and rejectattr. The arguments are [attribute,] [test,
// [argument]]. Without a test, the truth value of the item or attribute decides.
absl::StatusOr<Value> Select(std::string_view name, const Value& input, const Arguments& arguments) {
  const bool by_attribute = name.ends_with("attr");
  const bool keep = name.starts_with("select");
  const size_t at = by_attribute ? 1 : 0;
  std::string attribute, test;
  if (by_attribute) {
    ASSIGN_OR_RETURN(attribute, TextArgument(name, arguments.Get(0, "attribute")));
  }
  if (arguments.positional.size() > at) {
    ASSIGN_OR_RETURN(test, TextArgument(name, arguments.positional[at]));
    if (!IsTest(test)) return absl::UnimplementedError(StrCat("test '", test, "' is not implemented"));
  }
  Arguments rest;
  if (arguments.positional.size() > at + 1)
    rest.positional.assign(arguments.positional.begin() + at + 1, arguments.positional.end());
  ASSIGN_OR_RETURN(const List items, Items(input));
  List chosen;
  for (const Value& item : items) {
    const Value subject = by_attribute ? AttributeOf(item, attribute) : item;
    bool holds = subject.Truthy();
    if (!test.empty()) {
      ASSIGN_OR_RETURN(holds, ApplyTest(test, subject, rest));
    }
    if (holds == keep) chosen.push_back(item);
  }
  return Value::MakeList(std::move(chosen));
}

absl::StatusOr<Value> Map(std::string_view name, const Value& input, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const List items, Items(input));
  const Value attribute = arguments.Get(std::numeric_limits<size_t>::max(), "attribute");
  std::string filter;
  if (attribute.IsUndefined()) {
    ASSIGN_OR_RETURN(filter, TextArgument(name, arguments.Get(0, "filter")));
    if (!IsFilter(filter)) return absl::UnimplementedError(StrCat("filter '", filter, "' is not implemented"));
  }
  Arguments rest;
  if (arguments.positional.size() > 1)
    rest.positional.assign(arguments.positional.begin() + 1, arguments.positional.end());
  List out;
  for (const Value& item : items) {
    if (filter.empty()) {
      out.push_back(AttributeOf(item, attribute.ToText()));
    } else {
      ASSIGN_OR_RETURN(Value mapped, ApplyFilter(filter, item, rest));
      out.push_back(std::move(mapped));
    }
  }
  return Value::MakeList(std::move(out));
}

constexpr std::pair<std::string_view, Filter> kFilters[] = {
    {"capitalize", CaseFilter},
    {"count", Length},
    {"d", Default},
    {"default", Default},
    {"first", FirstOrLast},
    {"int", IntFilter},
    {"items", ItemsFilter},
    {"join", Join},
    {"last", FirstOrLast},
    {"length", Length},
    {"list", ListFilter},
    {"lower", CaseFilter},
    {"map", Map},
    {"reject", Select},
    {"rejectattr", Select},
    {"replace", ReplaceFilter},
    {"reverse", ListFilter},
    {"safe", StringFilter},
    {"select", Select},
    {"selectattr", Select},
    {"string", StringFilter},
    {"title", CaseFilter},
    {"tojson", ToJsonFilter},
    {"trim", Trim},
    {"upper", CaseFilter},
};

// ---- tests ----

using Test = bool (*)(const Value& input);
constexpr std::pair<std::string_view, Test> kTests[] = {
    {"boolean", [](const Value& v) { return v.As<bool>() != nullptr; }},
    {"defined", [](const Value& v) { return !v.IsUndefined(); }},
    {"false", [](const Value& v) { return v.As<bool>() && !*v.As<bool>(); }},
    {"float", [](const Value& v) { return v.As<double>() != nullptr; }},
    {"integer", [](const Value& v) { return v.As<int64_t>() != nullptr; }},
    {"iterable", [](const Value& v) { return v.As<Namespace>() == nullptr && Items(v).ok(); }},
    {"mapping", [](const Value& v) { return v.As<Namespace>() == nullptr && v.AsDict() != nullptr; }},
    {"none", [](const Value& v) { return v.IsNone(); }},
    {"number", [](const Value& v) { return v.IsNumber(); }},
    {"sequence", [](const Value& v) { return v.As<Namespace>() == nullptr && Items(v).ok(); }},
    {"string", [](const Value& v) { return v.As<std::string>() != nullptr; }},
    {"true", [](const Value& v) { return v.As<bool>() && *v.As<bool>(); }},
    {"undefined", [](const Value& v) { return v.IsUndefined(); }},
};
// The tests of equality, which have an argument ("is equalto x"), and the other tests.
constexpr std::string_view kEqualTests[] = {"eq", "equalto", "sameas"};
constexpr std::string_view kOtherTests[] = {"divisibleby", "even", "in", "ne", "odd"};

template <typename Table>
auto FindIn(const Table& table, std::string_view name) {
  return std::find_if(std::begin(table), std::end(table), [&](const auto& entry) { return entry.first == name; });
}
template <typename Names>
bool Has(const Names& names, std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

constexpr std::string_view kStringMethods[] = {"capitalize", "endswith", "find",   "join",  "lower",
                                               "lstrip",     "replace",  "rstrip", "split", "startswith",
                                               "strip",      "title",    "upper"};
constexpr std::string_view kDictMethods[] = {"get", "items", "keys", "values"};
constexpr std::string_view kFunctions[] = {"dict", "namespace", "raise_exception", "range", "strftime_now"};

absl::StatusOr<Value> StringMethod(std::string_view name, const std::string& text, const Arguments& arguments) {
  if (name.ends_with("strip")) return Strip(text, arguments.Get(0, ""), name[0] != 'r', name[0] != 'l');
  if (name == "split") return Split(text, arguments);
  if (name == "replace") return Replace(text, arguments);
  if (name == "join") return Join(name, arguments.Get(0, ""), Arguments{{text}, {}});
  if (name == "startswith" || name == "endswith" || name == "find") {
    ASSIGN_OR_RETURN(const std::string part, TextArgument(name, arguments.Get(0, "")));
    if (name == "startswith") return text.starts_with(part);
    if (name == "endswith") return text.ends_with(part);
    const size_t at = text.find(part);
    if (at == std::string::npos) return int64_t{-1};
    return static_cast<int64_t>(CodePoints(std::string_view(text).substr(0, at)).size());
  }
  return ChangeCase(name, text);
}

absl::StatusOr<Value> DictMethod(std::string_view name, const Dict& dict, const Arguments& arguments) {
  if (name == "items") return Pairs(dict);
  if (name == "get") {
    ASSIGN_OR_RETURN(const std::string key, TextArgument(name, arguments.Get(0, "key")));
    if (const Value* found = Find(dict, key)) return *found;
    const Value fallback = arguments.Get(1, "default");
    return fallback.IsUndefined() ? Value(None{}) : fallback;
  }
  List out;
  for (const auto& [key, value] : dict) out.push_back(name == "keys" ? Value(key) : value);
  return Value::MakeList(std::move(out));
}

absl::StatusOr<Value> RangeOf(const Arguments& arguments) {
  int64_t bounds[3] = {0, 0, 1};  // start, stop, step
  const size_t count = arguments.positional.size();
  if (count < 1 || count > 3) return absl::InvalidArgumentError("range: expected one to three arguments");
  for (size_t i = 0; i < count; ++i) {
    const int64_t* value = arguments.positional[i].As<int64_t>();
    if (value == nullptr) return WrongArgument("range", "int", arguments.positional[i]);
    bounds[count == 1 ? 1 : i] = *value;
  }
  const auto [start, stop, step] = bounds;
  if (step == 0) return absl::InvalidArgumentError("range: step is 0");
  List out;
  for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step) {
    if (static_cast<int64_t>(out.size()) >= kMaxRange) {
      return absl::InvalidArgumentError(StrCat("range: more than ", kMaxRange, " items"));
    }
    out.push_back(i);
    if (std::abs(i) > std::numeric_limits<int64_t>::max() / 2 || std::abs(step) > kMaxRange * kMaxRange) {
      return absl::InvalidArgumentError("range: bounds are too large");
    }
  }
  return Value::MakeList(std::move(out));
}

}  // namespace

Value Arguments::Get(size_t i, std::string_view name) const {
  if (i < positional.size()) return positional[i];
  for (const auto& [key, value] : named) {
    if (key == name) return value;
  }
  return Undefined{std::string(name)};
}

bool IsFunction(std::string_view name) { return Has(kFunctions, name); }
bool IsFilter(std::string_view name) { return FindIn(kFilters, name) != std::end(kFilters); }
bool IsTest(std::string_view name) {
  return FindIn(kTests, name) != std::end(kTests) || Has(kEqualTests, name) || Has(kOtherTests, name);
}
bool IsMethod(std::string_view name) { return Has(kStringMethods, name) || Has(kDictMethods, name); }

absl::StatusOr<Value> CallFunction(std::string_view name, const Arguments& arguments, absl::Time now) {
  if (name == "range") return RangeOf(arguments);
  if (name == "raise_exception") return absl::InvalidArgumentError(arguments.Get(0, "message").ToText());
  if (name == "strftime_now") {
    ASSIGN_OR_RETURN(const std::string format, TextArgument(name, arguments.Get(0, "format")));
    return absl::FormatTime(format, now, absl::LocalTimeZone());
  }
  Dict dict;
  if (!arguments.positional.empty()) {
    return absl::UnimplementedError(StrCat(name, ": positional arguments are not implemented"));
  }
  for (const auto& [key, value] : arguments.named) dict.emplace_back(key, value);
  if (name == "dict") return Value::MakeDict(std::move(dict));
  return Namespace{std::make_shared<Dict>(std::move(dict))};
}

absl::StatusOr<Value> ApplyFilter(std::string_view name, const Value& input, const Arguments& arguments) {
  return FindIn(kFilters, name)->second(name, input, arguments);
}

absl::StatusOr<bool> ApplyTest(std::string_view name, const Value& input, const Arguments& arguments) {
  if (const auto test = FindIn(kTests, name); test != std::end(kTests)) return test->second(input);
  const Value other = arguments.Get(0, "other");
  if (Has(kEqualTests, name)) return input == other;
  if (name == "ne") return !(input == other);
  if (name == "in") return Contains(other, input);
  const int64_t* number = input.As<int64_t>();
  if (number == nullptr) return WrongArgument(name, "int", input);
  const int64_t* divisor = name == "divisibleby" ? other.As<int64_t>() : nullptr;
  if (name == "divisibleby" && (divisor == nullptr || *divisor == 0)) {
    return WrongArgument(name, "an int other than 0", other);
  }
  const bool divides = *number % (divisor ? *divisor : 2) == 0;
  return name == "odd" ? !divides : divides;
}

absl::StatusOr<Value> CallMethod(std::string_view name, const Value& object, const Arguments& arguments) {
  const auto* text = object.As<std::string>();
  if (text != nullptr && Has(kStringMethods, name)) return StringMethod(name, *text, arguments);
  const Dict* dict = object.AsDict();
  if (dict != nullptr && Has(kDictMethods, name)) return DictMethod(name, *dict, arguments);
  const auto* undefined = object.As<Undefined>();
  return absl::InvalidArgumentError(
      undefined ? StrCat("'", undefined->name, "' is undefined, so it has no method '", name, "'")
                : StrCat(object.TypeName(), " has no method '", name, "'"));
}

absl::StatusOr<List> Items(const Value& value) {
  if (value.IsUndefined()) return List{};
  if (const List* list = value.AsList()) return *list;
  List items;
  if (const auto* text = value.As<std::string>()) {
    for (const std::string_view point : CodePoints(*text)) items.push_back(std::string(point));
    return items;
  }
  const Dict* dict = value.AsDict();
  if (dict == nullptr) return WrongArgument("iteration", "list, dict or str", value);
  for (const auto& [key, item] : *dict) items.push_back(key);
  return items;
}

absl::StatusOr<bool> Contains(const Value& container, const Value& item) {
  if (const auto* text = container.As<std::string>()) {
    const auto* part = item.As<std::string>();
    if (part == nullptr) return WrongArgument("in", "str", item);
    return absl::StrContains(*text, *part);
  }
  if (const Dict* dict = container.AsDict()) {
    const auto* key = item.As<std::string>();
    return key != nullptr && Find(*dict, *key) != nullptr;
  }
  ASSIGN_OR_RETURN(const List items, Items(container));
  return std::find(items.begin(), items.end(), item) != items.end();
}

}  // namespace baton::jinja
