// One HTTP request on its way through the gateway, and the forms of its answer.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/trace_context.h"
#include "frontend/callers.h"
#include "frontend/http/http_message.h"
#include "frontend/http/http_reply.h"
#include "shell/request_handle.h"

namespace baton {

// What every answer to a call tells of it.
struct CallId {
  std::string request_id;  // x-request-id
  TraceContext span;       // traceparent: ours, in the caller's trace
};

// Thread-safe as far as its reply is: the rest does not change.
struct HttpCall {
  HttpRequest request;
  std::shared_ptr<HttpReply> reply;
  CallId id;
  absl::Time arrived;
  Caller caller;
};

// `content_type`: may be empty, where there is no body.
HttpResponse Response(int status, const CallId& id, const std::string& content_type, std::string body);
HttpResponse JsonResponse(const CallId& id, std::string body);
// Answers with server-sent events, as they come. While there are none the client hears a comment from time to time.
void OpenEventStream(HttpReply& reply, HttpResponse head);
HttpResponse EventStream(const CallId& id);
// In OpenAI's shape. A zero `retry_after` is not known.
HttpResponse ErrorResponse(const CallId& id, const absl::Status& status, absl::Duration retry_after = {});

// What becomes of a request whose client has gone.
inline void LeaveTo(Gone why, RequestHandle& request) { why == Gone::kCutOff ? request.LetGo() : request.Cancel(); }

}  // namespace baton
