#include "model/model_names.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/strings.h"
#include "text/utf8.h"

namespace baton {
namespace {

constexpr char kServedFlag[] = "served-model-name", kAliasFlag[] = "model-alias";
constexpr size_t kMostNameBytes = 256;
// A client's name is compared with each pattern.
constexpr size_t kMaxPatterns = 1024;

bool IsControl(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }

// Returns an error text with the flag, and the name without control characters.
absl::Status Refuse(std::string_view flag, std::string_view name, std::string_view why) {
  return absl::InvalidArgumentError(
      StrCat(flag, ": '", absl::CHexEscape(ToAbsl(name.substr(0, kMostNameBytes))), "' ", why));
}

absl::Status CheckName(std::string_view flag, std::string_view name) {
  if (name.empty()) return absl::InvalidArgumentError(StrCat(flag, ": expected a name, got an empty text"));
  if (name.size() > kMostNameBytes) {
    return Refuse(flag, name.substr(0, 32), StrCat("begins a name of ", name.size(), " bytes, limit ", kMostNameBytes));
  }
  if (std::ranges::any_of(name, IsControl)) return Refuse(flag, name, "has a control character");
  if (ValidUtf8Prefix(name) != name.size()) return Refuse(flag, name, "is not UTF-8");
  return absl::OkStatus();
}

std::string Quoted(std::span<const std::string> names) {
  return absl::StrJoin(names, ", ",
                       [](std::string* out, const std::string& name) { absl::StrAppend(out, "'", name, "'"); });
}

}  // namespace

absl::StatusOr<ModelNames> ModelNames::Make(std::span<const std::string> models, std::span<const std::string> served,
                                            std::span<const std::string> aliases) {
  ModelNames names;
  for (const std::string& model : models) names.by_name_.emplace(model, model);
  for (const std::string& element : served) RETURN_IF_ERROR(names.AddServed(models, element));
  for (const std::string& model : models) {
    if (!names.listed_.contains(model)) names.listed_[model].push_back(model);
  }
  for (const std::string& element : aliases) RETURN_IF_ERROR(names.AddAlias(element));
  std::ranges::stable_sort(names.patterns_, std::less(), [](const auto& entry) { return entry.first; });
  return names;
}

absl::Status ModelNames::AddServed(std::span<const std::string> models, const std::string& element) {
  const size_t sign = element.find('=');
  if (sign == std::string::npos && models.size() != 1) {
    return Refuse(kServedFlag, element, StrCat("names no model: expected MODEL=NAME with one of ", Quoted(models)));
  }
  const std::string model = sign == std::string::npos ? models.front() : element.substr(0, sign);
  const std::string name = element.substr(sign == std::string::npos ? 0 : sign + 1);
  if (std::ranges::find(models, model) == models.end()) {
    return Refuse(kServedFlag, model, StrCat("is not a model: expected one of ", Quoted(models)));
  }
  RETURN_IF_ERROR(CheckName(kServedFlag, name));
  if (name.find('*') != std::string::npos) {
    return Refuse(kServedFlag, name, "has a '*', which only --model-alias may have");
  }
  return AddName(kServedFlag, name, model);
}

absl::Status ModelNames::AddAlias(const std::string& element) {
  const size_t sign = element.find('=');
  if (sign == std::string::npos) return Refuse(kAliasFlag, element, "names no model: expected PATTERN=MODEL");
  const NamePattern pattern(element.substr(0, sign));
  RETURN_IF_ERROR(CheckName(kAliasFlag, pattern.text()));
  const auto model = by_name_.find(element.substr(sign + 1));
  if (model == by_name_.end()) {
    return Refuse(kAliasFlag, element.substr(sign + 1),
                  StrCat("is not a model, in the alias of '", pattern.text(), "'"));
  }
  return pattern.is_name() ? AddName(kAliasFlag, pattern.text(), model->second) : AddPattern(pattern, model->second);
}

absl::Status ModelNames::AddName(const std::string& flag, const std::string& name, const std::string& model) {
  const auto [other, is_new] = by_name_.try_emplace(name, model);
  if (other->second != model) {
    return Refuse(flag, name, StrCat("cannot name '", model, "', because it names '", other->second, "'"));
  }
  // A model's own name is known before, and may be listed all the same.
  std::vector<std::string>& list = listed_[model];
  if (is_new || (name == model && std::ranges::find(list, name) == list.end())) list.push_back(name);
  return absl::OkStatus();
}

absl::Status ModelNames::AddPattern(const NamePattern& pattern, const std::string& model) {
  if (patterns_.size() == kMaxPatterns) {
    return absl::InvalidArgumentError(StrCat(kAliasFlag, ": expected at most ", kMaxPatterns, " patterns with '*'"));
  }
  for (const auto& [other, others_model] : patterns_) {
    if (others_model == model || !pattern.Overlaps(other) || pattern.Covers(other) != other.Covers(pattern)) continue;
    return Refuse(kAliasFlag, pattern.text(),
                  StrCat("of '", model, "' and '", other.text(), "' of '", others_model,
                         "' match the same names, and neither is narrower than the other"));
  }
  patterns_.emplace_back(pattern, model);
  return absl::OkStatus();
}

std::vector<std::string> ModelNames::ListedNames(const std::string& model) const {
  const auto found = listed_.find(model);
  return found == listed_.end() ? std::vector{model} : found->second;
}

const std::string* ModelNames::FindName(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &found->second;
}

const std::string* ModelNames::FindPattern(std::string_view name) const {
  if (name.empty() || name.size() > kMostNameBytes) return nullptr;
  for (const auto& [pattern, model] : patterns_) {
    if (pattern.Matches(name)) return &model;
  }
  return nullptr;
}

}  // namespace baton
