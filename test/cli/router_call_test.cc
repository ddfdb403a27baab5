#include "cli/router_call.h"

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

TEST_CASE("Explain keeps errors that the router states") {
  const absl::Status stated = absl::NotFoundError("model: unknown: 'x'");
  CHECK(Explain(stated, Server("")) == stated);
}

}  // namespace
}  // namespace baton
