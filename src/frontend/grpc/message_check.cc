#include "frontend/grpc/message_check.h"

#include <map>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/stubs/common.h"
#include "google/protobuf/unknown_field_set.h"
#include "rpc/grpc_server.h"

namespace baton {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;

// Upper bound on the nesting of messages. Baton's own messages nest less deep.
constexpr int kMaxDepth = 16;

std::optional<std::string> FindBadString(std::string_view bytes, const Descriptor& type, int depth) {
  UnknownFieldSet fields;
  if (depth == 0 || !fields.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return std::nullopt;
  std::map<int, int> seen;  // how often each field number has occurred, for indices
  for (int i = 0; i < fields.field_count(); ++i) {
    const UnknownField& value = fields.field(i);
    const FieldDescriptor* field = type.FindFieldByNumber(value.number());
    if (field == nullptr || value.type() != UnknownField::TYPE_LENGTH_DELIMITED) continue;
    const int index = seen[value.number()]++;
    const std::string name = field->is_repeated() ? absl::StrCat(field->name(), "[", index, "]") : field->name();
    const std::string& content = value.length_delimited();
    if (field->type() == FieldDescriptor::TYPE_STRING) {
      // This is the check by which protobuf refused the message.
      if (!google::protobuf::internal::IsStructurallyValidUTF8(content)) return name;
    } else if (field->type() == FieldDescriptor::TYPE_MESSAGE) {
      const auto inner = FindBadString(content, *field->message_type(), depth - 1);
      if (inner) return absl::StrCat(name, ".", *inner);
    }
  }
  return std::nullopt;
}

}  // namespace

absl::Status ExplainParseError(std::string_view bytes, const google::protobuf::Message& message) {
  const Descriptor& type = *message.GetDescriptor();
  if (const auto field = FindBadString(bytes, type, kMaxDepth)) {
    return absl::InvalidArgumentError(absl::StrCat(*field, ": is not valid UTF-8"));
  }
  return absl::InvalidArgumentError(absl::StrCat("the message is no valid encoding of ", type.full_name()));
}

absl::Status Parse(const grpc::ByteBuffer& bytes, google::protobuf::Message& message) {
  if (bytes.Length() > kMaxMessageBytes) {
    return absl::InvalidArgumentError(absl::StrCat("message: ", bytes.Length(), " bytes, limit ", kMaxMessageBytes));
  }
  grpc::Slice slice;
  if (!bytes.DumpToSingleSlice(&slice).ok()) return absl::InvalidArgumentError("the message has no content");
  if (message.ParseFromArray(slice.begin(), static_cast<int>(slice.size()))) return absl::OkStatus();
  return ExplainParseError({reinterpret_cast<const char*>(slice.begin()), slice.size()}, message);
}

}  // namespace baton
