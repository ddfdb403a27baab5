#include "frontend/gateway/ui_routes.h"

#include <string>
#include <utility>

#include "base/strings.h"
#include "frontend/server_info.h"
#include "frontend/trace_convert.h"
#include "frontend/ui/page.h"
#include "rpc/proto_json.h"

namespace baton {
namespace {

HttpResponse Hardened(HttpResponse response) {
  response.headers.emplace_back("cache-control", "no-store");
  response.headers.emplace_back("x-content-type-options", "nosniff");
  response.headers.emplace_back("referrer-policy", "no-referrer");
  return response;
}

void AnswerHardened(const HttpCall& call, const absl::StatusOr<std::string>& json) {
  call.reply->Send(Hardened(json.ok() ? JsonResponse(call.id, *json) : ErrorResponse(call.id, json.status())));
}

// Calls `answer` on another thread, because a trace may have megabytes. Skips it if the client has
// left.
template <typename Request>
void AnswerElsewhere(const GatewayParts& parts, const SharedCall& call,
                     absl::StatusOr<std::string> (*answer)(const GatewayParts& parts, const HttpCall& call,
                                                           const Request& request)) {
  Request request;
  if (const absl::Status status = ParseRpc(call->request.body, request); !status.ok())
    return AnswerHardened(*call, status);
  const absl::Status run = parts.admission.RunView(*call->caller, [parts, call, request = std::move(request), answer] {
    if (!call->reply->gone()) AnswerHardened(*call, answer(parts, *call, request));
  });
  if (!run.ok()) call->reply->Send(ErrorResponse(call->id, run));
}

absl::StatusOr<std::string> TraceJson(const GatewayParts& parts, const HttpCall& call,
                                      const v1::TraceRequest& request) {
  const auto trace = parts.router.TraceOf(request.workflow(), CacheDomainOf(*call.caller, request.cache_salt()));
  if (!trace.ok()) return trace.status();
  return ToJson(ToProto(*trace));
}

absl::StatusOr<std::string> WorkflowsJson(const GatewayParts& parts, const HttpCall& call,
                                          const v1::ListWorkflowsRequest& request) {
  return ToJson(ToProto(parts.router.WorkflowsOf(CacheDomainOf(*call.caller, request.cache_salt()))));
}

}  // namespace

void ServeUiPage(const GatewayParts&, const SharedCall& call) {
  static const std::string policy = UiPolicy("'self'") + "; frame-ancestors 'none'";
  HttpResponse page = Hardened(Response(200, call->id, "text/html; charset=utf-8", std::string(UiPage())));
  page.headers.emplace_back("content-security-policy", policy);
  call->reply->Send(std::move(page));
}

void ServeUiStatus(const GatewayParts& parts, const SharedCall& call) {
  AnswerHardened(*call, ToJson(ServerInfo(parts.router, parts.admission.callers())));
}

void ServeUiWorkflows(const GatewayParts& parts, const SharedCall& call) {
  AnswerElsewhere<v1::ListWorkflowsRequest>(parts, call, WorkflowsJson);
}

void ServeUiTrace(const GatewayParts& parts, const SharedCall& call) {
  AnswerElsewhere<v1::TraceRequest>(parts, call, TraceJson);
}

}  // namespace baton
