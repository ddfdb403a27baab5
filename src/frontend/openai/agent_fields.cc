#include "frontend/openai/agent_fields.h"

#include <string>

#include "base/check.h"
#include "base/request_id.h"
#include "base/status.h"
#include "base/strings.h"
#include "frontend/openai/body_readers.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "request/priority.h"

namespace baton {
namespace {

// Reads a name of an enum of the protocol. The name is the end of the enum's constant: "partial"
// for ON_FAILURE_PARTIAL.
template <typename Enum, size_t N>
std::optional<Enum> ReadEnum(FieldReader& reader, std::string_view field,
                             const std::pair<std::string_view, Enum> (&names)[N]) {
  const std::string* text = reader.Text(field);
  if (text == nullptr) return std::nullopt;
  std::string known;
  for (const auto& [name, value] : names) {
    if (*text == name) return value;
    known += StrCat(known.empty() ? "'" : ", '", name, "'");
  }
  reader.Refuse(field, StrCat("expected one of ", known, ", got ", ShowJson(*text)));
  return std::nullopt;
}

void ReadOutputOfFields(FieldReader& fields, v1::OutputOf& out) {
  if (const auto* id = fields.Text("request_id")) out.set_request_id(*id);
  if (const auto announced = fields.Bool("announced")) out.set_announced(*announced);
  const auto on_failure = ReadEnum<v1::OutputOf::OnFailure>(fields, "on_failure",
                                                            {{"abort", v1::OutputOf::ON_FAILURE_ABORT},
                                                             {"partial", v1::OutputOf::ON_FAILURE_PARTIAL},
                                                             {"substitute", v1::OutputOf::ON_FAILURE_SUBSTITUTE}});
  if (on_failure) out.set_on_failure(*on_failure);
  if (const auto* substitute = fields.Text("substitute")) out.set_substitute(*substitute);
  if (!out.substitute().empty() && out.on_failure() != v1::OutputOf::ON_FAILURE_SUBSTITUTE) {
    fields.Refuse("substitute", "requires on_failure 'substitute'");
  }
  if (const auto with_reasoning = fields.Bool("with_reasoning")) out.set_with_reasoning(*with_reasoning);
  if (const auto timeout = fields.Integer("timeout_ms")) out.set_timeout_ms(*timeout);
}

constexpr std::string_view kSegmentKinds = "'text', 'token_ids', 'output_of', 'group'";
constexpr std::string_view kPartKinds = "'text', 'token_ids', 'output_of', 'agent_name'";

// Reads a segment of a prompt, or of a part group if `in_group` is set.
absl::Status ReadSegment(const Json& element, const std::string& path, const ServedModel& model, bool in_group,
                         v1::Segment& segment) {
  FieldReader fields(element, path);
  int kinds = 0;
  if (const auto* text = fields.Text("text")) {
    segment.set_text(*text);
    ++kinds;
  }
  if (const Json* ids = fields.Array("token_ids")) {
    fields.Check(ReadTokenIds(*ids, fields.Path("token_ids"), model, *segment.mutable_token_ids()));
    ++kinds;
  }
  if (fields.Any("output_of") != nullptr) {
    ReadOutputOf(fields, *segment.mutable_output_of());
    ++kinds;
  }
  if (!in_group && fields.Any("group") != nullptr) {
    ReadGroup(fields, model, *segment.mutable_group());
    ++kinds;
  }
  if (const Json* name = in_group ? fields.Object("agent_name") : nullptr) {
    segment.mutable_agent_name();
    fields.Check(FieldReader(*name, fields.Path("agent_name")).Finish());
    ++kinds;
  }
  if (in_group && fields.Refused("group") != nullptr) fields.Refuse("group", "a group must not contain a group");
  if (!in_group && fields.Refused("agent_name") != nullptr) fields.Refuse("agent_name", "is for parts of a group");
  RETURN_IF_ERROR(fields.Finish());
  if (kinds == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat(path, ": expected one of ", in_group ? kPartKinds : kSegmentKinds, ", got ", kinds, " of them"));
}

}  // namespace

void ReadRequestField(BodyDraft& draft, const ApiField& field) {
  using google::protobuf::FieldDescriptor;
  const FieldDescriptor* wire = v1::GenerateRequest::descriptor()->FindFieldByName(std::string(field.name));
  BATON_CHECK(wire != nullptr, "a field of the table has no field in baton.v1.GenerateRequest");
  const google::protobuf::Reflection& reflection = *v1::GenerateRequest::GetReflection();
  if (wire->type() == FieldDescriptor::TYPE_STRING) {
    if (const auto* text = draft.body.Text(field.name)) reflection.SetString(&draft.request, wire, *text);
    return;
  }
  if (wire->type() == FieldDescriptor::TYPE_BOOL) {
    if (const auto flag = draft.body.Bool(field.name)) reflection.SetBool(&draft.request, wire, *flag);
    return;
  }
  // The others are numbers of tokens.
  const bool is_priority = field.name == "priority";
  const auto number =
      is_priority ? draft.body.Integer32(field.name, -kMaxPriority, kMaxPriority) : draft.body.Integer32(field.name, 0);
  if (number) reflection.SetInt32(&draft.request, wire, *number);
}

void ReadJoin(BodyDraft& draft, const ApiField& field) {
  const auto join =
      ReadEnum<v1::Join>(draft.body, field.name, {{"order", v1::JOIN_ORDER}, {"arrival", v1::JOIN_ARRIVAL}});
  if (join) draft.request.set_join(*join);
}

void ReadWorkflowLimits(BodyDraft& draft, const ApiField& field) {
  const Json* object = draft.body.Object(field.name);
  if (object == nullptr) return;
  FieldReader fields(*object, draft.body.Path(field.name));
  v1::WorkflowLimits& limits = *draft.request.mutable_workflow_limits();
  if (const auto deadline = fields.Integer("deadline_ms", 1, kMaxTimeoutMs)) limits.set_deadline_ms(*deadline);
  if (const auto tokens = fields.Integer("max_tokens", 1)) limits.set_max_tokens(*tokens);
  draft.body.Check(fields.Finish());
}

void ReadOutputOf(FieldReader& owner, v1::OutputOf& out) {
  const Json* value = owner.Any("output_of");
  if (value == nullptr) return;
  if (value->is_string()) {
    out.set_request_id(value->get_ref<const std::string&>());
    // An id that is sent without an object has a path without "request_id".
    if (out.request_id().empty()) owner.Refuse("output_of", "must not be empty");
    return owner.Check(CheckRequestId(owner.Path("output_of"), out.request_id()));
  }
  if (!value->is_object()) return owner.RefuseType("output_of", "a request id or an object", *value);
  FieldReader fields(*value, owner.Path("output_of"));
  ReadOutputOfFields(fields, out);
  owner.Check(fields.Finish());
}

void ReadGroup(FieldReader& owner, const ServedModel& model, v1::Group& group) {
  const Json* list = owner.Array("group");
  if (list == nullptr) return;
  const std::string path = owner.Path("group");
  for (size_t i = 0; i < list->size() && owner.ok(); ++i) {
    owner.Check(ReadSegment((*list)[i], ElementPath(path, i), model, true, *group.add_parts()));
  }
}

void ReadSegmentList(FieldReader& body, const ServedModel& model, v1::Segments& segments) {
  const Json* list = body.Array("segments");
  if (list == nullptr) return;
  for (size_t i = 0; i < list->size() && body.ok(); ++i) {
    body.Check(ReadSegment((*list)[i], ElementPath("segments", i), model, false, *segments.add_segments()));
  }
}

absl::Status ReadTokenIds(const Json& list, std::string_view path, const ServedModel& model, v1::TokenIds& ids) {
  ids.mutable_ids()->Reserve(static_cast<int>(list.size()));
  for (size_t i = 0; i < list.size(); ++i) {
    const auto id = AsInteger(list[i], 0, int64_t{model.vocab} - 1);
    if (!id) return WrongType(ElementPath(path, i), StrCat("a token id in [0, ", model.vocab, ")"), list[i]);
    ids.add_ids(static_cast<int32_t>(*id));
  }
  return CheckNamed(path, {ids.ids().data(), static_cast<size_t>(ids.ids_size())}, model);
}

}  // namespace baton
