// A tensor-parallel group whose ranks are threads of this process: they read each other's memory.
#pragma once

#include <memory>
#include <vector>

#include "backend/communicator.h"

namespace baton {

// One communicator for each rank; any of them may go first.
std::vector<std::unique_ptr<Communicator>> MakeMemoryCommunicators(int ranks);

}  // namespace baton
