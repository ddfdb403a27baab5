// Converters between baton.v1.Sampling and SamplingParams, driven by the table of sampling
// parameters.
#pragma once

#include "inference.pb.h"
#include "model/sampling_params.h"

namespace baton {

// Converts `proto`. An unset field takes its value from `defaults`. Does not check values, which is
// the task of Validate.
SamplingParams FromProto(const v1::Sampling& proto, SamplingParams defaults = {});
v1::Sampling ToProto(const SamplingParams& params);
// Sets one field of `to` to its value in `from`. Appends to a field that is a list.
void SetField(const SamplingParams& from, const SamplingField& field, v1::Sampling& to);

}  // namespace baton
