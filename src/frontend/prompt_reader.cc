#include "frontend/prompt_reader.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include "base/json/json_body.h"
#include "base/request_id.h"
#include "base/status.h"
#include "base/strings.h"
#include "text/chat_adapter.h"

namespace baton {
namespace {

constexpr int kMaxSegments = 4096;
constexpr int kMaxMessages = 4096;
constexpr int kMaxGroupParts = 64;
constexpr size_t kMaxRoleBytes = 64;

// Encodes a text that follows `before` tokens.
absl::StatusOr<std::vector<TokenId>> Encode(std::string_view text, Tokenizer::SpecialTokens special, int64_t before,
                                            const PromptLimit& limit) {
  RETURN_IF_ERROR(limit.CheckText(text, before));
  std::vector<TokenId> ids = limit.model.tokenizer->Encode(text, special);
  const auto bad = std::ranges::find_if(ids, [&](TokenId id) { return id < 0 || id >= limit.model.vocab; });
  if (bad == ids.end()) return ids;
  return absl::InternalError(StrCat("the tokenizer of '", limit.model.shown_name(), "' returned token ", *bad,
                                    ", but the size of its vocabulary is ", limit.model.vocab));
}

// The part of the prompt that has been read so far.
class Parts {
 public:
  explicit Parts(const PromptLimit& limit) : limit_(limit) {}

  absl::Status AddText(std::string_view text, Tokenizer::SpecialTokens special) {
    ASSIGN_OR_RETURN(std::vector<TokenId> ids, Encode(text, special, tokens_, limit_));
    return AddIds(std::move(ids));
  }
  absl::Status AddIds(std::vector<TokenId> ids) {
    if (ids.empty()) return absl::OkStatus();
    tokens_ += std::ssize(ids);
    auto* last = segments_.empty() ? nullptr : std::get_if<std::vector<TokenId>>(&segments_.back());
    if (last == nullptr) {
      segments_.emplace_back(std::move(ids));
    } else {
      last->insert(last->end(), ids.begin(), ids.end());
    }
    return limit_.Check(tokens_, HasReference() ? "at least " : "");
  }
  void AddReference(Reference reference) { segments_.emplace_back(std::move(reference)); }

  std::vector<PromptSegment> Take() { return std::move(segments_); }

 private:
  bool HasReference() const { return segments_.size() > 1; }

