// Errors in OpenAI's format (rpc/status_table.h).
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace baton {

// Returns the HTTP status for an error. 499 means that the client cancelled. REQUIRES: status is
// not OK.
int HttpStatusOf(const absl::Status& status);

// Returns the body {"error": {"message", "type", "param", "code"}}. `param` is the field with which
// the message begins, or null. If another request caused the error, the object has the member
// `root` with {"request_id", "agent", "code", "message"}. `partial` is the JSON of the member
// `partial`, the generated part of an answer, or empty. REQUIRES: status is not OK.
std::string ErrorBody(const absl::Status& status, std::string_view partial = {});

}  // namespace baton
