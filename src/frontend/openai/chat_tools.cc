#include "frontend/openai/chat_tools.h"

#include <algorithm>

#include "base/status.h"
#include "base/strings.h"
#include "frontend/openai/body_readers.h"
#include "frontend/openai/known_members.h"

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

// Reads the description of a function. Errors go to `owner`.
void ReadDescription(const Json& object, const std::string& path, FieldReader& owner, CompletionCall& call) {
  FieldReader function(object, path);
  if (!function.ok()) return owner.Check(function.Finish());
  call.tool_names.push_back(ReadName(function));
  function.Text("description");
  const Json* parameters = function.Object("parameters");
  if (function.Bool("strict").value_or(false)) {
    call.strict_tools.push_back(
        {.name = call.tool_names.back(), .schema = ArgumentSchema(parameters == nullptr ? Json() : *parameters)});
  }
  SkipMembers(function, ToolMembers());
  owner.Check(function.Finish());
}

void ReadTool(FieldReader& tool, CompletionCall& call) {
  if (const Json* object = ReadFunction(tool)) ReadDescription(*object, tool.Path("function"), tool, call);
  SkipMembers(tool, ToolMembers());
}

// Returns the tools without the members that are not for the model.
Json ForModel(Json tools) {
  for (Json& tool : tools) {
    for (const KnownMember& member : ToolMembers()) {
      if (member.rule == KnownMember::Rule::kRead) continue;
      tool.erase(std::string(member.name));
      tool["function"].erase(std::string(member.name));
    }
  }
  return tools;
}

// Reads the arguments of a call. Models write texts of JSON. Some clients parse them.
Json ReadArguments(FieldReader& function) {
  const Json* arguments = function.Any("arguments");
  if (arguments == nullptr || *arguments == "") return Json::object();
  if (!arguments->is_string() && !arguments->is_object()) {
    function.RefuseType("arguments", "a string of JSON or an object", *arguments);
  }
  return *arguments;
}

// Reads the function that an earlier answer called. The model wrote its name, which may be no name
// of a tool. Errors go to `owner`.
Json ReadCalled(const Json& object, std::string_view member, FieldReader& owner) {
  FieldReader function(object, owner.Path(member));
  const std::string* name = function.Text("name");
  if (name == nullptr || name->empty()) function.Refuse("name", "expected the name of a function, got none");
  Json called = {{"name", name == nullptr ? "" : *name}, {"arguments", ReadArguments(function)}};
  SkipMembers(function, ToolCallMembers());
  owner.Check(function.Finish());
  return called;
}

// Reads an element of "tool_calls". Returns null after an error.
Json ReadCall(FieldReader& call) {
  const std::string* id = call.Text("id");
  const Json* function = ReadFunction(call);
  if (function == nullptr) return nullptr;
  Json out = Json::object();
  if (id != nullptr) out["id"] = *id;
  out["type"] = "function";
  out["function"] = ReadCalled(*function, "function", call);
  SkipMembers(call, ToolCallMembers());
  return out;
}

void CheckBytes(FieldReader& owner, std::string_view name, const Json& value) {
  const size_t bytes = JsonBytes(value);
  if (bytes > kMaxToolBytes) owner.Refuse(name, StrCat(bytes, " bytes, limit ", kMaxToolBytes));
}

// Returns whether the model may call tools.
bool ReadChoice(FieldReader& body, const ApiField& field) {
  const Json* choice = body.Any(field.name);
  if (choice == nullptr || *choice == "auto") return true;
  if (choice->is_object()) {
    FieldReader members(*choice, body.Path(field.name));
    SkipMembers(members, ToolChoiceMembers(), "is not supported: tools cannot be forced or selected");
    body.Check(members.Finish());
  }
  if (*choice != "none") {
    body.Refuse(field.name, StrCat("expected 'auto' or 'none', got ", ShowJson(*choice), ", which is not supported"));
  }
  return false;
}

