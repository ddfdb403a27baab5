#include "server/proto_json.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "google/protobuf/util/json_util.h"

namespace baton {

std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  BATON_CHECK(google::protobuf::util::MessageToJsonString(message, &json, options).ok(), "a message of ours is JSON");
  return json;
}

absl::Status ParseRpc(const std::string& json, google::protobuf::Message& message) {
  const auto status = google::protobuf::util::JsonStringToMessage(json, &message);
  if (status.ok()) return absl::OkStatus();
  const auto why = status.message();
  return absl::InvalidArgumentError(absl::StrCat("body: ", std::string(why.data(), why.size())));
}

}  // namespace baton
