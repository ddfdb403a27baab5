// Command line and configuration file: the same names in both, and the command line wins.
#pragma once

#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "node/options.h"

namespace baton {

// Refuses what is not host:port with a port from 0 to 65535.
CLI::Validator HostPort();

// Declares an option of an earlier release, for the command line and the file: it is accepted until 0.2.0, does
// nothing, and warns on stderr. `instead`: what the program does now.
void AddRetired(CLI::App& app, const std::string& name, const std::string& instead);

// Each declares the flags of one options struct, which must outlive the parse.
void AddFlags(CLI::App& app, CommonOptions& options);
void AddFlags(CLI::App& app, RouterOptions& options);
void AddPrefillFlags(CLI::App& app, WorkerOptions& options);
void AddDecodeFlags(CLI::App& app, WorkerOptions& options);
// All roles in one process: what concerns peers is left out.
void AddServeFlags(CLI::App& app, ServeOptions& options);

// An exit code if the program is over already: 0 after --help or --version, 1 after an error, which was printed to
// stderr. Reads the file that --config names, of the app or of the subcommand that was given.
std::optional<int> ParseFlags(CLI::App& app, int argc, const char* const* argv);

// A router's options as ParseFlags gave them, but with the file of --config as it is now. INVALID_ARGUMENT: the file
// has a mistake, or the options cannot be.
absl::StatusOr<RouterOptions> ReadRouterOptions(int argc, const char* const* argv);

// Sets the options that the command line did not. INVALID_ARGUMENT names file, line and key: TOML syntax, a key that
// is no option, a bad value. NOT_FOUND: no such file.
absl::Status ApplyConfigFile(CLI::App& app, const std::string& path);

}  // namespace baton
