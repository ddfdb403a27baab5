// The workers baton-prefill and baton-decode, which are names of the program baton.
#pragma once

#include <optional>

namespace baton {

// Runs the worker that argv[0] names, and returns the exit code. Returns nullopt if it names none.
std::optional<int> RunNamedWorker(int argc, char** argv);

}  // namespace baton
