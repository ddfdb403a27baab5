// baton.v1.Sampling ↔ SamplingParams, by the table of sampling parameters.
#pragma once

#include "inference.pb.h"
#include "model/sampling_params.h"

namespace baton {

// A field that is not set has its value in `defaults`. Values are not checked; Validate does that.
SamplingParams FromProto(const v1::Sampling& proto, SamplingParams defaults = {});
v1::Sampling ToProto(const SamplingParams& params);
// Sets one field of `to` to its value in `from`. A list is added to the list that is there.
void SetField(const SamplingParams& from, const SamplingField& field, v1::Sampling& to);

}  // namespace baton
