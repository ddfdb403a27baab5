#include "rpc/proto_json.h"

#include <optional>
#include <variant>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/json/json_body.h"
#include "base/status.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/util/json_util.h"
#include "model/sampling_params.h"
#include "rpc/sampling_convert.h"

namespace baton {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// Returns INVALID_ARGUMENT if a field appears twice. Protobuf's parser treats "cache_salt" and
// "cacheSalt" as one field and keeps the last value. A gateway that validates the first value would
// then validate nothing. REQUIRES: `json` is no deeper than kMaxJsonDepth. REQUIRES: `message` has
// neither map fields nor fields with a json_name.
absl::Status CheckFieldsOnce(const Json& json, const Descriptor& message, const std::string& path) {
  if (!json.is_object()) return absl::OkStatus();
  absl::flat_hash_set<const FieldDescriptor*> seen;
  for (const auto& [name, value] : json.items()) {
    const FieldDescriptor* field = message.FindFieldByName(name);
    if (field == nullptr) field = message.FindFieldByCamelcaseName(name);
    // Protobuf's parser refuses unknown fields by name.
    if (field == nullptr) continue;
    const std::string where = absl::StrCat(path, ".", field->name());
    if (!seen.insert(field).second) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": expected once, got a second value as '", name, "'"));
    }
    if (field->type() != FieldDescriptor::TYPE_MESSAGE) continue;
    if (!value.is_array()) RETURN_IF_ERROR(CheckFieldsOnce(value, *field->message_type(), where));
    for (size_t i = 0; value.is_array() && i < value.size(); ++i) {
      RETURN_IF_ERROR(CheckFieldsOnce(value[i], *field->message_type(), absl::StrCat(where, "[", i, "]")));
    }
  }
  return absl::OkStatus();
}

// Parses `json`, whose parsed form is `parsed`.
absl::Status ParseChecked(const std::string& json, const Json& parsed, google::protobuf::Message& message) {
  RETURN_IF_ERROR(CheckFieldsOnce(parsed, *message.GetDescriptor(), "body"));
  const auto status = google::protobuf::util::JsonStringToMessage(json, &message);
  if (status.ok()) return absl::OkStatus();
  const auto why = status.message();
  return absl::InvalidArgumentError(absl::StrCat("body: ", std::string(why.data(), why.size())));
}

// Returns the number at a field. Protobuf's JSON may have a number as a text too.
std::optional<double> NumberAt(const Json& object, const FieldDescriptor& field) {
  auto value = object.find(std::string(field.name()));
  if (value == object.end()) value = object.find(std::string(field.camelcase_name()));
  if (value == object.end()) return std::nullopt;
  if (value->is_number()) return value->get<double>();
  double number = 0;
  const bool reads = value->is_string() && absl::SimpleAtod(value->get_ref<const std::string&>(), &number);
  return reads ? std::optional(number) : std::nullopt;
}

// Sets the floats of `out` to those of a JSON object. Leaves other fields, and values of another
// type, to protobuf's parser.
absl::Status ReadFloats(const Json& sampling, v1::Sampling& out) {
  SamplingParams params;
  for (const SamplingField& field : SamplingFields()) {
    const auto* member = std::get_if<float DrawParams::*>(&field.member);
    if (member == nullptr) continue;
    const auto number = NumberAt(sampling, *v1::Sampling::descriptor()->FindFieldByName(std::string(field.name)));
    if (!number) continue;
    ASSIGN_OR_RETURN(params.draw.**member, ToFloat(field, WireName(field), *number));
    SetField(params, field, out);
  }
  return absl::OkStatus();
}

}  // namespace

std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  BATON_CHECK(google::protobuf::util::MessageToJsonString(message, &json, options).ok(),
              "Baton's messages convert to JSON");
  return json;
}

absl::Status ParseRpc(const std::string& json, google::protobuf::Message& message) {
  ASSIGN_OR_RETURN(const Json parsed, ParseJson(json, "body"));
  return ParseChecked(json, parsed, message);
}

absl::Status ParseRpc(const std::string& json, v1::GenerateRequest& request) {
  ASSIGN_OR_RETURN(const Json parsed, ParseJson(json, "body"));
  v1::Sampling floats;
  const auto sampling = parsed.find("sampling");
  if (sampling != parsed.end() && sampling->is_object()) RETURN_IF_ERROR(ReadFloats(*sampling, floats));
  RETURN_IF_ERROR(ParseChecked(json, parsed, request));
  // An empty message must not set the field.
  if (floats.ByteSizeLong() > 0) request.mutable_sampling()->MergeFrom(floats);
  return absl::OkStatus();
}

}  // namespace baton
