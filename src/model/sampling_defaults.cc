#include "model/sampling_defaults.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/json/json_file.h"
#include "base/status.h"

namespace baton {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxDefaultsBytes = 256 << 10;

// The number of that name, if there is one; null counts as absent.
absl::StatusOr<std::optional<double>> Number(const Json& file, const std::string& name) {
  const auto value = file.find(name);
  if (value == file.end() || value->is_null()) return std::nullopt;
  if (value->is_number()) return value->get<double>();
  return absl::InvalidArgumentError(absl::StrCat(name, ": expected a number, got ", value->type_name()));
}

absl::StatusOr<SamplingParams> Read(const Json& file) {
  SamplingParams params;
  const std::pair<const char*, float*> fields[] = {{"temperature", &params.temperature},
                                                   {"top_p", &params.top_p},
                                                   {"min_p", &params.min_p},
                                                   {"repetition_penalty", &params.repetition_penalty}};
  for (const auto& [name, field] : fields) {
    ASSIGN_OR_RETURN(const std::optional<double> value, Number(file, name));
    if (value) *field = static_cast<float>(*value);
  }
  ASSIGN_OR_RETURN(const std::optional<double> top_k, Number(file, "top_k"));
  if (top_k) {
    // transformers has 0 for "off", others -1.
    constexpr auto kMax = static_cast<double>(std::numeric_limits<int32_t>::max());
    if (!(*top_k >= -1 && *top_k <= kMax)) {
      return absl::InvalidArgumentError(absl::StrCat("top_k: expected [-1, ", kMax, "], got ", *top_k));
    }
    params.top_k = std::max(static_cast<int32_t>(*top_k), 0);
  }
  params.max_tokens = 1;  // not of the file; there so that all else can be validated
  RETURN_IF_ERROR(Validate(params, /*vocab=*/1));
  params.max_tokens = SamplingParams{}.max_tokens;
  return params;
}

}  // namespace

absl::StatusOr<SamplingParams> LoadSamplingDefaults(const std::string& directory) {
  const std::string path = directory + "/generation_config.json";
  const absl::StatusOr<Json> file = ReadJsonObject(path, kMaxDefaultsBytes);
  if (absl::IsNotFound(file.status())) return SamplingParams{};
  RETURN_IF_ERROR(file.status());
  auto params = Read(*file);
  if (params.ok()) return params;
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", params.status().message()));
}

}  // namespace baton
