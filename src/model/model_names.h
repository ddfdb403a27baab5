// The names by which clients ask for models, apart from the models' own names.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model/name_pattern.h"

namespace baton {

// Served names and aliases without '*' are listed, and patterns are not.
class ModelNames {
 public:
  // Each model has its own name only.
  ModelNames() = default;

  // `models` are the models' own names. `served` has elements "MODEL=NAME", or "NAME" if there is
  // one model. `aliases` has elements "PATTERN=MODEL". MODEL is a model's own name, or a name
  // from an element before. Returns INVALID_ARGUMENT for each of these:
  // - An element is malformed, names an unknown model, or has an unusable name.
  // - Two models would have the same name. A model's own name is one of its names.
  // - A name matches patterns of two models, and neither pattern covers the other one.
  static absl::StatusOr<ModelNames> Make(std::span<const std::string> models, std::span<const std::string> served,
                                         std::span<const std::string> aliases);

  // Returns the names by which a model is listed: its served names, or else its own name, and then
  // its aliases without '*'. The first name is the model's name in messages to clients.
  std::vector<std::string> ListedNames(const std::string& model) const;
  // Returns the own name of the model with this served name or alias, or null.
  const std::string* FindName(std::string_view name) const;
  // Returns the own name of the model with the narrowest pattern that matches, or null. An empty
  // name and one of more than 256 bytes match no pattern.
  const std::string* FindPattern(std::string_view name) const;

 private:
  // Each element refuses what collides with the elements before it.
  absl::Status AddServed(std::span<const std::string> models, const std::string& element);
  absl::Status AddAlias(const std::string& element);
  absl::Status AddName(const std::string& flag, const std::string& name, const std::string& model);
  absl::Status AddPattern(const NamePattern& pattern, const std::string& model);

  std::map<std::string, std::vector<std::string>> listed_;     // by the model's own name
  std::map<std::string, std::string, std::less<>> by_name_;    // by own name, served name or alias
  std::vector<std::pair<NamePattern, std::string>> patterns_;  // with the model; sorted
};

}  // namespace baton
