// Flags of a router's HTTP port.
#pragma once

#include "CLI/CLI.hpp"
#include "node/options.h"

namespace baton {

// Declares the flags. `options` must outlive the parse.
void AddHttpFlags(CLI::App& app, RouterOptions& options);

}  // namespace baton
