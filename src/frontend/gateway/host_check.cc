#include "frontend/gateway/host_check.h"

#include <arpa/inet.h>

#include <algorithm>

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

std::string_view WithoutLastDot(std::string_view name) {
  if (name.size() > 1 && name.ends_with('.')) name.remove_suffix(1);
  return name;
}

bool IsSameName(std::string_view a, std::string_view b) {
  return absl::EqualsIgnoreCase(ToAbsl(WithoutLastDot(a)), ToAbsl(WithoutLastDot(b)));
}

}  // namespace

absl::Status CheckHostName(std::string_view name) {
  constexpr size_t kLongest = 253;  // of a name in DNS
  const bool is_plain = std::ranges::all_of(name, [](char c) { return IsPlain(c, "-._"); });
  if (!name.empty() && name.size() <= kLongest && is_plain && !name.starts_with('.') && !IsAddress(name)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(StrCat("expected a host name without a port, such as router.example, got '",
                                           absl::CHexEscape(ToAbsl(name)), "'"));
}

absl::Status CheckHost(std::string_view host, const std::vector<std::string>& names) {
  const std::string_view name = WithoutPort(host);
  const auto is_it = [name](std::string_view known) { return IsSameName(name, known); };
  if (host.empty() || IsAddress(name) || is_it("localhost") || std::ranges::any_of(names, is_it)) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(StrCat("Host: expected an IP address, localhost or a name of --host-name, got '",
                                            absl::CHexEscape(ToAbsl(host.substr(0, 256))),
                                            "': use the router's address, or start it with --host-name",
                                            names.empty() ? " or --keys" : ""));
}

}  // namespace baton
