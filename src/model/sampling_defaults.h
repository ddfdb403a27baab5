// How a model's makers want it sampled.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "model/sampling_params.h"

namespace baton {

// temperature, top_k, top_p, min_p and repetition_penalty of generation_config.json; what it does not state, or where
// there is no such file, is as in SamplingParams. do_sample is not looked at: many files that want sampling leave it
// out. INVALID_ARGUMENT names file, field and limit.
absl::StatusOr<SamplingParams> LoadSamplingDefaults(const std::string& directory);

}  // namespace baton
