#include "rpc/grpc_status.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/root_cause.h"
#include "inference.pb.h"
#include "text/utf8.h"

namespace baton {

namespace {

// Replaces bytes that are not UTF-8, which protobuf's parsers refuse. Leaves out the start of a
// character at the end.
std::string Utf8Of(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const Utf8Unit unit = FirstUtf8Unit(bytes);
    if (unit.kind == Utf8Kind::kCharacter) text += bytes.substr(0, unit.size);
    if (unit.kind == Utf8Kind::kInvalid) text += '?';
    bytes.remove_prefix(unit.size);
  }
  return text;
}

// Returns the StatusDetails of a root cause. Clients refuse trailing metadata over 8 KiB, so the
// message of the status is not repeated.
std::string DetailsOf(const absl::Status& status, const RootCause& cause) {
  v1::RootCause root;
  root.set_request_id(cause.request);
  root.set_agent(Utf8Of(cause.agent));
  root.set_code(static_cast<int>(cause.code));
  root.set_message(Utf8Of(cause.message));
  v1::StatusDetails details;
  details.set_code(static_cast<int>(status.code()));
  v1::Detail& detail = *details.add_details();
  detail.set_type_url("type.googleapis.com/baton.v1.RootCause");
  detail.set_value(root.SerializeAsString());
  return details.SerializeAsString();
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const auto code = static_cast<grpc::StatusCode>(status.code());
  const std::optional<RootCause> cause = RootCauseOf(status);
  if (!cause) return {code, std::string(status.message())};
  return {code, std::string(status.message()), DetailsOf(status, *cause)};
}

absl::StatusCode StatusCodeFrom(int code) {
  return code >= 0 && code <= 16 ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown;
}

absl::Status FromGrpc(const grpc::Status& status) {
  return {StatusCodeFrom(status.error_code()), status.error_message()};
}

void AddRetryAfter(grpc::ServerContextBase& context, absl::Duration retry_after) {
  if (retry_after <= absl::ZeroDuration()) return;
  const int64_t ms = std::max<int64_t>(absl::ToInt64Milliseconds(retry_after), 1);
  context.AddTrailingMetadata(kRetryAfterKey, absl::StrCat(ms));
}

absl::Duration RetryAfterOf(const grpc::ClientContext& context) {
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto found = metadata.find(kRetryAfterKey);
  int64_t ms = 0;
  if (found == metadata.end() ||
      !absl::SimpleAtoi(absl::string_view(found->second.data(), found->second.size()), &ms)) {
    return absl::ZeroDuration();
  }
  return absl::Milliseconds(std::max<int64_t>(ms, 0));
}

}  // namespace baton
