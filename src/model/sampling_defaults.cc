#include "model/sampling_defaults.h"

#include <algorithm>
#include <limits>

#include "base/json/json_file.h"
#include "base/status.h"
#include "base/strings.h"

namespace baton {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxDefaultsBytes = 256 << 10;

// The overloads of Set store a number of the file in a parameter of their type.
absl::Status Set(const SamplingField& field, double number, float& value) {
  ASSIGN_OR_RETURN(value, ToFloat(field, field.name, number));
  return absl::OkStatus();
}

// -1 turns the parameter off in files for vLLM, and 0 in files for transformers.
absl::Status Set(const SamplingField& field, double number, int32_t& value) {
  const double low = field.zero_is_off ? -1 : field.range.low;
  constexpr auto kHigh = static_cast<double>(std::numeric_limits<int32_t>::max());
  if (!(number >= low && number <= kHigh)) {
    return absl::InvalidArgumentError(StrCat(field.name, ": expected [", low, ", ", kHigh, "], got ", number));
  }
  value = field.zero_is_off ? std::max(static_cast<int32_t>(number), 0) : static_cast<int32_t>(number);
  return absl::OkStatus();
}

// No parameter of another type is in generation_config.json.
template <typename T>
absl::Status Set(const SamplingField& field, double, T&) {
  return absl::UnimplementedError(StrCat(field.name, ": generation_config.json may set only numbers"));
}

absl::Status ReadField(const Json& file, const SamplingField& field, SamplingParams& params) {
  const auto stated = file.find(std::string(field.name));
  if (stated == file.end() || stated->is_null()) return absl::OkStatus();
  if (!stated->is_number()) {
    return absl::InvalidArgumentError(StrCat(field.name, ": expected a number, got ", stated->type_name()));
  }
  absl::Status status;
  VisitValue(params, field, [&](auto& value) { status = Set(field, stated->get<double>(), value); });
  return status;
}

absl::StatusOr<SamplingParams> Read(const Json& file) {
  SamplingParams params;
  for (const SamplingField& field : SamplingFields()) {
    if (field.in_generation_config) RETURN_IF_ERROR(ReadField(file, field, params));
  }
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
