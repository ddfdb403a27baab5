#include "base/root_cause.h"

#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace baton {
namespace {

constexpr char kRequest[] = "baton/root_cause/request", kAgent[] = "baton/root_cause/agent",
               kCode[] = "baton/root_cause/code", kMessage[] = "baton/root_cause/message";

std::string TextOf(const absl::Status& status, const char* payload) {
  const auto text = status.GetPayload(payload);
  return text ? std::string(*text) : "";
}

}  // namespace

std::optional<RootCause> RootCauseOf(const absl::Status& status) {
  int code = 0;
  if (!absl::SimpleAtoi(TextOf(status, kCode), &code)) return std::nullopt;
  return RootCause{TextOf(status, kRequest), TextOf(status, kAgent), static_cast<absl::StatusCode>(code),
                   TextOf(status, kMessage)};
}

absl::Status WithRootCause(absl::Status status, const RootCause& cause) {
  status.SetPayload(kRequest, absl::Cord(cause.request));
  status.SetPayload(kAgent, absl::Cord(cause.agent));
  status.SetPayload(kCode, absl::Cord(absl::StrCat(static_cast<int>(cause.code))));
  status.SetPayload(kMessage, absl::Cord(cause.message));
  return status;
}

absl::Status AsRootCause(const absl::Status& status, std::string request, std::string agent) {
  if (RootCauseOf(status)) return status;
  const std::string message(status.message().substr(0, kMaxCauseBytes));
  return WithRootCause(status, {std::move(request), std::move(agent), status.code(), message});
}

}  // namespace baton
