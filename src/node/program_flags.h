// The command lines of the programs that have one role. node/flags.h has the flags themselves, and the parser's
// header.
#pragma once

#include <optional>

#include "node/options.h"

namespace baton {

// Each fills in the options. An exit code if the program is over already, as of ParseFlags (node/flags.h).
std::optional<int> ParsePrefillFlags(int argc, const char* const* argv, WorkerOptions& options);
std::optional<int> ParseDecodeFlags(int argc, const char* const* argv, WorkerOptions& options);
// `read_again`: null without a configuration file. `argv` must outlive it.
std::optional<int> ParseRouterFlags(int argc, const char* const* argv, RouterOptions& options, ReadAgain& read_again);

}  // namespace baton
