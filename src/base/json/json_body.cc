#include "base/json/json_body.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/status.h"
#include "base/strings.h"

namespace baton {
namespace {

constexpr size_t kMaxShownBytes = 64;
constexpr size_t kMaxReasonBytes = 120;
// Limit of members and indexes in the path of an error.
constexpr size_t kMaxShownLevels = 8;

// Returns the reason from a message of nlohmann. Drops the input quoted behind the reason, which
// may take megabytes.
std::string_view ReasonOf(std::string_view message) {
  message = message.substr(0, message.find("; last read: "));
  // Skip the prefix "[json.exception...] parse error at line 1, column 2: ", or the part of it that
  // is present.
  const size_t column = message.find("column ");
  const std::string_view before = column == std::string_view::npos ? "] " : ": ";
  const size_t reason = message.find(before, column == std::string_view::npos ? 0 : column);
  return (reason == std::string_view::npos ? message : message.substr(reason + 2)).substr(0, kMaxReasonBytes);
}

// Returns whether a path may contain the name. Errors in OpenAI's format recognize a path by its
// characters.
bool IsShown(std::string_view name) {
  return !name.empty() && name.size() <= kMaxShownBytes &&
         std::ranges::all_of(name, [](char c) { return IsPlain(c, "_"); });
}

// Builds a Json value from parser events. A function that returns false ends the parse.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(std::string_view field) : field_(field) {}

  absl::StatusOr<Json> Take() {
    RETURN_IF_ERROR(status_);
    return std::move(root_);
  }

  bool null() override { return Add(nullptr) != nullptr; }
  bool boolean(bool value) override { return Add(value) != nullptr; }
  bool number_integer(int64_t value) override { return Add(value) != nullptr; }
  bool number_unsigned(uint64_t value) override { return Add(value) != nullptr; }
  bool number_float(double value, const std::string& text) override {
    // nlohmann passes an integer beyond 64 bits as a double, which is a different number.
    if (text.find_first_of(".eE") != std::string::npos) return Add(value) != nullptr;
    return Refuse(StrCat("expected an integer of 64 bits, got ", std::string_view(text).substr(0, kMaxShownBytes)));
  }
  bool string(std::string& value) override { return Add(std::move(value)) != nullptr; }
  bool binary(Json::binary_t&) override { return Refuse("binary values are not JSON"); }
  bool start_object(size_t) override { return Open(Json::object()); }
  bool key(std::string& value) override {
    Level& level = open_.back();
    if (level.keys.size() == kMaxJsonMembers) {
      return Refuse(StrCat("expected at most ", kMaxJsonMembers, " members, got more"));
    }
    key_ = std::move(value);
    if (level.keys.insert(*key_).second) return true;
    return Refuse(StrCat("expected one member '", std::string_view(*key_).substr(0, kMaxShownBytes), "', got two"));
  }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override { return Open(Json::array()); }
  bool end_array() override { return Close(); }
  bool parse_error(size_t byte, const std::string&, const nlohmann::detail::exception& error) override {
    return Refuse(StrCat("expected JSON, byte ", byte, ": ", ReasonOf(error.what())));
  }

 private:
  struct Level {
    // Stable while this level is open, because its parent receives no further values until then.
    Json* value = nullptr;
    absl::flat_hash_set<std::string> keys{};
  };

  bool Refuse(const std::string& why, size_t levels = kMaxShownLevels) {
    status_ = absl::InvalidArgumentError(StrCat(Path(levels), ": ", why));
    return false;
  }
  // Returns the path of the value that the parser reads, or of a value around it. The path has at
  // most `levels` members and indexes, and ends before a name that is not shown.
  std::string Path(size_t levels) const {
    std::string path(field_);
    for (size_t i = 0; i < std::min(levels, open_.size()); ++i) {
      const Json& parent = *open_[i].value;
      const bool is_last = i + 1 == open_.size();
      if (parent.is_array()) {
        absl::StrAppend(&path, "[", is_last ? parent.size() : parent.size() - 1, "]");
        continue;
      }
      if (is_last && !key_) break;
      const std::string& name = is_last ? *key_ : parent.get_ref<const Json::object_t&>().back().first;
      if (!IsShown(name)) break;
      absl::StrAppend(&path, path.empty() ? "" : ".", name);
    }
    return path.empty() ? "body" : path;
  }
  // Adds `value` to the innermost open level. Returns null if a limit refuses the value.
  Json* Add(Json value) {
    if (++values_ > kMaxJsonValues) {
      Refuse(StrCat("more than ", kMaxJsonValues, " JSON values"), 0);
      return nullptr;
    }
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *open_.back().value;
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    auto& members = parent.get_ref<Json::object_t&>();
    // key() has checked that the object has no member of this name.
    members.Container::emplace_back(*std::move(key_), std::move(value));
    key_.reset();
    return &members.back().second;
  }
  bool Open(Json value) {
    if (open_.size() == kMaxJsonDepth) return Refuse(StrCat("JSON is nested deeper than ", kMaxJsonDepth), 1);
    Json* const added = Add(std::move(value));
    if (added == nullptr) return false;
    open_.push_back({.value = added});
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  const std::string_view field_;
  absl::Status status_;
  Json root_;
  std::vector<Level> open_;
  std::optional<std::string> key_;  // of the member whose value comes next
  size_t values_ = 0;
};

size_t StringBytes(std::string_view text) {
  size_t bytes = 2;  // the quotes
  for (const char c : text) {
    const bool short_escape = c == '"' || c == '\\' || (c >= '\b' && c <= '\r' && c != '\v');
    bytes += short_escape ? 2 : static_cast<unsigned char>(c) < 0x20 ? 6 : 1;
  }
  return bytes;
}

}  // namespace

absl::StatusOr<Json> ParseJson(std::string_view text, std::string_view field) {
  Builder builder(field);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.Take();
}

absl::StatusOr<Json> ParseJsonBody(std::string_view body) {
  ASSIGN_OR_RETURN(Json value, ParseJson(body, ""));
  if (value.is_object()) return value;
  return absl::InvalidArgumentError(StrCat("body: expected a JSON object, got ", ShowJson(value)));
}

size_t JsonBytes(const Json& value) {
  if (value.is_string()) return StringBytes(value.get_ref<const std::string&>());
  if (!value.is_structured()) return value.dump().size();
  size_t bytes = 2 + (value.empty() ? 0 : value.size() - 1);  // brackets and commas
  for (const auto& [key, element] : value.items()) {
    if (value.is_object()) bytes += StringBytes(key) + 1;
    bytes += JsonBytes(element);
  }
  return bytes;
}

std::string ShowJson(const Json& value) {
  switch (value.type()) {
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return StrCat("a list of ", value.size());
    case Json::value_t::string: {
      const auto& text = value.get_ref<const std::string&>();
      return text.size() <= kMaxShownBytes ? StrCat("'", text, "'") : StrCat("a string of ", text.size(), " bytes");
    }
    default:
      return value.dump();
  }
}

}  // namespace baton
