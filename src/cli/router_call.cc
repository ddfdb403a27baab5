#include "cli/router_call.h"

#include <algorithm>
#include <iostream>

#include "base/strings.h"
#include "cli/printable.h"
#include "node/flags.h"
#include "rpc/tls.h"

namespace baton {

namespace {

// Returns the error of a text that cannot be sent as a key, or "". gRPC would abort and print the
// key. The error does not contain it.
std::string KeyError(const std::string& key) {
  if (std::ranges::all_of(key, [](char c) { return c > ' ' && c <= '~'; })) return "";
  return "expected printable ASCII without spaces, got another character (perhaps the line break at the end of a file)";
}

}  // namespace

void AddServerFlags(CLI::App& app, ServerOptions& o) {
  app.add_option("--server", o.address, "address of the router")->check(HostPort())->capture_default_str();
  app.add_option(
         "--key", o.key,
         "API key, if the router requires one. Other users of this machine can see it on the command line, but not "
         "in the environment")
      ->check(KeyError)
      ->envname("BATON_API_KEY");
  app.add_option("--tls-ca", o.authority,
                 "PEM file: authority that signed the router's certificate; default: no encryption");
}

std::unique_ptr<v1::Inference::Stub> Connect(const ServerOptions& server) {
  return v1::Inference::NewStub(DialServer(server.authority)(server.address));
}

void Authorize(grpc::ClientContext& context, const ServerOptions& server) {
  if (!server.key.empty()) context.AddMetadata("authorization", "Bearer " + server.key);
}

absl::Status Explain(const absl::Status& status, const ServerOptions& server) {
  if (absl::IsUnauthenticated(status)) {
    return absl::UnauthenticatedError(
        server.key.empty()
            ? StrCat("the router at ", server.address, " expected an API key, got none. Set BATON_API_KEY or --key")
            : StrCat("the router at ", server.address,
                     " expected an API key of its tenants, got an unknown one. Correct "
                     "BATON_API_KEY or --key"));
  }
  const std::string_view message = Message(status);
  if (message.find("http1.x") != message.npos) {
    return absl::UnavailableError(
        StrCat("no router at ", server.address,
               ": the port answers HTTP. Name the router's --listen address, not its --http"));
  }
  if (!message.starts_with("failed to connect") && !message.starts_with("DNS resolution failed")) return status;
  const size_t reason = message.rfind(": ");
  return absl::UnavailableError(StrCat("no router at ", server.address,
                                       reason == message.npos ? "" : message.substr(reason),
                                       ". Start one (baton serve, tools/cluster up), or correct --server"));
}

int PrintError(const absl::Status& status, absl::Duration retry_after) {
  std::cerr << "baton: " << absl::StatusCodeToString(status.code()) << ": " << Printable(Message(status));
  if (retry_after > absl::ZeroDuration()) std::cerr << " (retry after " << absl::FormatDuration(retry_after) << ")";
  std::cerr << "\n";
  return 1;
}

}  // namespace baton
