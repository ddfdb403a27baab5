// Messages of the protocol as JSON, with the fields' names of the .proto files.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace baton {

// Fields that have their default are left out; 64-bit integers are strings.
std::string ToJson(const google::protobuf::Message& message);
// INVALID_ARGUMENT: it is no JSON, or no such message; a field that is not known is named.
absl::Status ParseRpc(const std::string& json, google::protobuf::Message& message);

}  // namespace baton
