// Why a message could not be parsed, told by field.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace baton {

// For bytes that did not parse as `message`: INVALID_ARGUMENT that names the first string field that is not UTF-8, or
// says that the encoding is broken.
absl::Status ExplainParseError(std::string_view bytes, const google::protobuf::Message& message);

}  // namespace baton
