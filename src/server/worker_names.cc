#include "server/worker_names.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/strings.h"

namespace baton {
namespace {

constexpr size_t kLongestName = 253;  // RFC 1035

bool IsPort(absl::string_view text) {
  int port = 0;
  const bool digits = std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  return digits && absl::SimpleAtoi(text, &port) && port >= 1 && port <= 65535;
}

}  // namespace

bool IsDnsName(absl::string_view text) {
  const auto allowed = [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.'; };
  return !text.empty() && text.size() <= kLongestName && std::all_of(text.begin(), text.end(), allowed);
}

absl::StatusOr<WorkerName> ParseWorkerName(const std::string& text) {
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "srv:")) {
    if (IsDnsName(rest)) return WorkerName{WorkerName::Kind::kService, std::string(rest)};
    return absl::InvalidArgumentError(StrCat("expected srv:NAME, the DNS name of SRV records, got '", text, "'"));
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
  return absl::InvalidArgumentError(
      StrCat("expected HOST:PORT, dns:HOST:PORT or srv:NAME with a port from 1 to 65535, got '", text, "'"));
}

}  // namespace baton