  const PromptLimit& limit_;
  std::vector<PromptSegment> segments_;
  int64_t tokens_ = 0;
};

absl::StatusOr<Reference> ReadReference(const v1::OutputOf& proto, const std::string& field, const PromptLimit& limit) {
  Reference reference;
  reference.path = field;
  if (proto.request_id().empty()) return absl::InvalidArgumentError(field + ".request_id: must not be empty");
  RETURN_IF_ERROR(CheckRequestId(field + ".request_id", proto.request_id()));
  reference.upstream = proto.request_id();
  reference.announced = proto.announced();
  switch (proto.on_failure()) {
    case v1::OutputOf::ON_FAILURE_ABORT:
      break;
    case v1::OutputOf::ON_FAILURE_PARTIAL:
      reference.on_failure = OnFailure::kPartial;
      break;
    case v1::OutputOf::ON_FAILURE_SUBSTITUTE:
      reference.on_failure = OnFailure::kSubstitute;
      break;
    default:
      return absl::InvalidArgumentError(StrCat(field, ".on_failure: unknown value ", int{proto.on_failure()}));
  }
  if (!proto.substitute().empty() && reference.on_failure != OnFailure::kSubstitute) {
    return absl::InvalidArgumentError(field + ".substitute: requires on_failure ON_FAILURE_SUBSTITUTE");
  }
  const std::string substitute_path = field + ".substitute";
  RETURN_IF_ERROR((PromptLimit{limit.model, limit.reserve, substitute_path}.CheckText(proto.substitute(), 0)));
  reference.substitute = limit.model.tokenizer->Encode(proto.substitute(), Tokenizer::SpecialTokens::kAsText);
  if (proto.timeout_ms() < 0) {
    return absl::InvalidArgumentError(StrCat(field, ".timeout_ms: expected >= 0, got ", proto.timeout_ms()));
  }
  reference.with_reasoning = proto.with_reasoning();
  if (proto.timeout_ms() > 0) reference.timeout = absl::Milliseconds(proto.timeout_ms());
  return reference;
}

absl::StatusOr<std::vector<TokenId>> ReadIds(const v1::TokenIds& proto, const std::string& field,
                                             const PromptLimit& limit) {
  const std::span<const TokenId> ids(proto.ids().data(), static_cast<size_t>(proto.ids_size()));
  RETURN_IF_ERROR(CheckIds(field + ".token_ids.ids", ids, limit.model));
  return std::vector<TokenId>(ids.begin(), ids.end());
}

// Reads a part group: a reference with the parts around it. `special` applies to its texts.
absl::StatusOr<Reference> ReadGroup(const v1::Group& proto, const std::string& field, Tokenizer::SpecialTokens special,
                                    const PromptLimit& limit) {
  if (proto.parts_size() > kMaxGroupParts) {
    return absl::InvalidArgumentError(StrCat(field, ": ", proto.parts_size(), " parts, limit ", kMaxGroupParts));
  }
  std::optional<Reference> reference;
  std::vector<LabelPart> before, after;
  int64_t tokens = 0;
  const auto add_ids = [&](std::vector<TokenId> ids) {
    tokens += std::ssize(ids);
    (reference ? after : before).emplace_back(std::move(ids));
    return limit.Check(tokens, "at least ");
  };
  for (int i = 0; i < proto.parts_size(); ++i) {
    const v1::Segment& part = proto.parts(i);
    const std::string part_field = StrCat(field, "[", i, "]");
    switch (part.kind_case()) {
      case v1::Segment::kText: {
        ASSIGN_OR_RETURN(std::vector<TokenId> ids, Encode(part.text(), special, tokens, limit));
        RETURN_IF_ERROR(add_ids(std::move(ids)));
        break;
      }
      case v1::Segment::kTokenIds: {
        ASSIGN_OR_RETURN(std::vector<TokenId> ids, ReadIds(part.token_ids(), part_field, limit));
        RETURN_IF_ERROR(add_ids(std::move(ids)));
        break;
      }
      case v1::Segment::kAgentName:
        (reference ? after : before).emplace_back(AgentName());
        break;
      case v1::Segment::kOutputOf: {
        if (reference) {
          return absl::InvalidArgumentError(part_field + ": expected one output_of in the group, got a second one");
        }
        ASSIGN_OR_RETURN(reference, ReadReference(part.output_of(), part_field + ".output_of", limit));
        break;
      }
      case v1::Segment::kGroup:
        return absl::InvalidArgumentError(part_field + ": a group must not contain a group");
      case v1::Segment::KIND_NOT_SET:
        return absl::InvalidArgumentError(part_field + ": expected text, token_ids, output_of or agent_name, got none");
    }
  }
  if (!reference) return absl::InvalidArgumentError(field + ": expected one output_of in the group, got none");
  reference->before = std::move(before);
  reference->after = std::move(after);
  return *std::move(reference);
}

// A chat in which a mark replaces each part that is not text. The messages do not contain the mark
// otherwise.
struct MarkedChat {
  ChatInput input;
  std::string mark;                   // followed by the part's index and kMarkEnd
  std::vector<PromptSegment> marked;  // references and token ids
};

constexpr size_t kMaxMarkBytes = 96;  // upper bound on the text that replaces one part
constexpr std::string_view kMarkBegin = "\uE002", kMarkMore = "\uE000", kMarkEnd = "\uE001";

// Returns the length of the longest run of kMarkMore that follows a kMarkBegin.
size_t LongestMark(std::string_view text) {
  size_t longest = 0;
  for (size_t at = text.find(kMarkBegin); at != std::string_view::npos; at = text.find(kMarkBegin, at)) {
    at += kMarkBegin.size();
    size_t more = 0;
    for (; text.substr(at).starts_with(kMarkMore); at += kMarkMore.size()) ++more;
    longest = std::max(longest, more);
  }
  return longest;
}

// An empty text gives null, which templates treat as absent.
absl::StatusOr<Json> ReadJsonList(std::string_view text, const std::string& field) {
  if (text.empty()) return Json();
  if (text.size() > kMaxToolBytes) {
    return absl::InvalidArgumentError(StrCat(field, ": ", text.size(), " bytes, limit ", kMaxToolBytes));
  }
  ASSIGN_OR_RETURN(Json list, ParseJson(text, field));
  if (list.is_array()) return list;
  return absl::InvalidArgumentError(StrCat(field, ": expected a JSON array, got ", ShowJson(list)));
}

absl::StatusOr<jinja::Value> ParseToolCalls(const v1::ChatMessage& message, const std::string& field) {
  ASSIGN_OR_RETURN(const Json calls, ReadJsonList(message.tool_calls(), field));
  if (calls.is_null()) return jinja::None{};
  for (size_t i = 0; i < calls.size(); ++i) {
    const auto function = calls[i].find("function");
    if (function == calls[i].end() || !function->is_object()) {
      return absl::InvalidArgumentError(StrCat(field, "[", i, "].function: expected an object"));
    }
  }
  return ToolCallsValue(calls);
}

// An empty text gives None.
absl::StatusOr<jinja::Value> ParseVariables(const v1::Chat& chat) {
  constexpr std::string_view kField = "chat.template_kwargs";
  if (chat.template_kwargs().empty()) return jinja::None{};
  // Checked before parsing. CheckTemplateVariables limits the values further.
  if (chat.template_kwargs().size() > kMaxToolBytes) {
    return absl::InvalidArgumentError(
        StrCat(kField, ": ", chat.template_kwargs().size(), " bytes, limit ", kMaxToolBytes));
  }
  ASSIGN_OR_RETURN(const Json variables, ParseJson(chat.template_kwargs(), kField));
  if (!variables.is_object()) {
    return absl::InvalidArgumentError(StrCat(kField, ": expected a JSON object, got ", ShowJson(variables)));
  }
  RETURN_IF_ERROR(CheckTemplateVariables(variables, kField));
  return jinja::Value::FromJson(variables);
}

absl::StatusOr<ChatValues> ParseValues(const v1::Chat& chat) {
  ChatValues values;
  ASSIGN_OR_RETURN(const Json tools, ReadJsonList(chat.tools(), "chat.tools"));
  values.tools = jinja::Value::FromJson(tools);
  ASSIGN_OR_RETURN(values.variables, ParseVariables(chat));
  if (chat.has_add_generation_prompt()) values.add_generation_prompt = chat.add_generation_prompt();
  for (int i = 0; i < chat.messages_size(); ++i) {
    const std::string field = StrCat("chat.messages[", i, "].tool_calls");
    ASSIGN_OR_RETURN(jinja::Value calls, ParseToolCalls(chat.messages(i), field));
    values.tool_calls.push_back(std::move(calls));
  }
  return values;
}

// Returns the LongestMark of all strings in a value.
size_t LongestMarkIn(const jinja::Value& value) {
  size_t longest = 0;
  if (const auto* text = value.As<std::string>()) longest = LongestMark(*text);
  if (const jinja::List* list = value.AsList()) {
    for (const jinja::Value& item : *list) longest = std::max(longest, LongestMarkIn(item));
  }
  if (const jinja::Dict* dict = value.AsDict()) {
    for (const auto& [key, item] : *dict) longest = std::max({longest, LongestMark(key), LongestMarkIn(item)});
  }
  return longest;
}

// Returns a mark that the chat does not contain. The mark does not overlap itself.
std::string MarkFor(const v1::Chat& chat, const ChatValues& values) {
  size_t longest = std::max(LongestMarkIn(values.tools), LongestMarkIn(values.variables));
  for (const jinja::Value& calls : values.tool_calls) longest = std::max(longest, LongestMarkIn(calls));
  for (const v1::ChatMessage& message : chat.messages()) {
    for (const std::string* text :
         {&message.content(), &message.name(), &message.tool_call_id(), &message.reasoning_content()}) {
      longest = std::max(longest, LongestMark(*text));
    }
    for (const v1::Segment& part : message.parts()) longest = std::max(longest, LongestMark(part.text()));
  }
  std::string mark(kMarkBegin);
  for (size_t i = 0; i <= longest; ++i) mark += kMarkMore;
  return mark;
}

bool NeedsMarks(const v1::Chat& chat) {
  return std::ranges::any_of(chat.messages(), [](const v1::ChatMessage& message) {
    return std::ranges::any_of(message.parts(), [](const v1::Segment& part) { return !part.has_text(); });
  });
}

// Returns the message as the template sees it. Fields that are not set are absent.
jinja::Value ForTemplate(const v1::ChatMessage& message, std::string content, const jinja::Value& tool_calls) {
  jinja::Dict out = {{"role", message.role()}, {"content", std::move(content)}};
  if (!message.name().empty()) out.emplace_back("name", message.name());
  if (!tool_calls.IsNone()) out.emplace_back("tool_calls", tool_calls);
  if (!message.tool_call_id().empty()) out.emplace_back("tool_call_id", message.tool_call_id());
  if (!message.reasoning_content().empty()) out.emplace_back("reasoning_content", message.reasoning_content());
  return jinja::Value::MakeDict(std::move(out));
}

// Reads a part of a message, and appends it to `content`.
absl::Status ReadPart(const v1::Segment& part, const std::string& field, const PromptLimit& limit,
                      const FieldPaths& paths, MarkedChat& marked, std::string& content) {
  if (part.has_text()) {
    content += part.text();
    return absl::OkStatus();
  }
  if (!part.has_output_of() && !part.has_group() && !part.has_token_ids()) {
    return absl::InvalidArgumentError(field + ": expected text, token_ids, output_of or group");
  }
  if (marked.mark.size() > kMaxMarkBytes) {
    return absl::InvalidArgumentError(StrCat(field, ": the chat has U+E002 followed by ",
                                             marked.mark.size() / kMarkMore.size() - 2, " times U+E000, limit ",
                                             kMaxMarkBytes / kMarkMore.size() - 2));
  }
  content += StrCat(marked.mark, marked.marked.size(), kMarkEnd);
  if (part.has_token_ids()) {
    ASSIGN_OR_RETURN(std::vector<TokenId> ids, ReadIds(part.token_ids(), field, limit));
    marked.marked.emplace_back(std::move(ids));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(Reference reference, part.has_group()
                                            ? ReadGroup(part.group(), StrCat(field, ".", paths.group_parts),
                                                        Tokenizer::SpecialTokens::kParse, limit)
                                            : ReadReference(part.output_of(), field + ".output_of", limit));
  marked.marked.emplace_back(std::move(reference));
  return absl::OkStatus();
}

absl::StatusOr<MarkedChat> ReadMessages(const v1::Chat& chat, const ChatValues& values, const PromptLimit& limit,
                                        const FieldPaths& paths) {
  MarkedChat marked;
  if (NeedsMarks(chat)) marked.mark = MarkFor(chat, values);
  marked.input.tools = values.tools;
  marked.input.variables = values.variables;
  marked.input.add_generation_prompt = values.add_generation_prompt;
  jinja::List messages;
  for (int i = 0; i < chat.messages_size(); ++i) {
    const v1::ChatMessage& message = chat.messages(i);
    const std::string field = StrCat(paths.messages, "[", i, "]");
    if (message.role().empty()) return absl::InvalidArgumentError(field + ".role: must not be empty");
    if (message.role().size() > kMaxRoleBytes) {
      return absl::InvalidArgumentError(
          StrCat(field, ".role: ", message.role().size(), " bytes, limit ", kMaxRoleBytes));
    }
    if (message.parts_size() > 0 && !message.content().empty()) {
      return absl::InvalidArgumentError(field + ": expected content or parts, got both");
    }
    std::string content = message.content();
    for (int k = 0; k < message.parts_size(); ++k) {
      const std::string part_field = StrCat(field, ".", paths.parts, "[", k, "]");
      RETURN_IF_ERROR(ReadPart(message.parts(k), part_field, limit, paths, marked, content));
    }
    messages.push_back(ForTemplate(message, std::move(content), values.tool_calls[static_cast<size_t>(i)]));
  }
  marked.input.messages = jinja::Value::MakeList(std::move(messages));
  if (marked.marked.size() > kMaxSegments) {
    return absl::InvalidArgumentError(
        StrCat(paths.messages, ": ", marked.marked.size(), " parts that are not text, limit ", kMaxSegments));
  }
  return marked;
}

}  // namespace

absl::Status CheckIds(std::string_view field, std::span<const TokenId> ids, const ServedModel& model) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < model.vocab) continue;
    return absl::InvalidArgumentError(StrCat(field, "[", i, "]: expected [0, ", model.vocab, "), the vocabulary of '",
                                             model.shown_name(), "', got ", ids[i]));
  }
  return CheckNamed(field, ids, model);
}

