#include "server/openai_gateway.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/strings.h"
#include "server/completion_routes.h"
#include "server/prompt_reader.h"
#include "server/status_routes.h"

namespace baton {
namespace {

// Browsers name the page that makes a request. One of another site may not read the answer, but it could make anybody's
// browser use a router that listens on loopback only.
bool IsOtherSites(const HttpRequest& request) {
  const std::string_view origin = request.header("origin"), host = request.header("host");
  return !origin.empty() && origin != StrCat("http://", host) && origin != StrCat("https://", host);
}

}  // namespace

const OpenAiGateway::Route OpenAiGateway::kRoutes[] = {
    {"POST", "/v1/completions", ServeCompletion},
    {"POST", "/v1/chat/completions", ServeChat},
    {"GET", "/v1/models", ServeModels},
    {"GET", "/v1/models/", ServeModel},
    {"POST", "/tokenize", ServeTokenize},
    {"POST", "/detokenize", ServeDetokenize},
    {"POST", "/generate", ServeGenerate},
    {"POST", "/prefill_only", ServePrefillOnly},
    {"GET", "/health", ServeHealth, Route::For::kAll},
    {"GET", "/version", ServeVersion},
    {"GET", "/metrics", ServeMetricsText, Route::For::kOperators},
};

const OpenAiGateway::Route* OpenAiGateway::Find(std::string_view path) {
  const auto found = std::ranges::find_if(kRoutes, [&](const Route& route) {
    return route.path.ends_with('/') ? path.starts_with(route.path) && path != route.path : path == route.path;
  });
  return found == std::end(kRoutes) ? nullptr : found;
}

std::string OpenAiGateway::IdOf(const HttpRequest& request) {
  const std::string_view given = request.header("x-request-id");
  const bool usable = !given.empty() && CheckRequestId("x-request-id", given).ok();
  return usable ? std::string(given) : parts_.admission.DrawId();
}

// Of a path that is not there, too: what there is, a stranger is not told.
absl::StatusOr<Caller> OpenAiGateway::CallerOf(const HttpRequest& request, const Route* route) const {
  const Callers& callers = parts_.admission.callers();
  const Route::For audience = route == nullptr ? Route::For::kTenants : route->audience;
  if (audience == Route::For::kAll) return std::make_shared<const Tenant>();
  const std::string_view authorization = request.header("authorization");
  return audience == Route::For::kOperators ? callers.AuthenticateOperator(authorization)
                                            : callers.Authenticate(authorization);
}

void OpenAiGateway::OnRequest(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  std::string id = IdOf(request);
  if (IsOtherSites(request)) {
    return reply->Send(ErrorResponse(id, absl::PermissionDeniedError("Origin: pages of other sites have no access")));
  }
  const Route* route = Find(request.path);
  absl::StatusOr<Caller> caller = CallerOf(request, route);
  if (!caller.ok()) return reply->Send(ErrorResponse(id, caller.status()));
  if (route == nullptr) {
    const std::string shown = absl::CHexEscape(request.path.substr(0, 256));
    return reply->Send(ErrorResponse(id, absl::NotFoundError(absl::StrCat("there is nothing at '", shown, "'"))));
  }
  const bool reads = route->method == "GET";
  if (request.method == route->method || (reads && request.method == "HEAD")) {
    HttpCall call{std::move(request), std::move(reply), std::move(id), parts_.clock.Now(), *std::move(caller)};
    return route->serve(parts_, std::make_shared<const HttpCall>(std::move(call)));
  }
  const bool asks = request.method == "OPTIONS";
  HttpResponse response =
      asks ? Response(204, id, "", "")
           : ErrorResponse(id, absl::InvalidArgumentError(StrCat("method: expected ", route->method, ", got '",
                                                                 absl::CHexEscape(request.method.substr(0, 64)), "'")));
  if (!asks) response.status = 405;
  response.headers.emplace_back("allow", reads ? "GET, HEAD, OPTIONS" : "POST, OPTIONS");
  reply->Send(response);
}

HttpResponse OpenAiGateway::Refusal(int status, const std::string& message) {
  const bool overloaded = status == 503;
  HttpResponse response = ErrorResponse(
      parts_.admission.DrawId(), overloaded ? absl::UnavailableError(message) : absl::InvalidArgumentError(message),
      overloaded ? ClientAdmission::kRetryHint : absl::ZeroDuration());
  response.status = status;
  return response;
}

}  // namespace baton
