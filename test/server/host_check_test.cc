#include "server/host_check.h"

#include <string>

#include "catch.h"

namespace baton {
namespace {

TEST_CASE("on loopback, addresses and localhost are hosts, and no others; elsewhere all are") {
  const auto accepts = [](const char* host) { return CheckHost(host, "127.0.0.1:8000").ok(); };
  for (const char* host :
       {"", "127.0.0.1", "127.0.0.1:8000", "10.1.2.3", "localhost", "LocalHost:1", "[::1]", "[::1]:80"}) {
    INFO(host);
    CHECK(accepts(host));
  }
  for (const char* host :
       {"evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.example", "xlocalhost",
        "router.example.evil", "[evil]", "[::1", "2130706433", "127.0.0.1:80:evil", ":80", ":"}) {
    INFO(host);
    CHECK_FALSE(accepts(host));
  }
  for (const char* listen : {"0.0.0.0:8000", "router.example:8000", "[::]:8000"}) {
    CHECK(CheckHost("baton-router:8000", listen).ok());
  }
  const absl::Status refused = CheckHost("evil.example:80", "127.0.0.1:8000");
  CHECK(absl::IsPermissionDenied(refused));
  const std::string message(refused.message());
  CHECK(message.find("'evil.example:80'") != std::string::npos);
  CHECK(message.find("--keys") != std::string::npos);
}

}  // namespace
}  // namespace baton
