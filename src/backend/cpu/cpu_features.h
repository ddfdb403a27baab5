// The selection of kernel tables that this machine can run.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "backend/cpu/kernels.h"

namespace baton {

// Returns the tables that the processor and the operating system support, from "portable" to the
// fastest. The operating system must save the registers that a table uses.
std::vector<const KernelTable*> RunnableKernels();

// Returns the fastest table that this machine can run.
const KernelTable& SelectKernels();

// Returns the table of that name. INVALID_ARGUMENT: there is no such table, or this machine cannot
// run it.
absl::StatusOr<const KernelTable*> KernelsNamed(std::string_view name);

}  // namespace baton
