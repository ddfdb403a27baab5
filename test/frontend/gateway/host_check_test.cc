#include "frontend/gateway/host_check.h"

#include <string>
#include <vector>

#include "catch.h"

namespace baton {
namespace {

TEST_CASE("CheckHost accepts addresses and localhost only") {
  const auto accepts = [](const char* host) { return CheckHost(host, {}).ok(); };
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
  const absl::Status refused = CheckHost("evil.example:80", {});
  CHECK(absl::IsPermissionDenied(refused));
  const std::string message(refused.message());
  CHECK(message.find("'evil.example:80'") != std::string::npos);
  CHECK(message.find("--keys") != std::string::npos);
}

TEST_CASE("CheckHost accepts the given names too") {
  const std::vector<std::string> names = {"router.example", "baton"};
  for (const char* host : {"router.example", "Router.Example.:8000", "BATON:1", "127.0.0.1:8000", "localhost."}) {
    INFO(host);
    CHECK(CheckHost(host, names).ok());
  }
  for (const char* host :
       {"a.router.example", "router.example.evil", "router", "baton..", "batonx", "router.example:1:2"}) {
    INFO(host);
    CHECK(absl::IsPermissionDenied(CheckHost(host, names)));
  }
  CHECK(std::string(CheckHost("evil", names).message()).find("--keys") == std::string::npos);
}

TEST_CASE("CheckHostName refuses what is no host name") {
  for (const char* name : {"router.example", "router", "a-b_c.example."}) CHECK(CheckHostName(name).ok());
  for (const std::string& name : {std::string(), std::string("router:80"), std::string("*.example"), std::string("::1"),
                                  std::string("10.0.0.1"), std::string("http://router"), std::string("a b"),
                                  std::string(".example"), std::string("r\xc3\xb6uter"), std::string(254, 'a')}) {
    INFO(name);
    CHECK(absl::IsInvalidArgument(CheckHostName(name)));
  }
}

}  // namespace
}  // namespace baton
