#include "cli/router_call.h"

#include "absl/strings/match.h"
#include "catch.h"

namespace baton {
namespace {

ServerOptions Server(const std::string& key) {
  ServerOptions server;
  server.address = "r:7";
  server.key = key;
  return server;
}

TEST_CASE("Explain names the variable and the flag of a missing or wrong key") {
  const absl::Status refused = absl::UnauthenticatedError("authorization: Bearer KEY");
  CHECK(Explain(refused, Server("")) ==
        absl::UnauthenticatedError("the router at r:7 expected an API key, got none. Set BATON_API_KEY or --key"));
  CHECK(Explain(refused, Server("secret")) ==
        absl::UnauthenticatedError("the router at r:7 expected an API key of its tenants, got an unknown one. "
                                   "Correct BATON_API_KEY or --key"));
}

TEST_CASE("Explain names the mistake when --server is an HTTP port") {
  const absl::Status refused =
      absl::UnavailableError("failed to connect to all addresses: Trying to connect an http1.x server");
  CHECK(absl::StrContains(Explain(refused, Server("")).message(), "the port answers HTTP"));
}

TEST_CASE("Option --key refuses what no header can contain, without showing it") {
  for (const std::string key : {"secret\n", "sec ret", "s\x80"}) {
    CLI::App app;
    ServerOptions server;
    AddServerFlags(app, server);
    std::string error;
    try {
      app.parse(std::vector<std::string>{key, "--key"});  // CLI11 takes the arguments in reverse
    } catch (const CLI::ValidationError& refused) {
      error = refused.what();
    }
    CHECK(absl::StrContains(error, "--key: expected printable ASCII"));
    CHECK_FALSE(absl::StrContains(error, "sec"));
  }
}

TEST_CASE("Explain keeps errors that the router states") {
  const absl::Status stated = absl::NotFoundError("model: unknown: 'x'");
  CHECK(Explain(stated, Server("")) == stated);
}

}  // namespace
}  // namespace baton