// Shows the model the tools, and finds its calls. `tools` have been checked.
void UseTools(BodyDraft& draft, const ApiField& field, const Json& tools) {
  FieldReader& body = draft.body;
  const auto format = ToolFormatOf(*draft.call.model);
  if (!format.ok()) return body.Refuse(field.name, Message(format.status()));
  draft.call.tools = *format;
  draft.values.tools = jinja::Value::FromJson(ForModel(tools));
}

// Returns the list of a field, or null if the list is absent, empty or too long. Checks its size
// before anything is copied out of it.
const Json* ReadToolList(FieldReader& body, const ApiField& field) {
  const Json* list = body.Array(field.name);
  if (list == nullptr || list->empty()) return nullptr;
  if (list->size() > kMaxTools) {
    body.Refuse(field.name, StrCat(list->size(), " tools, limit ", kMaxTools));
  } else {
    CheckBytes(body, field.name, *list);
  }
  return body.ok() ? list : nullptr;
}

// Forgets the checks of calls if there will be none. A choice of either form holds for both lists.
bool MayCall(BodyDraft& draft) {
  const bool may = draft.may_call_tools && draft.may_call_functions;
  if (!may) draft.call.strict_tools.clear();
  return may;
}

}  // namespace

void ReadToolChoice(BodyDraft& draft, const ApiField& field) { draft.may_call_tools = ReadChoice(draft.body, field); }

void ReadFunctionCall(BodyDraft& draft, const ApiField& field) {
  draft.may_call_functions = ReadChoice(draft.body, field);
}

void ReadParallelToolCalls(BodyDraft& draft, const ApiField& field) {
  draft.call.one_tool_call = !draft.body.Bool(field.name).value_or(true);
}

void ReadTools(BodyDraft& draft, const ApiField& field) {
  FieldReader& body = draft.body;
  const Json* tools = ReadToolList(body, field);
  if (tools == nullptr) return;
  for (size_t i = 0; i < tools->size() && body.ok(); ++i) {
    FieldReader tool((*tools)[i], ElementPath(body.Path(field.name), i));
    if (tool.ok()) ReadTool(tool, draft.call);
    body.Check(tool.Finish());
  }
  if (body.ok() && MayCall(draft)) UseTools(draft, field, *tools);
}

void ReadFunctions(BodyDraft& draft, const ApiField& field) {
  FieldReader& body = draft.body;
  const Json* functions = ReadToolList(body, field);
  if (functions == nullptr) return;
  if (!draft.call.tool_names.empty()) return body.Refuse(field.name, "expected none beside tools");
  Json tools = Json::array();
  for (size_t i = 0; i < functions->size() && body.ok(); ++i) {
    ReadDescription((*functions)[i], ElementPath(body.Path(field.name), i), body, draft.call);
    tools.push_back({{"type", "function"}, {"function", (*functions)[i]}});
  }
  if (!body.ok() || !MayCall(draft)) return;
  // An answer of this form has at most one call.
  draft.call.one_tool_call = draft.call.legacy_calls = true;
  UseTools(draft, field, tools);
}

jinja::Value ReadToolCalls(FieldReader& message) {
  const Json* calls = message.Array("tool_calls");
  const Json* legacy = message.Object("function_call");
  const bool has_calls = calls != nullptr && !calls->empty();
  if (has_calls && legacy != nullptr) message.Refuse("function_call", "expected none beside tool_calls");
  Json read = Json::array();
  if (has_calls) {
    CheckBytes(message, "tool_calls", *calls);
    for (size_t i = 0; i < calls->size() && message.ok(); ++i) {
      FieldReader call((*calls)[i], ElementPath(message.Path("tool_calls"), i));
      if (call.ok()) read.push_back(ReadCall(call));
      message.Check(call.Finish());
    }
  } else if (legacy != nullptr) {
    CheckBytes(message, "function_call", *legacy);
    if (message.ok())
      read.push_back({{"type", "function"}, {"function", ReadCalled(*legacy, "function_call", message)}});
  }
  if (read.empty() || !message.ok()) return jinja::None{};
  return ToolCallsValue(read);
}

}  // namespace baton
