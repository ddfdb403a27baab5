// Command lines of the programs with one role. This header does not include the parser's header,
// unlike node/flags.h.
#pragma once

#include <optional>

#include "node/options.h"

namespace baton {

// Each function fills `options`. Returns an exit code if the program must end, like ParseFlags in
// node/flags.h.
std::optional<int> ParsePrefillFlags(int argc, const char* const* argv, WorkerOptions& options);
std::optional<int> ParseDecodeFlags(int argc, const char* const* argv, WorkerOptions& options);
// Sets `reload_options`, or leaves it null without a configuration file. `argv` must outlive
// `reload_options`.
std::optional<int> ParseRouterFlags(int argc, const char* const* argv, RouterOptions& options,
                                    ReloadOptions& reload_options);

}  // namespace baton
