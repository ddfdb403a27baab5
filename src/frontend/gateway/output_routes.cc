#include "frontend/gateway/output_routes.h"

#include <limits>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/json/json_body.h"
#include "base/request_id.h"
#include "base/status.h"
#include "frontend/name_headers.h"
#include "frontend/openai/field_reader.h"
#include "frontend/openai/json_text.h"
#include "frontend/value_writer.h"

namespace baton {
namespace {

constexpr std::string_view kPath = "/v1/outputs/";

// An id has no character that needs an escape but ":", which some clients escape.
std::string IdIn(std::string_view path) {
  std::string id;
  for (path.remove_prefix(kPath.size()); !path.empty();) {
    const bool colon = path.starts_with("%3A") || path.starts_with("%3a");
    id += colon ? ':' : path.front();
    path.remove_prefix(colon ? 3 : 1);
  }
  return id;
}

// Reads what it can, also if it returns an error.
absl::Status ReadBody(const Json& body, v1::PutOutputRequest& value) {
  FieldReader fields(body, "");
  if (const auto* salt = fields.Text("cache_salt")) value.set_cache_salt(*salt);
  if (const auto* workflow = fields.Text("workflow")) value.set_workflow(*workflow);
  if (const auto* agent = fields.Text("agent")) value.set_agent(*agent);
  if (const auto* model = fields.Text("model")) value.set_model(*model);
  const std::string* text = fields.Text("text");
  const Json* ids = fields.Array("token_ids");
  if (const auto* error = fields.Text("error")) value.set_error(*error);
  RETURN_IF_ERROR(fields.Finish());
  if (text != nullptr && ids != nullptr) {
    return absl::InvalidArgumentError("text: expected text or token_ids, got both");
  }
  if (text == nullptr && ids == nullptr && value.error().empty()) {
    return absl::InvalidArgumentError("text: expected text, token_ids or error, got none");
  }
  if (text != nullptr) value.set_text(*text);
  if (ids == nullptr) return absl::OkStatus();
  value.mutable_token_ids()->Reserve(static_cast<int>(ids->size()));
  for (size_t i = 0; i < ids->size(); ++i) {
    const auto id = AsInteger((*ids)[i], 0, std::numeric_limits<TokenId>::max());
    if (!id) return WrongType(ElementPath("token_ids", i), "a token id", (*ids)[i]);
    value.add_token_ids(static_cast<TokenId>(*id));
  }
  return absl::OkStatus();
}

void ApplyHeaders(const GatewayParts& parts, const HttpCall& call, v1::PutOutputRequest& value) {
  const HeaderNames names = ReadNameHeaders([&call](std::string_view header) { return call.request.header(header); });
  parts.chats.OnIgnored(names.ignored);
  if (value.agent().empty()) value.set_agent(names.agent);
  if (value.workflow().empty()) value.set_workflow(names.workflow);
}

ValueWriter WriterOf(const GatewayParts& parts, const HttpCall& call) {
  return {parts.router, parts.models, parts.admission, call.caller};
}

// Refuses the value that the path names. A body that was not read may have a cache_salt, which is
// not known.
absl::Status RefuseUnread(const GatewayParts& parts, const HttpCall& call, const std::string& id,
                          const absl::Status& why) {
  v1::PutOutputRequest value;
  value.set_request_id(id);
  ApplyHeaders(parts, call, value);
  WriterOf(parts, call).Refuse(value, why);
  return why;
}

absl::Status Put(const GatewayParts& parts, const HttpCall& call, const std::string& id) {
  const absl::StatusOr<Json> body = ParseJsonBody(call.request.body);
  if (!body.ok()) return RefuseUnread(parts, call, id, body.status());
  v1::PutOutputRequest value;
  value.set_request_id(id);
  const absl::Status read = ReadBody(*body, value);
  ApplyHeaders(parts, call, value);
  ValueWriter writer = WriterOf(parts, call);
  if (!read.ok()) {
    writer.Refuse(value, read);
    return read;
  }
  RETURN_IF_ERROR(writer.Add(value, nullptr));
  writer.End(absl::OkStatus());
  return absl::OkStatus();
}

}  // namespace

void ServePutOutput(const GatewayParts& parts, const SharedCall& call) {
  const std::string id = IdIn(call->request.path);
  const absl::Status run = parts.admission.Run(*call->caller, call->request.body.size(), [parts, call, id] {
    const absl::Status put = Put(parts, *call, id);
    const CallId answer = CheckRequestId("request_id", id).ok() ? call->id.For(id) : call->id;
    call->reply->Send(put.ok()
                          ? JsonResponse(answer, absl::StrCat("{\"id\":", JsonString(id), ",\"object\":\"output\"}"))
                          : ErrorResponse(answer, put));
  });
  if (!run.ok()) call->reply->Send(ErrorResponse(call->id, RefuseUnread(parts, *call, id, run)));
}

}  // namespace baton
