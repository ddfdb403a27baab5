#include "membership/worker_names.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/strings.h"

namespace baton {
namespace {

constexpr size_t kMaxNameBytes = 253;  // RFC 1035
constexpr size_t kMaxPrefixBytes = 256;

bool IsPort(absl::string_view text) {
  int port = 0;
  const bool digits = std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  return digits && absl::SimpleAtoi(text, &port) && port >= 1 && port <= 65535;
}

// Returns whether gRPC interprets HOST:PORT with this host as SCHEME:REST. For example, gRPC dials
// unix:1 as the socket file "1".
bool IsScheme(absl::string_view host) {
  constexpr absl::string_view kSchemes[] = {"dns",   "ipv4", "ipv6",   "unix",       "unix-abstract",
                                            "vsock", "xds",  "binder", "google-c2p", "google-c2p-experimental"};
  return std::any_of(std::begin(kSchemes), std::end(kSchemes),
                     [&](absl::string_view scheme) { return absl::EqualsIgnoreCase(host, scheme); });
}

bool IsPrefix(absl::string_view text) {
  const auto allowed = [](unsigned char c) { return std::isgraph(c) != 0 && c != ','; };
  return text.size() > 1 && text[0] == '/' && text.size() <= kMaxPrefixBytes &&
         std::all_of(text.begin(), text.end(), allowed);
}

}  // namespace

bool IsDnsName(absl::string_view text) {
  const auto allowed = [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.'; };
  return !text.empty() && text.size() <= kMaxNameBytes && std::all_of(text.begin(), text.end(), allowed);
}

bool IsWorkerAddress(absl::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos || !IsPort(text.substr(colon + 1))) return false;
  absl::string_view host = text.substr(0, colon);
  if (!absl::ConsumePrefix(&host, "[")) return IsDnsName(host) && !IsScheme(host);
  in6_addr address{};
  return absl::ConsumeSuffix(&host, "]") && inet_pton(AF_INET6, std::string(host).c_str(), &address) == 1;
}

absl::StatusOr<WorkerName> ParseWorkerName(const std::string& text) {
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "srv:")) {
    if (IsDnsName(rest)) return WorkerName{WorkerName::Kind::kService, std::string(rest)};
    return absl::InvalidArgumentError(StrCat("expected srv:NAME, the DNS name of SRV records, got '", text, "'"));
  }
  if (absl::ConsumePrefix(&rest, "etcd:")) {
    if (IsPrefix(rest)) return WorkerName{WorkerName::Kind::kEtcd, StrCat(absl::StripSuffix(rest, "/"), "/")};
    return absl::InvalidArgumentError(
        StrCat("expected etcd:PREFIX, the beginning of keys such as /baton/decode, got '", text, "'"));
  }
  const bool hosts = absl::ConsumePrefix(&rest, "dns:");
  const size_t colon = rest.rfind(':');
  const bool has_port = colon != absl::string_view::npos && colon > 0 && IsPort(rest.substr(colon + 1));
  const bool plain =
      std::all_of(rest.begin(), rest.end(), [](unsigned char c) { return std::isgraph(c) != 0 && c != '/'; });
  if (!hosts && has_port && plain) return WorkerName{WorkerName::Kind::kAddress, text};
  if (hosts && has_port && IsDnsName(rest.substr(0, colon))) {
    return WorkerName{WorkerName::Kind::kHosts, std::string(rest.substr(0, colon)),
                      std::string(rest.substr(colon + 1))};
  }
  return absl::InvalidArgumentError(StrCat(
      "expected HOST:PORT, dns:HOST:PORT, srv:NAME or etcd:PREFIX with a port from 1 to 65535, got '", text, "'"));
}

}  // namespace baton
