// The sampling parameters that a model's makers recommend.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "model/sampling_params.h"

namespace baton {

// Reads the parameters that SamplingFields marks with in_generation_config. A parameter that generation_config.json
// does not state is as in SamplingParams{}, and so are all without that file. do_sample is ignored, because many files
// that want sampling leave it out. INVALID_ARGUMENT names file, field and limit.
absl::StatusOr<SamplingParams> LoadSamplingDefaults(const std::string& directory);

}  // namespace baton