bool HavePrefix(const v1::Segments& segments) {
  if (segments.segments().empty()) return false;
  const v1::Segment& first = segments.segments(0);
  return first.has_text() || (first.group().parts_size() > 0 && first.group().parts(0).has_text());
}

absl::StatusOr<std::vector<PromptSegment>> ReadPrompt(const v1::Segments& segments, const PromptLimit& limit,
                                                      bool with_prefix, const FieldPaths& paths) {
  if (segments.segments_size() > kMaxSegments) {
    return absl::InvalidArgumentError(
        StrCat(paths.segments, ": ", segments.segments_size(), " segments, limit ", kMaxSegments));
  }
  Parts parts(limit);
  if (with_prefix && HavePrefix(segments)) {
    const auto prefix = limit.model.tokenizer->prompt_prefix();
    RETURN_IF_ERROR(parts.AddIds({prefix.begin(), prefix.end()}));
  }
  for (int i = 0; i < segments.segments_size(); ++i) {
    const v1::Segment& segment = segments.segments(i);
    const std::string field = StrCat(paths.segments, "[", i, "]");
    switch (segment.kind_case()) {
      case v1::Segment::kText:
        RETURN_IF_ERROR(parts.AddText(segment.text(), Tokenizer::SpecialTokens::kAsText));
        break;
      case v1::Segment::kTokenIds: {
        ASSIGN_OR_RETURN(std::vector<TokenId> ids, ReadIds(segment.token_ids(), field, limit));
        RETURN_IF_ERROR(parts.AddIds(std::move(ids)));
        break;
      }
      case v1::Segment::kOutputOf: {
        ASSIGN_OR_RETURN(Reference reference, ReadReference(segment.output_of(), field + ".output_of", limit));
        parts.AddReference(std::move(reference));
        break;
      }
      case v1::Segment::kGroup: {
        ASSIGN_OR_RETURN(Reference reference, ReadGroup(segment.group(), StrCat(field, ".", paths.group_parts),
                                                        Tokenizer::SpecialTokens::kAsText, limit));
        parts.AddReference(std::move(reference));
        break;
      }
      case v1::Segment::kAgentName:
        return absl::InvalidArgumentError(field + ": agent_name is for parts of a group");
      case v1::Segment::KIND_NOT_SET:
        return absl::InvalidArgumentError(field + ": expected text, token_ids, output_of or group, got none");
    }
  }
  return parts.Take();
}

