#include "frontend/gateway/host_check.h"

#include <arpa/inet.h>

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "base/strings.h"

namespace baton {
namespace {

// Removes the brackets of an IPv6 address too.
std::string_view WithoutPort(std::string_view host) {
  if (!host.starts_with('[')) return host.substr(0, host.rfind(':'));
  const size_t end = host.find(']');
  return end == std::string_view::npos ? host : host.substr(1, end - 1);
}

bool IsAddress(std::string_view host) {
  const std::string text(host);
  in6_addr address{};
  return inet_pton(AF_INET, text.c_str(), &address) == 1 || inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

}  // namespace

absl::Status CheckHost(std::string_view host) {
  const std::string_view name = WithoutPort(host);
  if (host.empty() || IsAddress(name) || absl::EqualsIgnoreCase(ToAbsl(name), "localhost")) return absl::OkStatus();
  return absl::PermissionDeniedError(
      StrCat("Host: expected an IP address or localhost, got '", absl::CHexEscape(ToAbsl(host.substr(0, 256))),
             "': a router without --keys answers to no other name; use its address, or give it --keys"));
}

}  // namespace baton
