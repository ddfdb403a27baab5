#include "frontend/openai/openai_error.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/root_cause.h"
#include "base/strings.h"
#include "frontend/openai/json_text.h"
#include "rpc/status_table.h"

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

// The texts before the limit in errors about length: the context length, or what fits into the
// largest decode worker.
constexpr std::string_view kLimits[] = {" (context length ", " (KV memory for "};

// Returns the limit on the tokens of a prompt and its output, if the error is that they exceed it.
// Such messages contain "(context length N of 'MODEL'...)". Empty for other errors.
std::string_view ContextOf(absl::StatusCode code, std::string_view field, std::string_view message) {
  if (code != absl::StatusCode::kInvalidArgument) return "";
  if (field.ends_with(']')) field = field.substr(0, field.find('['));
  if (std::ranges::find(kLengthFields, field) == std::end(kLengthFields)) return "";
  for (const std::string_view before : kLimits) {
    const size_t at = message.find(before);
    if (at == std::string_view::npos) continue;
    const std::string_view rest = message.substr(at + before.size());
    return rest.substr(0, rest.find_first_not_of("0123456789"));
  }
  return "";
}

std::string_view NameOf(const StatusRow& row, std::string_view field, bool too_long) {
  if (too_long) return "context_length_exceeded";
  return row.code == absl::StatusCode::kNotFound && field == "model" ? "model_not_found" : row.name;
}

void AppendRoot(std::string& out, const RootCause& cause) {
  out += ",\"root\":{\"request_id\":";
  AppendJsonString(out, cause.request);
  out += ",\"agent\":";
  AppendJsonString(out, cause.agent);
  out += ",\"code\":";
  AppendJsonString(out, StatusRowOf(cause.code).name);
  out += ",\"message\":";
  AppendJsonString(out, cause.message);
  out += "}";
}

}  // namespace

int HttpStatusOf(const absl::Status& status) { return StatusRowOf(status.code()).http; }

std::string ErrorBody(const absl::Status& status, std::string_view partial) {
  const std::string_view message = Message(status);
  const StatusRow& row = StatusRowOf(status.code());
  // Statuses from 429 on are not a field's fault.
  const std::string_view field = row.http < 429 ? FieldOf(message) : "";
  // Agent frameworks shorten a chat when they find this text or the code.
  const std::string_view context = ContextOf(status.code(), field, message);
  const std::string whole = context.empty()
                                ? std::string(message)
                                : StrCat("This model's maximum context length is ", context, " tokens. ", message);
  std::string out = "{\"error\":{\"message\":";
  AppendJsonString(out, whole);
  out += ",\"type\":";
  AppendJsonString(out, row.type);
  out += ",\"param\":";
  out += field.empty() ? "null" : JsonString(field);
  out += ",\"code\":";
  AppendJsonString(out, NameOf(row, field, !context.empty()));
  if (const std::optional<RootCause> cause = RootCauseOf(status)) AppendRoot(out, *cause);
  if (!partial.empty()) out += StrCat(",\"partial\":", partial);
  out += "}}";
  return out;
}

}  // namespace baton
