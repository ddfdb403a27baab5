#include "frontend/gateway/http_call.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/retry.h"
#include "frontend/openai/openai_error.h"
#include "rpc/status_table.h"

namespace baton {

HttpResponse Response(int status, const CallId& id, const std::string& content_type, std::string body) {
  HttpResponse response{.status = status,
                        .headers = {{"x-request-id", id.request_id}, {"traceparent", ToTraceparent(id.span)}},
                        .body = std::move(body)};
  if (!content_type.empty()) response.headers.emplace_back("content-type", content_type);
  return response;
}

HttpResponse JsonResponse(const CallId& id, std::string body) {
  return Response(200, id, "application/json", std::move(body));
}

void OpenEventStream(HttpReply& reply, HttpResponse head) { reply.Open(std::move(head), ": waiting\n\n"); }

HttpResponse EventStream(const CallId& id) {
  HttpResponse response = Response(200, id, "text/event-stream", "");
  response.headers.emplace_back("cache-control", "no-cache");
  response.headers.emplace_back("x-accel-buffering", "no");  // otherwise nginx buffers events
  return response;
}

HttpResponse ErrorResponse(const CallId& id, const absl::Status& status, absl::Duration retry_after,
                           std::string_view partial) {
  HttpResponse response = Response(HttpStatusOf(status), id, "application/json", ErrorBody(status, partial));
  if (absl::IsUnauthenticated(status)) response.headers.emplace_back("www-authenticate", "Bearer");
  // OpenAI's clients retry a 409 or a 5xx on their own.
  if (StatusRowOf(status.code()).retry == Retry::kNever) response.headers.emplace_back("x-should-retry", "false");
  if (const absl::Duration delay = RetryDelayOf(status, retry_after); delay > absl::ZeroDuration()) {
    response.headers.emplace_back("retry-after",
                                  absl::StrCat(absl::ToInt64Seconds(absl::Ceil(delay, absl::Seconds(1)))));
  }
  return response;
}

std::string NameInPath(std::string_view path, std::string_view prefix) {
  std::string_view escaped = path.substr(prefix.size());
  if (escaped.ends_with('/')) escaped.remove_suffix(1);
  const auto digit = [](char c) { return absl::ascii_isxdigit(static_cast<unsigned char>(c)); };
  std::string out;
  for (size_t i = 0; i < escaped.size(); ++i) {
    if (escaped[i] == '%' && i + 2 < escaped.size() && digit(escaped[i + 1]) && digit(escaped[i + 2])) {
      out += absl::HexStringToBytes(absl::string_view(escaped.data() + i + 1, 2));
      i += 2;
    } else {
      out += escaped[i];
    }
  }
  return out;
}

}  // namespace baton
