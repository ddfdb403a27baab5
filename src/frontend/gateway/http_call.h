// One HTTP call in the gateway, and the forms of its answer.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/trace_context.h"
#include "frontend/callers.h"
#include "frontend/http/http_message.h"
#include "frontend/http/http_reply.h"
#include "shell/request_handle.h"

namespace baton {

// Ids that every answer to a call carries.
struct CallId {
  // x-request-id. The client's own, or a drawn one, until the call is a request with an id.
  std::string request_id;
  TraceContext span;  // traceparent: this router's span in the caller's trace
  // Returns the ids of an answer to the request with this id.
  CallId For(const std::string& request) const { return {request, span}; }
};

// Thread-safe, because HttpReply is thread-safe and the other members do not change.
struct HttpCall {
  HttpRequest request;
  std::shared_ptr<HttpReply> reply;
  CallId id;
  absl::Time arrived;
  Caller caller;
};

// `content_type` may be empty if there is no body.
HttpResponse Response(int status, const CallId& id, const std::string& content_type, std::string body);
HttpResponse JsonResponse(const CallId& id, std::string body);
// Answers with server-sent events, as they are written. During a long pause the client receives
// comments.
void OpenEventStream(HttpReply& reply, HttpResponse head);
HttpResponse EventStream(const CallId& id);
// An error in OpenAI's JSON form. `retry_after` is as in RetryDelayOf, `partial` as in ErrorBody.
HttpResponse ErrorResponse(const CallId& id, const absl::Status& status, absl::Duration retry_after = {},
                           std::string_view partial = {});

// Returns the rest of a path behind `prefix`, without a slash at its end. Decodes percent escapes:
// "%20" is a space. Malformed escapes are kept as they are. REQUIRES: the path has the prefix.
std::string NameInPath(std::string_view path, std::string_view prefix);

// Cancels or detaches a request whose client has left.
inline void OnClientGone(Gone why, RequestHandle& request) {
  why == Gone::kCutOff ? request.Detach() : request.Cancel();
}

}  // namespace baton
