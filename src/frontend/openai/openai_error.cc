#include "frontend/openai/openai_error.h"

#include <algorithm>
#include <string_view>

#include "base/strings.h"
#include "frontend/openai/json_text.h"

namespace baton {
namespace {

// Fields that errors name if a prompt and its output exceed the context length.
constexpr std::string_view kLengthFields[] = {"prompt",
                                              "segments",
                                              "messages",
                                              "max_tokens",
                                              "max_completion_tokens",
                                              "chat.messages",
                                              "segments.segments",
                                              "sampling.max_tokens",
                                              "tokens"};

// Returns the field with which a message begins. Messages about a field begin with "FIELD: ".
std::string_view FieldOf(std::string_view message) {
  const auto end = std::ranges::find_if_not(message, [](char c) { return IsPlain(c, "_.[]"); });
  if (!std::string_view(end, message.end()).starts_with(": ")) return "";
  return {message.begin(), end};
}

std::string_view TypeOf(absl::StatusCode code, int http) {
  switch (code) {
    case absl::StatusCode::kUnauthenticated:
      return "authentication_error";
    case absl::StatusCode::kPermissionDenied:
      return "permission_error";
    case absl::StatusCode::kResourceExhausted:
      return "rate_limit_error";
    default:
      return http >= 500 ? "server_error" : "invalid_request_error";
  }
}

// Returns the model's context length, if the error is that the prompt exceeds it. Such messages
// contain "(context length N of 'MODEL'...)". Empty for other errors.
std::string_view ContextOf(absl::StatusCode code, std::string_view field, std::string_view message) {
  if (code != absl::StatusCode::kInvalidArgument) return "";
  if (field.ends_with(']')) field = field.substr(0, field.find('['));
  if (std::ranges::find(kLengthFields, field) == std::end(kLengthFields)) return "";
  constexpr std::string_view kBefore = " (context length ";
  const size_t at = message.find(kBefore);
  if (at == std::string_view::npos) return "";
  const std::string_view rest = message.substr(at + kBefore.size());
  return rest.substr(0, rest.find_first_not_of("0123456789"));
}

std::string CodeOf(absl::StatusCode code, std::string_view field, bool too_long) {
  if (too_long) return "context_length_exceeded";
  switch (code) {
    case absl::StatusCode::kUnimplemented:
      return "unsupported";
    case absl::StatusCode::kUnauthenticated:
      return "invalid_api_key";
    case absl::StatusCode::kResourceExhausted:
      return "rate_limit_exceeded";
    case absl::StatusCode::kNotFound:
      return field == "model" ? "model_not_found" : "not_found";
    default:
      return absl::AsciiStrToLower(absl::StatusCodeToString(code));
  }
}

}  // namespace

int HttpStatusOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted:
      return 409;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kCancelled:
      return 499;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

std::string ErrorBody(const absl::Status& status) {
  const std::string_view message = Message(status);
  const int http = HttpStatusOf(status);
  // Statuses from 429 on are not a field's fault.
  const std::string_view field = http < 429 ? FieldOf(message) : "";
  // Agent frameworks shorten a chat when they find this text or the code.
  const std::string_view context = ContextOf(status.code(), field, message);
  const std::string whole = context.empty()
                                ? std::string(message)
                                : StrCat("This model's maximum context length is ", context, " tokens. ", message);
  std::string out = "{\"error\":{\"message\":";
  AppendJsonString(out, whole);
  out += ",\"type\":";
  AppendJsonString(out, TypeOf(status.code(), http));
  out += ",\"param\":";
  out += field.empty() ? "null" : JsonString(field);
  out += ",\"code\":";
  AppendJsonString(out, CodeOf(status.code(), field, !context.empty()));
  out += "}}";
  return out;
}

}  // namespace baton
