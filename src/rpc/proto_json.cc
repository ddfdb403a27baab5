#include "rpc/proto_json.h"

#include <optional>
#include <variant>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/json/json_body.h"
#include "base/status.h"
#include "base/strings.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/util/json_util.h"
#include "model/sampling_params.h"
#include "rpc/sampling_convert.h"

namespace baton {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

std::string Join(std::string_view path, std::string_view member) {
  return path.empty() ? std::string(member) : StrCat(path, ".", member);
}

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
    const std::string where = Join(path, field->name());
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

// Returns the reason of a type error in Baton's words. Changes `path` to that of the field.
std::string TypeError(std::string_view value, std::string_view type, std::string& path) {
  if (value == "Starting an object on a scalar field") {
    // The type is the field's name, and the path is that of its parent or of an element.
    const std::string_view last = std::string_view(path).substr(path.rfind('.') + 1);
    if (last.substr(0, last.find('[')) != type) path = Join(path, type);
    return "expected no object, got an object";
  }
  constexpr std::string_view kScalar = "TYPE_", kMessage = "type.googleapis.com/";
  std::string name(type);
  if (type.starts_with(kScalar)) name = absl::AsciiStrToLower(name.substr(kScalar.size()));
  if (type.starts_with(kMessage)) name = name.substr(kMessage.size());
  return StrCat("expected ", name, ", got ", value);
}

// Returns an error of protobuf's parser as "FIELD: WHY". The parser writes "(FIELD): invalid value
// VALUE for type TYPE", and "(OBJECT) MEMBER: WHY" about other mistakes. It omits the parentheses
// for the whole message.
absl::Status FieldError(std::string_view error) {
  std::string path;
  if (const size_t end = error.find(')'); error.starts_with('(') && end != error.npos) {
    path = error.substr(1, end - 1);
    error.remove_prefix(end + 1);
  }
  const size_t colon = error.starts_with(": ") ? 0 : error.rfind(": ");
  if (colon == error.npos) return absl::InvalidArgumentError(StrCat("body: ", error));
  if (colon > 0) path = Join(path, error.substr(0, colon).substr(error.starts_with(' ') ? 1 : 0));
  std::string why(error.substr(colon + 2));
  constexpr std::string_view kInvalid = "invalid value ", kType = " for type ";
  if (const size_t type = why.rfind(kType); why.starts_with(kInvalid) && type != why.npos) {
    const std::string_view text(why);
    why = TypeError(text.substr(0, type).substr(kInvalid.size()), text.substr(type + kType.size()), path);
  } else if (why == "Cannot find field.") {
    why = "is not supported";
  } else if (why == "Proto field is not repeating, cannot start list.") {
    why = "expected one value, got a list";
  }
  return absl::InvalidArgumentError(StrCat(path.empty() ? "body" : path, ": ", why));
}

// Parses `json`, whose parsed form is `parsed`.
absl::Status ParseChecked(const std::string& json, const Json& parsed, google::protobuf::Message& message) {
  RETURN_IF_ERROR(CheckFieldsOnce(parsed, *message.GetDescriptor(), ""));
  const auto status = google::protobuf::util::JsonStringToMessage(json, &message);
  if (status.ok()) return absl::OkStatus();
  return FieldError({status.message().data(), status.message().size()});
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
  ASSIGN_OR_RETURN(const Json parsed, ParseJson(json, ""));
  return ParseChecked(json, parsed, message);
}

absl::Status ParseRpc(const std::string& json, v1::GenerateRequest& request) {
  ASSIGN_OR_RETURN(const Json parsed, ParseJson(json, ""));
  v1::Sampling floats;
  const auto sampling = parsed.find("sampling");
  if (sampling != parsed.end() && sampling->is_object()) RETURN_IF_ERROR(ReadFloats(*sampling, floats));
  RETURN_IF_ERROR(ParseChecked(json, parsed, request));
  // An empty message must not set the field.
  if (floats.ByteSizeLong() > 0) request.mutable_sampling()->MergeFrom(floats);
  return absl::OkStatus();
}

}  // namespace baton
