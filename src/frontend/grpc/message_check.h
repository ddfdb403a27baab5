// Explains why a message could not be parsed, and names the field.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace baton {

// Explains why `bytes` did not parse as `message`. Returns INVALID_ARGUMENT that names the first
// string field that is not UTF-8. If there is none, the error states that the encoding is broken.
absl::Status ExplainParseError(std::string_view bytes, const google::protobuf::Message& message);

}  // namespace baton
