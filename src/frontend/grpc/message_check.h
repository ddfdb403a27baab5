// Parses messages, and explains why one could not be parsed.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "grpcpp/grpcpp.h"

namespace baton {

// Explains why `bytes` did not parse as `message`. Returns INVALID_ARGUMENT that names the first
// string field that is not UTF-8. If there is none, the error states that the encoding is broken.
absl::Status ExplainParseError(std::string_view bytes, const google::protobuf::Message& message);

// Parses the message of a client's call. Returns INVALID_ARGUMENT if it is too long, or as above.
absl::Status Parse(const grpc::ByteBuffer& bytes, google::protobuf::Message& message);

}  // namespace baton
