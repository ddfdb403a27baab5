#include "frontend/gateway/host_check.h"

#include <string>

#include "catch.h"

namespace baton {
namespace {

TEST_CASE("CheckHost accepts addresses and localhost only") {
  const auto accepts = [](const char* host) { return CheckHost(host).ok(); };
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
  const absl::Status refused = CheckHost("evil.example:80");
  CHECK(absl::IsPermissionDenied(refused));
  const std::string message(refused.message());
  CHECK(message.find("'evil.example:80'") != std::string::npos);
  CHECK(message.find("--keys") != std::string::npos);
}

}  // namespace
}  // namespace baton
