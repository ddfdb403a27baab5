// Messages of the protocol as JSON, with the fields' names of the .proto files.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace baton {

// Fields that have their default are left out; 64-bit integers are strings.
std::string ToJson(const google::protobuf::Message& message);
// INVALID_ARGUMENT names the field: the text is not JSON or not this message, a field is unknown, or a field is given
// twice, be it once as "cache_salt" and once as "cacheSalt".
absl::Status ParseRpc(const std::string& json, google::protobuf::Message& message);

}  // namespace baton
