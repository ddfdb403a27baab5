// A tensor-parallel group whose ranks are threads of this process and read each other's memory.
#pragma once

#include <memory>
#include <vector>

#include "backend/communicator.h"

namespace baton {

// Returns one communicator for each rank. They may be destroyed in any order.
std::vector<std::unique_ptr<Communicator>> MakeMemoryCommunicators(int ranks);

}  // namespace baton
