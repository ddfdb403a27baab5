#include "rpc/status_table.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace baton {
namespace {

using Code = absl::StatusCode;

constexpr char kInvalid[] = "invalid_request_error", kServer[] = "server_error";

constexpr StatusRow kRows[] = {
    {Code::kCancelled, 499, kInvalid, "cancelled", Retry::kUnstated},
    {Code::kUnknown, 500, kServer, "unknown", Retry::kUnstated},
    {Code::kInvalidArgument, 400, kInvalid, "invalid_argument", Retry::kUnstated},
    {Code::kDeadlineExceeded, 504, kServer, "deadline_exceeded", Retry::kNever},
    {Code::kNotFound, 404, kInvalid, "not_found", Retry::kUnstated},
    {Code::kAlreadyExists, 409, kInvalid, "already_exists", Retry::kNever},
    {Code::kPermissionDenied, 403, "permission_error", "permission_denied", Retry::kUnstated},
    {Code::kResourceExhausted, 429, "rate_limit_error", "rate_limit_exceeded", Retry::kAfter},
    {Code::kFailedPrecondition, 400, kInvalid, "failed_precondition", Retry::kUnstated},
    {Code::kAborted, 409, kInvalid, "aborted", Retry::kNever},
    {Code::kOutOfRange, 400, kInvalid, "out_of_range", Retry::kUnstated},
    {Code::kUnimplemented, 400, kInvalid, "unsupported", Retry::kUnstated},
    {Code::kInternal, 500, kServer, "internal", Retry::kUnstated},
    {Code::kUnavailable, 503, kServer, "unavailable", Retry::kAfter},
    {Code::kDataLoss, 500, kServer, "data_loss", Retry::kUnstated},
    {Code::kUnauthenticated, 401, "authentication_error", "invalid_api_key", Retry::kUnstated},
};

}  // namespace

std::span<const StatusRow> StatusTable() { return kRows; }

const StatusRow& StatusRowOf(absl::StatusCode code) {
  BATON_CHECK(code != Code::kOk, "an answer without an error has no row");
  const auto* const found = std::ranges::find(kRows, code, &StatusRow::code);
  return found == std::end(kRows) ? StatusRowOf(Code::kUnknown) : *found;
}

}  // namespace baton
