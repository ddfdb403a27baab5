// Counts calls of operator new, for programs that measure. A program that links allocations.cc counts its own calls
// and those of its shared libraries; malloc (gRPC's core) is not counted. Thread-safe.
#pragma once

#include <cstdint>

namespace baton {

int64_t Allocations();        // of this process, since its start
int64_t ThreadAllocations();  // of the calling thread, since its start

}  // namespace baton
