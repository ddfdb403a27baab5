// The flags of `baton generate` and `baton chat`, as the names of the fields that they set.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cli/cli.h"
#include "model/sampling_params.h"

namespace baton {

// Paths of fields in baton.v1.GenerateRequest, each with the flag that sets it. A path comes before
// the paths that it begins with.
using FlagNames = std::vector<std::pair<std::string, std::string>>;

// Returns the flag of a sampling parameter: "--max-tokens".
std::string FlagOf(const SamplingField& field);

// Returns the flags of `baton chat`.
FlagNames ChatFlagNames();
// Returns the flags of `baton generate`. `options` has the flag of the prompt.
FlagNames GenerateFlagNames(const GenerateOptions& options);

// Returns a router's error with the flag in place of the field with which its message begins:
// "--stop-ids[1]: ..." for "sampling.stop_ids[1]: ...". Returns any other error as it is.
absl::Status NameFlag(const absl::Status& status, const FlagNames& names);

}  // namespace baton
