// Conversion between protobuf messages and JSON, with the field names of the .proto files.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "inference.pb.h"

namespace baton {

// Prints a message. Fields with their default value are omitted. 64-bit integers are printed as
// strings.
std::string ToJson(const google::protobuf::Message& message);
// Parses `json` into `message`. Returns INVALID_ARGUMENT with the name of the field for each of
// these:
// - The text is not JSON or does not match the message.
// - A field is unknown.
// - A field appears twice. "cache_salt" and "cacheSalt" are the same field.
absl::Status ParseRpc(const std::string& json, google::protobuf::Message& message);
// As above. Also checks the floats of the sampling parameters with all their digits, and sets each
// as ToFloat does: protobuf's parser rounds a number before it can be checked.
absl::Status ParseRpc(const std::string& json, v1::GenerateRequest& request);

}  // namespace baton
