#include "frontend/gateway/gateway.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/request_id.h"
#include "base/strings.h"
#include "base/version.h"
#include "frontend/gateway/completion_routes.h"
#include "frontend/gateway/host_check.h"
#include "frontend/gateway/output_routes.h"
#include "frontend/gateway/status_routes.h"
#include "frontend/gateway/ui_routes.h"
#include "frontend/gateway/workflow_routes.h"
#include "frontend/openai/json_text.h"
#include "frontend/openai/near_name.h"

namespace baton {
namespace {

// Returns the traceparent, or an empty text if the request has none or more than one. With more
// than one, it is unclear which of them is right.
std::string_view TraceparentOf(const HttpRequest& request) {
  const auto is_one = [](const auto& header) { return absl::EqualsIgnoreCase(header.first, "traceparent"); };
  return std::ranges::count_if(request.headers, is_one) == 1 ? request.header("traceparent") : std::string_view();
}

// Anthropic's clients send the key in "x-api-key". Returns the header "authorization", or one with
// that key. Returns UNAUTHENTICATED if the request has two different keys.
absl::StatusOr<std::string> AuthorizationOf(const HttpRequest& request) {
  const std::string_view authorization = request.header("authorization"), key = request.header("x-api-key");
  if (key.empty()) return std::string(authorization);
  constexpr std::string_view kScheme = "Bearer ";
  const bool is_bearer = absl::StartsWithIgnoreCase(ToAbsl(authorization), ToAbsl(kScheme));
  // A proxy may have put another scheme there.
  if (!is_bearer) return StrCat(kScheme, key);
  if (authorization.substr(kScheme.size()) == key) return std::string(authorization);
  return absl::UnauthenticatedError("x-api-key: expected the key of authorization, or only one of the two headers");
}

bool HasBody(const HttpRequest& head) {
  const std::string_view length = head.header("content-length");
  return !head.header("transfer-encoding").empty() || length.find_first_not_of('0') != std::string_view::npos;
}

}  // namespace

const OpenAiGateway::Route OpenAiGateway::kRoutes[] = {
    {"POST", "/v1/completions", ServeCompletion},
    {"POST", "/v1/chat/completions", ServeChat},
    {"GET", "/v1/models", ServeModels},
    {"GET", "/v1/models/", ServeModel},
    {"POST", "/v1/outputs/", ServePutOutput},
    {"POST", "/tokenize", ServeTokenize},
    {"POST", "/detokenize", ServeDetokenize},
    {"POST", "/generate", ServeGenerate},
    {"POST", "/prefill_only", ServePrefillOnly},
    {"DELETE", kWorkflowPath, ServeCancelWorkflow},
    {"GET", "/health", ServeHealth, Route::For::kAll},
    {"GET", "/version", ServeVersion},
    {"GET", "/metrics", ServeMetricsText, Route::For::kOperators},
    {"GET", "/ui", ServeUiPage, Route::For::kAll},
    {"GET", "/ui/status", ServeUiStatus, Route::For::kOperators},
    {"POST", "/ui/workflows", ServeUiWorkflows},
    {"POST", "/ui/trace", ServeUiTrace},
    {"GET", "/", ServeIndex},
};

const OpenAiGateway::Route* OpenAiGateway::Find(std::string_view path) {
  // The page at /ui asks for paths relative to its own.
  if (path.size() > 1 && path.ends_with('/') && path != "/ui/") path.remove_suffix(1);
  const auto* const found = std::ranges::find_if(kRoutes, [&](const Route& route) {
    const bool is_prefix = route.path.size() > 1 && route.path.ends_with('/');
    return is_prefix ? path.starts_with(route.path) : path == route.path;
  });
  return found == std::end(kRoutes) ? nullptr : found;
}

// Clients add "/v1" to a base URL that has it, or leave it out.
std::string_view OpenAiGateway::NearestPath(std::string_view path) {
  if (path.ends_with('/')) path.remove_suffix(1);
  std::string_view nearest;
  std::vector<std::string_view> known;
  for (const Route& route : kRoutes) {
    if (route.path.ends_with('/')) continue;
    known.push_back(route.path);
    const std::string_view tail = route.path.substr(route.path.starts_with("/v1/") ? 3 : 0);
    if (path.ends_with(tail) && route.path.size() > nearest.size()) nearest = route.path;
  }
  return nearest.empty() ? NearestName(path, known) : nearest;
}

void OpenAiGateway::ServeIndex(const GatewayParts&, const SharedCall& call) {
  std::string routes;
  for (const Route& route : kRoutes) {
    const std::string_view name = route.path.size() > 1 && route.path.ends_with('/') ? "NAME" : "";
    routes += StrCat(routes.empty() ? "" : ",", "\"", route.method, " ", route.path, name, "\"");
  }
  call->reply->Send(JsonResponse(call->id, StrCat("{\"service\":\"baton\",\"version\":", JsonString(kVersion),
                                                  ",\"openai_base_url\":\"/v1\",\"routes\":[", routes, "]}")));
}

CallId OpenAiGateway::IdOf(const HttpRequest& request) {
  const std::string_view given = request.header("x-request-id");
  const bool usable = !given.empty() && CheckRequestId("x-request-id", given).ok();
  return {usable ? std::string(given) : parts_.admission.DrawId(), BeginSpan(TraceparentOf(request))};
}

// Unknown paths need a key too, so that a caller without a key cannot find out which paths exist.
absl::StatusOr<Caller> OpenAiGateway::CallerOf(const HttpRequest& request, const Route* route) {
  Callers& callers = parts_.admission.callers();
  const Route::For audience = route == nullptr ? Route::For::kTenants : route->audience;
  if (audience == Route::For::kAll) return std::make_shared<const Tenant>();
  const absl::StatusOr<std::string> authorization = AuthorizationOf(request);
  if (!authorization.ok() && callers.asks()) return authorization.status();
  const CallOrigin origin{"HTTP", request.peer, route == nullptr ? "an unknown path" : route->path};
  return audience == Route::For::kOperators ? callers.AuthenticateOperator(authorization.value_or(""), origin)
                                            : callers.Authenticate(authorization.value_or(""), origin);
}

HttpResponse OpenAiGateway::OtherMethod(const Route& route, const HttpRequest& request, const CallId& id) {
  const bool asks = request.method == "OPTIONS";
  HttpResponse response =
      asks ? Response(204, id, "", "")
           : ErrorResponse(id, absl::InvalidArgumentError(StrCat("method: expected ", route.method, ", got '",
                                                                 absl::CHexEscape(request.method.substr(0, 64)), "'")));
  if (!asks) response.status = 405;
  response.headers.emplace_back("allow",
                                route.method == "GET" ? "GET, HEAD, OPTIONS" : StrCat(route.method, ", OPTIONS"));
  return response;
}

// Returns whether a page of another site made this request. Browsers name the page's site in
// "origin". Such a page cannot read the answer. Without this check, it could make any visitor's
// browser use a router that listens on loopback only. If this port is encrypted, pages over plain
// HTTP count as another site, because they can be forged on the way. If it is not encrypted, a
// proxy before it may be, so both schemes are accepted.
bool OpenAiGateway::IsOtherSites(const HttpRequest& request) const {
  const std::string_view origin = request.header("origin"), host = request.header("host");
  if (origin.empty() || origin == StrCat("https://", host)) return false;
  return encrypted_ || origin != StrCat("http://", host);
}

std::optional<HttpResponse> OpenAiGateway::RefusalFor(const Route* route, const HttpRequest& head, const CallId& id) {
  if (route == nullptr) {
    const std::string shown = absl::CHexEscape(head.path.substr(0, 256));
    const std::string_view near = NearestPath(head.path);
    const std::string hint = near.empty() ? "" : StrCat(". Did you mean '", near, "'?");
    return ErrorResponse(id, absl::NotFoundError(StrCat("unknown path '", shown, "'", hint)));
  }
  const bool is_read = route->method == "GET" && head.method == "HEAD";
  if (head.method != route->method && !is_read) return OtherMethod(*route, head, id);
  // Health checks need no key. Without this check, a caller without a key could fill memory with
  // bodies.
  if (route->method == "GET" && HasBody(head)) {
    return ErrorResponse(id, absl::InvalidArgumentError(StrCat("body: expected none for ", route->path)));
  }
  return std::nullopt;
}

// Probes of load balancers name any host, so /health answers to every name.
absl::Status OpenAiGateway::CheckAccess(const HttpRequest& head, const Route* route) const {
  if (IsOtherSites(head) && !origins_.Allow(head.header("origin"))) {
    return absl::PermissionDeniedError("Origin: pages of other sites are refused (--allow-origin)");
  }
  const bool is_probe = route != nullptr && route->serve == ServeHealth;
  return checks_host_ && !is_probe ? CheckHost(head.header("host"), host_names_) : absl::OkStatus();
}

OpenAiGateway::Decision OpenAiGateway::Decide(const HttpRequest& head, const CallId& id) {
  const Route* route = Find(head.path);
  const absl::Status access = CheckAccess(head, route);
  if (!access.ok()) return {.refusal = ErrorResponse(id, access)};
  // Browsers send no key with a preflight.
  if (origins_.Allow(head.header("origin")) && IsPreflight(head)) {
    HttpResponse answer = Response(204, id, "", "");
    std::ranges::move(PreflightHeaders(head), std::back_inserter(answer.headers));
    return {.refusal = std::move(answer)};
  }
  absl::StatusOr<Caller> caller = CallerOf(head, route);
  if (!caller.ok()) return {.refusal = ErrorResponse(id, caller.status())};
  return {.refusal = RefusalFor(route, head, id), .route = route, .caller = *std::move(caller)};
}

HttpHeaders OpenAiGateway::AnswerHeaders(const HttpRequest& head) {
  return origins_.AnswerHeaders(head.header("origin"));
}

std::optional<HttpResponse> OpenAiGateway::OnHead(HttpRequest& head) {
  Decision decision = Decide(head, IdOf(head));
  if (decision.caller != nullptr) head.account = decision.caller->name;
  return std::move(decision.refusal);
}

void OpenAiGateway::OnRequest(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  CallId id = IdOf(request);
  // The keys are checked again, because they may have changed since the head arrived.
  Decision decision = Decide(request, id);
  if (decision.refusal) return reply->Send(*decision.refusal);
  HttpCall call{std::move(request), std::move(reply), std::move(id), parts_.clock.Now(), std::move(decision.caller)};
  decision.route->serve(parts_, std::make_shared<const HttpCall>(std::move(call)));
}

HttpResponse OpenAiGateway::Refusal(int status, const std::string& message) {
  HttpResponse response =
      ErrorResponse({parts_.admission.DrawId(), BeginSpan("")},
                    status == 503 ? absl::UnavailableError(message) : absl::InvalidArgumentError(message));
  response.status = status;
  return response;
}

}  // namespace baton
