// Parser of the command line and the configuration file. Both use the same names. The command line
// takes precedence.
#pragma once

#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "node/options.h"

namespace baton {

// Accepts host:port with a port from 0 to 65535.
CLI::Validator HostPort();

// Declares a retired option of an earlier release, for the command line and the file. Until 0.2.0,
// Baton accepts it without effect and prints a warning to stderr. `instead` describes the present
// behaviour.
void AddRetired(CLI::App& app, const std::string& name, const std::string& instead);

// Each AddFlags function declares the flags of one options struct, which must outlive the parse.
void AddFlags(CLI::App& app, CommonOptions& options);
void AddFlags(CLI::App& app, RouterOptions& options);
void AddPrefillFlags(CLI::App& app, WorkerOptions& options);
void AddDecodeFlags(CLI::App& app, WorkerOptions& options);
// Declares the flags of a process with all roles. Flags for peers are omitted.
void AddServeFlags(CLI::App& app, ServeOptions& options);

// Parses the command line and the file that --config names. Returns an exit code if the program
// must end: 0 after --help or --version, 1 after an error. Prints errors to stderr. With
// subcommands, reads --config of the given subcommand.
std::optional<int> ParseFlags(CLI::App& app, int argc, const char* const* argv);

// Parses a router's options from the command line and the present content of the --config file.
// Returns INVALID_ARGUMENT if the file is malformed or the options are invalid.
absl::StatusOr<RouterOptions> ReadRouterOptions(int argc, const char* const* argv);

// Sets the options that the command line did not set. Returns NOT_FOUND if the file does not exist.
// Returns INVALID_ARGUMENT with file, line and key for malformed TOML, an unknown key or a bad
// value.
absl::Status ApplyConfigFile(CLI::App& app, const std::string& path);

}  // namespace baton
