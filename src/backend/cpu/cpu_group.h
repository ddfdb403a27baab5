// A model on CPU threads, computed by several ranks: what GPUs do, on any machine.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "backend/cpu/cpu_backend.h"

namespace baton {

// The ranks share `options.threads`, at least one each. `slabs`: memory for each rank's KV blocks, as in
// CpuBackendOptions; empty: each has its own, of options.kv_blocks. INVALID_ARGUMENT as for MakeCpuBackend, or more
// ranks than the model can be shared out to.
absl::StatusOr<std::unique_ptr<Backend>> MakeCpuGroup(const Weights& weights, int ranks,
                                                      std::span<const std::span<std::byte>> slabs,
                                                      const CpuBackendOptions& options);

}  // namespace baton
