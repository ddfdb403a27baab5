// The default sampling parameters of a model, from its generation_config.json.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "model/sampling_params.h"

namespace baton {

// Reads the parameters that SamplingFields() marks with in_generation_config. A parameter keeps its
// value in SamplingParams{} if the file does not have it, or if there is no file. The field
// do_sample is ignored, because many files that intend sampling leave it out. An INVALID_ARGUMENT
// error names the file, the field and the limit.
absl::StatusOr<SamplingParams> LoadSamplingDefaults(const std::string& directory);

}  // namespace baton
