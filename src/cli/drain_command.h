// The command `baton drain`, which moves work away from a worker, or ends that.
#pragma once

#include <string>

#include "CLI/CLI.hpp"
#include "cli/server_options.h"
#include "inference.pb.h"

namespace baton {

struct DrainOptions {
  ServerOptions server;
  std::string worker;  // as `baton status` shows it
  bool undo = false;
};

void AddDrainFlags(CLI::App& app, DrainOptions& options);
// Returns the line for a drain that the router has carried out.
std::string DrainText(const DrainOptions& options, const v1::DrainWorkerResponse& response);
// Returns the exit code: 0, or 1 after printing an error.
int RunDrain(const DrainOptions& options);

}  // namespace baton
