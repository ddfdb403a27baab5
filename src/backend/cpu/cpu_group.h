// A tensor-parallel group of CPU backends. It serves to test on any machine the group that GPUs
// form.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "backend/cpu/cpu_backend.h"

namespace baton {

// Returns a backend of `ranks` ranks. The ranks share `options.threads`, with at least one thread
// each. `slabs` has the memory for each rank's KV blocks, as in CpuBackendOptions. If it is empty,
// each rank allocates its own memory for `options.kv_blocks` blocks. INVALID_ARGUMENT: as for
// MakeCpuBackend, or the model cannot be split into that many ranks.
absl::StatusOr<std::unique_ptr<Backend>> MakeCpuGroup(const Weights& weights, int ranks,
                                                      std::span<const std::span<std::byte>> slabs,
                                                      const CpuBackendOptions& options);

}  // namespace baton
