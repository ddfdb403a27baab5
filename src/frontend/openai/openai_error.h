// Errors as clients of OpenAI know them.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace baton {

// 499: the client cancelled. REQUIRES: status is not OK.
int HttpStatusOf(const absl::Status& status);

// {"error": {"message", "type", "param", "code"}}. `param` is the field that the message begins with, or null.
// REQUIRES: status is not OK.
std::string ErrorBody(const absl::Status& status);

}  // namespace baton
