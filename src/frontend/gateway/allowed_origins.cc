#include "frontend/gateway/allowed_origins.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "base/strings.h"

namespace baton {
namespace {

constexpr char kAll[] = "*";
constexpr char kNull[] = "null";
// Headers of answers that scripts may read. OpenAI's client obeys the first two.
constexpr char kExposed[] = "retry-after, x-should-retry, x-request-id, traceparent, x-baton-followers";
// Headers of requests that are allowed if the browser names none.
constexpr char kUsualHeaders[] = "authorization, content-type, x-api-key";
// Seconds for which a browser need not ask again.
constexpr char kPreflightSeconds[] = "600";

bool IsListOfNames(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return IsPlain(c, "!#$%&'*+-.^_`|~, "); });
}

}  // namespace

absl::Status CheckOrigin(std::string_view origin) {
  if (origin == kAll || origin == kNull) return absl::OkStatus();
  const auto error = [origin](const auto& expected) {
    return absl::InvalidArgumentError(
        StrCat("expected ", expected, ", got '", absl::CHexEscape(ToAbsl(origin.substr(0, 256))), "'"));
  };
  constexpr char kForm[] = "SCHEME://HOST[:PORT] in lower case and without a path, null or *";
  const size_t mark = origin.find("://");
  if (mark == std::string_view::npos || mark == 0) return error(kForm);
  const std::string_view scheme = origin.substr(0, mark), host = origin.substr(mark + 3);
  const auto is_lower = [](std::string_view text, std::string_view more) {
    return std::ranges::all_of(text, [more](char c) { return IsPlain(c, more) && (c < 'A' || c > 'Z'); });
  };
  if (host.empty() || !is_lower(scheme, "+-.") || !is_lower(host, "-._:[]")) return error(kForm);
  if ((scheme == "https" && host.ends_with(":443")) || (scheme == "http" && host.ends_with(":80"))) {
    return error("no default port, because browsers leave it out");
  }
  return absl::OkStatus();
}

AllowedOrigins::AllowedOrigins(std::vector<std::string> origins)
    : origins_(std::move(origins)), all_(std::ranges::find(origins_, kAll) != origins_.end()) {}

bool AllowedOrigins::Allow(std::string_view origin) const {
  const bool is_listed = std::ranges::find(origins_, origin) != origins_.end();
  return !origin.empty() && (is_listed || (all_ && origin != kNull));
}

HttpHeaders AllowedOrigins::AnswerHeaders(std::string_view origin) const {
  if (origins_.empty()) return {};
  HttpHeaders headers{{"vary", "Origin"}};  // a cache must not give one page's answer to another
  if (Allow(origin)) {
    headers.emplace_back("access-control-allow-origin", origin);
    headers.emplace_back("access-control-expose-headers", kExposed);
  }
  return headers;
}

bool IsPreflight(const HttpRequest& request) {
  return request.method == "OPTIONS" && !request.header("access-control-request-method").empty();
}

HttpHeaders PreflightHeaders(const HttpRequest& preflight) {
  // Clients add headers of their own, such as x-stainless-os, with every version. "*" would not
  // include "authorization".
  const std::string_view wanted = preflight.header("access-control-request-headers");
  return {{"access-control-allow-methods", "GET, HEAD, POST, DELETE"},
          {"access-control-allow-headers", IsListOfNames(wanted) ? std::string(wanted) : kUsualHeaders},
          {"access-control-max-age", kPreflightSeconds}};
}

}  // namespace baton
