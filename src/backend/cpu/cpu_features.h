// Which kernels this machine can run.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "backend/cpu/kernels.h"

namespace baton {

// Tables that processor and operating system (saved registers) both support, from "portable" to the fastest.
std::vector<const KernelTable*> RunnableKernels();

// The fastest of them.
const KernelTable& SelectKernels();

// The table of that name. INVALID_ARGUMENT: no such table, or this machine cannot run it.
absl::StatusOr<const KernelTable*> KernelsNamed(std::string_view name);

}  // namespace baton