absl::StatusOr<std::vector<PromptSegment>> ReadPrompt(const v1::Chat& chat, const PromptLimit& limit, absl::Time now,
                                                      const FieldPaths& paths, const ChatValues* values) {
  const ServedModel& model = limit.model;
  if (model.chat_template == nullptr) {
    return absl::UnimplementedError(StrCat(paths.messages, ": model '", model.shown_name(),
                                           "' has no chat template. Send the prompt as text: to /v1/completions over "
                                           "HTTP, in segments over gRPC"));
  }
  if (chat.messages_size() < 1 || chat.messages_size() > kMaxMessages) {
    return absl::InvalidArgumentError(
        StrCat(paths.messages, ": expected 1 to ", kMaxMessages, ", got ", chat.messages_size()));
  }
  ChatValues parsed;
  if (values == nullptr) {
    ASSIGN_OR_RETURN(parsed, ParseValues(chat));
    values = &parsed;
  }
  ASSIGN_OR_RETURN(MarkedChat marked, ReadMessages(chat, *values, limit, paths));
  marked.input.now = now;
  const jinja::List* const tools = marked.input.tools.AsList();
  const ChatTemplate& chat_template = *model.TemplateFor(tools != nullptr && !tools->empty());
  auto rendered = chat_template.Render(AdaptChat(marked.input, chat_template.abilities()));
  if (!rendered.ok()) {
    // A chat that exceeds the template's limits would exceed them again, so the client must not
    // retry.
    const bool never = absl::IsResourceExhausted(rendered.status());
    return absl::Status(never ? absl::StatusCode::kInvalidArgument : rendered.status().code(),
                        StrCat(paths.messages, ": ", Message(rendered.status())));
  }

  Parts parts(limit);
  std::string_view rest = *rendered;
  while (!marked.marked.empty()) {
    const size_t mark = rest.find(marked.mark);
    if (mark == std::string_view::npos) break;
    RETURN_IF_ERROR(parts.AddText(rest.substr(0, mark), Tokenizer::SpecialTokens::kParse));
    rest.remove_prefix(mark + marked.mark.size());
    size_t index = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), index);
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    if (error != std::errc() || index >= marked.marked.size() || !rest.starts_with(kMarkEnd)) {
      return absl::InvalidArgumentError(
          StrCat(paths.messages, ": the template of '", model.shown_name(),
                 "' changes the text of messages, so output_of and token_ids are not supported with it"));
    }
    rest.remove_prefix(kMarkEnd.size());
    if (const auto* ids = std::get_if<std::vector<TokenId>>(&marked.marked[index])) {
      RETURN_IF_ERROR(parts.AddIds(*ids));
    } else {
      parts.AddReference(std::get<Reference>(marked.marked[index]));
    }
  }
  RETURN_IF_ERROR(parts.AddText(rest, Tokenizer::SpecialTokens::kParse));
  return parts.Take();
}

absl::StatusOr<std::vector<TokenId>> ChatTokens(const v1::Chat& chat, const ServedModel& model, absl::Time now,
                                                const FieldPaths& paths, const ChatValues* values) {
  const PromptLimit limit{model, 0, paths.messages};
  ASSIGN_OR_RETURN(std::vector<PromptSegment> segments, ReadPrompt(chat, limit, now, paths, values));
  if (segments.empty()) return std::vector<TokenId>();
  auto* only = std::get_if<std::vector<TokenId>>(&segments.front());
  if (segments.size() == 1 && only != nullptr) return std::move(*only);
  return absl::InvalidArgumentError(paths.messages + ": expected text only, got output_of");
}

}  // namespace baton
