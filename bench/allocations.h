// Counters of calls of operator new, for programs that measure.
//
// A program that links allocations.cc counts its own calls and those of its shared libraries. Calls
// of malloc, as in gRPC's core, are not counted. Thread-safe.
#pragma once

#include <cstdint>

namespace baton {

// Number of allocations of this process since its start.
int64_t Allocations();
// Number of allocations of the calling thread since its start.
int64_t ThreadAllocations();

}  // namespace baton
