#include "rpc/grpc_status.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace baton {

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
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
