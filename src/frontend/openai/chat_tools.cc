#include "frontend/openai/chat_tools.h"

#include <algorithm>

#include "base/status.h"
#include "base/strings.h"
#include "frontend/openai/body_readers.h"

namespace baton {
namespace {

constexpr size_t kMaxTools = 128;
constexpr size_t kMaxNameBytes = 64;

bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::ranges::all_of(name, [](char c) { return IsPlain(c, "-_."); });
}

// Reads "type", which must be "function" or absent, and the object "function". Returns null if
// either is refused.
const Json* ReadFunction(FieldReader& owner) {
  const std::string* type = owner.Text("type");
  if (type != nullptr && *type != "function") {
    owner.Refuse("type", StrCat("expected 'function', got ", ShowJson(*type), ", which is not supported"));
  }
  const Json* function = owner.Object("function");
  if (function == nullptr) owner.Refuse("function", "expected an object, got none");
  return owner.ok() ? function : nullptr;
}

// Reads the name of a function.
std::string ReadName(FieldReader& function) {
  const std::string* name = function.Text("name");
  if (name != nullptr && IsName(*name)) return *name;
  function.Refuse("name", StrCat("expected 1 to ", kMaxNameBytes, " letters, digits and \"_-.\", got ",
                                 name == nullptr ? "none" : ShowJson(*name)));
  return "";
}

void ReadTool(FieldReader& tool, CompletionCall& call) {
  const Json* object = ReadFunction(tool);
  if (object == nullptr) return;
  FieldReader function(*object, tool.Path("function"));
  call.tool_names.push_back(ReadName(function));
  function.Text("description");
  function.Object("parameters");
  if (function.Bool("strict").value_or(false)) function.Refuse("strict", "is not supported");
  tool.Check(function.Finish());
}

void CheckBytes(FieldReader& owner, std::string_view name, const Json& value) {
  const size_t bytes = JsonBytes(value);
  if (bytes > kMaxToolBytes) owner.Refuse(name, StrCat(bytes, " bytes, limit ", kMaxToolBytes));
}

}  // namespace

void ReadToolChoice(BodyDraft& draft, const ApiField& field) {
  const Json* choice = draft.body.Any(field.name);
  draft.may_call_tools = choice == nullptr || *choice == "auto";
  if (draft.may_call_tools || *choice == "none") return;
  draft.body.Refuse(field.name,
                    StrCat("expected 'auto' or 'none', got ", ShowJson(*choice), ", which is not supported"));
}

void ReadParallelToolCalls(BodyDraft& draft, const ApiField& field) {
  draft.call.one_tool_call = !draft.body.Bool(field.name).value_or(true);
}

void ReadTools(BodyDraft& draft, const ApiField& field) {
  FieldReader& body = draft.body;
  const Json* tools = body.Array(field.name);
  if (tools == nullptr || tools->empty()) return;
  if (tools->size() > kMaxTools) return body.Refuse(field.name, StrCat(tools->size(), " tools, limit ", kMaxTools));
  for (size_t i = 0; i < tools->size() && body.ok(); ++i) {
    FieldReader tool((*tools)[i], ElementPath(body.Path(field.name), i));
    if (tool.ok()) ReadTool(tool, draft.call);
    body.Check(tool.Finish());
  }
  if (!body.ok() || !draft.may_call_tools) return;
  const auto format = ToolFormatOf(*draft.call.model);
  if (!format.ok()) return body.Check(absl::InvalidArgumentError(StrCat(body.Path(""), Message(format.status()))));
  draft.call.tools = *format;
  CheckBytes(body, field.name, *tools);
  if (!body.ok()) return;  // converting a value beyond the limit would take its memory again
  draft.values.tools = jinja::Value::FromJson(*tools);
}

jinja::Value ReadToolCalls(FieldReader& message) {
  const Json* calls = message.Array("tool_calls");
  // OpenAI's answers have this list, always empty, and clients send it back.
  if (const Json* annotations = message.Array("annotations"); annotations != nullptr && !annotations->empty()) {
    message.Refuse("annotations", "is not supported");
  }
  if (calls == nullptr || calls->empty()) return jinja::None{};
  CheckBytes(message, "tool_calls", *calls);
  for (size_t i = 0; i < calls->size() && message.ok(); ++i) {
    FieldReader call((*calls)[i], ElementPath(message.Path("tool_calls"), i));
    if (call.ok()) {
      call.Text("id");
      if (const Json* object = ReadFunction(call)) {
        FieldReader function(*object, call.Path("function"));
        ReadName(function);
        if (function.Text("arguments") == nullptr) function.Refuse("arguments", "expected a string of JSON, got none");
        call.Check(function.Finish());
      }
    }
    message.Check(call.Finish());
  }
  if (!message.ok()) return jinja::None{};
  return ToolCallsValue(*calls);
}

}  // namespace baton
