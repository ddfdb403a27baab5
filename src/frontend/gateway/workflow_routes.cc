#include "frontend/gateway/workflow_routes.h"

#include <string>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "base/strings.h"
#include "frontend/request_reader.h"
#include "rpc/proto_json.h"

namespace baton {
namespace {

absl::StatusOr<int32_t> Cancel(const GatewayParts& parts, const HttpCall& call) {
  v1::CancelWorkflowRequest request;
  if (!call.request.body.empty()) RETURN_IF_ERROR(ParseRpc(call.request.body, request));
  if (!request.workflow().empty()) {
    return absl::InvalidArgumentError("workflow: expected only the name in the path, got one in the body too");
  }
  v1::GenerateRequest names;
  names.set_workflow(NameInPath(call.request.path, kWorkflowPath));
  names.set_cache_salt(request.cache_salt());
  RETURN_IF_ERROR(CheckNames(names));
  return parts.router.CancelWorkflow(names.workflow(), CacheDomainOf(*call.caller, names.cache_salt()));
}

}  // namespace

void ServeCancelWorkflow(const GatewayParts& parts, const SharedCall& call) {
  const absl::StatusOr<int32_t> cancelled = Cancel(parts, *call);
  call->reply->Send(cancelled.ok() ? JsonResponse(call->id, StrCat("{\"cancelled_requests\":", *cancelled, "}"))
                                   : ErrorResponse(call->id, cancelled.status()));
}

}  // namespace baton
