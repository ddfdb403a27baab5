// Calls to the router, shared by the commands of `baton`.
#pragma once

#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cli/server_options.h"
#include "grpcpp/grpcpp.h"
#include "inference.grpc.pb.h"

namespace baton {

void AddServerFlags(CLI::App& app, ServerOptions& options);

std::unique_ptr<v1::Inference::Stub> Connect(const ServerOptions& server);
void Authorize(grpc::ClientContext& context, const ServerOptions& server);

// Replaces the errors for an unreachable router and for a missing or unknown API key by messages
// that name the remedy.
absl::Status Explain(const absl::Status& status, const ServerOptions& server);
// Prints an error to stderr. Returns the exit code. A zero `retry_after` is not printed.
int PrintError(const absl::Status& status, absl::Duration retry_after);

}  // namespace baton
