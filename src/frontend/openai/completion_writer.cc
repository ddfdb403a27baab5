#include "frontend/openai/completion_writer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/strings.h"
#include "frontend/openai/json_text.h"
#include "frontend/openai/openai_error.h"
#include "frontend/openai/token_text.h"
#include "text/utf8.h"

namespace baton {
namespace {

constexpr std::string_view kNull = "null";

std::string Identity(const CompletionCall& call, const ServedModel& model, std::string_view id, absl::Time created) {
  const std::string_view chat = call.stream ? "chat.completion.chunk" : "chat.completion";
  return StrCat("{\"id\":", JsonString(StrCat(call.chat ? "chatcmpl-" : "cmpl-", id)), ",\"object\":\"",
                call.chat ? chat : "text_completion", "\",\"created\":", absl::ToUnixSeconds(created),
                ",\"model\":", JsonString(call.model_name.empty() ? model.shown_name() : call.model_name),
                ",\"choices\":[");
}

std::vector<std::string> StopsOf(const CompletionCall& call) {
  const auto& stops = call.requests.front().sampling().stop();
  return {stops.begin(), stops.end()};
}

std::string JsonList(const std::vector<TokenId>& ids) { return StrCat("[", absl::StrJoin(ids, ","), "]"); }

// An echo may end inside a character, which then begins the output's text.
std::string_view WholeCharacters(std::string_view echo) { return echo.substr(0, echo.size() - CutOffSuffix(echo)); }

std::string_view Name(FinishReason reason) {
  // A cancelled request has the finish reason `length`.
  return reason == FinishReason::kStop ? "stop" : "length";
}

}  // namespace

CompletionWriter::CompletionWriter(const CompletionCall& call, const ServedModel& model, std::string id,
                                   absl::Time created)
    : chat_(call.chat),
      stream_(call.stream),
      include_usage_(call.include_usage),
      continuous_usage_(call.continuous_usage),
      token_ids_(call.return_token_ids),
      one_tool_call_(call.one_tool_call),
      legacy_calls_(call.legacy_calls),
      samples_(static_cast<size_t>(call.samples)),
      echo_(call.echo),
      logprobs_(call.logprobs),
      prompt_logprobs_(call.prompt_logprobs),
      strict_tools_(call.strict_tools),
      stops_(StopsOf(call)),
      min_tokens_(call.requests.front().sampling().min_tokens()),
      tokenizer_(*model.tokenizer),
      id_(id),
      identity_(Identity(call, model, id, created)),
      plain_tail_(StrCat(chat_ ? "}" : "", ",\"logprobs\":null,\"finish_reason\":null}]",
                         include_usage_ ? ",\"usage\":null" : "", "}", kEventEnd)),
      choices_(call.choices()),
      prompt_ids_(call.requests.size()) {
  for (size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    if (stream_) choice.head = StrCat(kData, identity_, "{\"index\":", i, chat_ ? ",\"delta\":{" : ",\"text\":");
    if (call.logprobs) {
      const int64_t offset = echo_.empty() ? 0 : CountCharacters(WholeCharacters(echo_[i / samples_]));
      choice.logprobs.emplace(tokenizer_, chat_, offset, call.tokens_as_ids);
    }
    choice.tool_parser = MakeToolParser(call.tools, call.tool_names);
  }
  const ToolParser* const tools = choices_.front().tool_parser.get();
  if (tools != nullptr) FindMarks(tools->marks());
  if (call.obfuscate) padding_.emplace(id_);
}

void CompletionWriter::FindMarks(const std::vector<std::string>& names) {
  const SpecialMarks marks(tokenizer_, names, stops_, min_tokens_);
  for (Choice& choice : choices_) choice.marks.emplace(marks);
}

void CompletionWriter::SetThinking(Thinking thinking) {
  if (thinking == Thinking::kNone) return;
  for (Choice& choice : choices_) {
    BATON_CHECK(chat_ && !choice.begun, "SetThinking is called before a chat's answer begins");
    choice.reasoning_parser.emplace(thinking);
  }
  std::vector<std::string> names = ReasoningParser::marks();
  const ToolParser* const tools = choices_.front().tool_parser.get();
  if (tools != nullptr) std::ranges::move(tools->marks(), std::back_inserter(names));
  FindMarks(names);
}

void CompletionWriter::SetPrompt(size_t prompt, std::span<const TokenId> tokens) {
  for (size_t i = prompt * samples_; i < (prompt + 1) * samples_; ++i) choices_[i].prompt_tokens = std::ssize(tokens);
  if (token_ids_) prompt_ids_[prompt].assign(tokens.begin(), tokens.end());
}

void CompletionWriter::AppendTail(Choice& choice, std::string_view logprobs, std::string_view finish_reason,
                                  std::string& out) {
  const auto index = static_cast<size_t>(&choice - choices_.data());
  const bool with_prompt = !std::exchange(choice.has_shown_prompt_ids, true);
  out += StrCat(chat_ ? "}" : "", ",\"logprobs\":", logprobs, ",\"finish_reason\":", finish_reason,
                ChoiceIds(index, choice, with_prompt), "}]");
  choice.ids.clear();
  if (continuous_usage_) {
    out += StrCat(",\"usage\":{\"prompt_tokens\":", choice.prompt_tokens,
                  ",\"completion_tokens\":", choice.completion_tokens,
                  ",\"total_tokens\":", choice.prompt_tokens + choice.completion_tokens, "}");
  } else if (include_usage_) {
    out += ",\"usage\":null";
  }
  out += StrCat(AnswerIds(with_prompt), "}", kEventEnd);
}

void CompletionWriter::AppendTail(Choice& choice, std::string& out) {
  if (!continuous_usage_ && !token_ids_) {
    out += plain_tail_;
  } else {
    AppendTail(choice, kNull, kNull, out);
  }
}

std::string CompletionWriter::PromptIds(size_t prompt) const {
  return StrCat(",\"prompt_token_ids\":", prompt_ids_[prompt].empty() ? "null" : JsonList(prompt_ids_[prompt]));
}

// As in vLLM, a chat has the ids of its prompt in the answer, and a completion in each choice.
std::string CompletionWriter::ChoiceIds(size_t index, const Choice& choice, bool with_prompt) const {
  if (!token_ids_) return "";
  return StrCat(with_prompt && !chat_ ? PromptIds(index / samples_) : "", ",\"token_ids\":", JsonList(choice.ids));
}

std::string CompletionWriter::AnswerIds(bool with_prompt) const {
  return token_ids_ && chat_ && with_prompt ? PromptIds(0) : "";
}

void CompletionWriter::Begin(Choice& choice, size_t index, std::string& out) {
  choice.begun = true;
  if (!echo_.empty()) ShowText(choice, WholeCharacters(echo_[index / samples_]), out);
  if (!chat_ || !stream_) return;
  out += StrCat(choice.head, R"("role":"assistant","content":"")");
  AppendTail(choice, out);
}

void CompletionWriter::Pad(const Choice& choice, size_t begin, std::string& out) {
  if (padding_) padding_->Pad(begin, choice.head.size() + plain_tail_.size(), out);
}

// The prompt of an echo is shown when the choice begins.
void CompletionWriter::TakePrompt(Choice& choice, size_t index, const PromptLogprobs& prompt) {
  if (choice.logprobs && !echo_.empty()) {
    choice.logprobs->AddPrompt(prompt, echo_[index / samples_], static_cast<size_t>(*logprobs_));
  }
  if (prompt_logprobs_) {
    choice.prompt_logprobs = PromptLogprobsJson(prompt, static_cast<size_t>(*prompt_logprobs_), tokenizer_);
  }
}

void CompletionWriter::Update(size_t index, const TokenUpdate& update, std::string& out) {
  Choice& choice = choices_[index];
  const size_t begin = out.size();
  if (update.prompt) TakePrompt(choice, index, *update.prompt);
  if (!choice.begun) Begin(choice, index, out);
  choice.updated = true;
  choice.completion_tokens += std::ssize(update.tokens);
  if (token_ids_) choice.ids.insert(choice.ids.end(), update.tokens.begin(), update.tokens.end());
  if (choice.logprobs) choice.logprobs->Add(update);
  choice.marks ? Read(choice, choice.marks->Push(update), out) : Read(choice, update.text, out);
  Pad(choice, begin, out);
}

void CompletionWriter::Read(Choice& choice, std::string_view text, std::string& out) {
  choice.reasoning_parser ? Show(choice, choice.reasoning_parser->Push(text), out) : ReadContent(choice, text, out);
}

void CompletionWriter::Show(Choice& choice, const ThinkingAnswer& answer, std::string& out) {
  ShowReasoning(choice, answer.reasoning, out);
  // Log probabilities wait for text. An event with empty content would show clients that thinking
  // has ended.
  if (!answer.content.empty()) ReadContent(choice, answer.content, out);
}

void CompletionWriter::ReadContent(Choice& choice, std::string_view text, std::string& out) {
  choice.tool_parser ? Show(choice, choice.tool_parser->Push(text), out) : ShowText(choice, text, out);
}

void CompletionWriter::Show(Choice& choice, const ParsedAnswer& answer, std::string& out) {
  ShowText(choice, answer.content, out);
  for (const CallPart& part : answer.calls) {
    if (!part.name.empty()) ++choice.calls_made;
    if (!one_tool_call_ || choice.calls_made == 1) ShowCall(choice, part, out);
  }
}

void CompletionWriter::ShowReasoning(Choice& choice, std::string_view text, std::string& out) {
  if (!stream_) {
    choice.reasoning += text;
  } else if (!text.empty()) {
    SendText(choice, "\"reasoning_content\":", text, out);
  }
}

void CompletionWriter::ShowText(Choice& choice, std::string_view text, std::string& out) {
  if (!stream_) {
    choice.text += text;
  } else if (!text.empty() || (choice.logprobs && !choice.logprobs->empty())) {
    SendText(choice, "\"content\":", text, out);
  }
}

void CompletionWriter::SendText(Choice& choice, std::string_view member, std::string_view text, std::string& out) {
  out += choice.head;
  if (chat_) out += member;
  AppendJsonString(out, text);
  const bool has_logprobs = choice.logprobs && !choice.logprobs->empty();
  has_logprobs ? AppendTail(choice, choice.logprobs->Take(), kNull, out) : AppendTail(choice, out);
}

// The first event of a call has its name and empty arguments, as in OpenAI's streams.
void CompletionWriter::ShowCall(Choice& choice, const CallPart& part, std::string& out) {
  ToolCall& call = choice.call;
  if (!part.name.empty()) {
    call = {.name = part.name, .arguments = ""};
    const std::string function = StrCat("\"name\":", JsonString(call.name), ",\"arguments\":\"\"");
    if (stream_) SendCall(choice, CallJson(choice, function, /*begins=*/true), out);
  }
  if (!part.arguments.empty()) {
    call.arguments += part.arguments;
    const std::string function = StrCat("\"arguments\":", JsonString(part.arguments));
    if (stream_) SendCall(choice, CallJson(choice, function, /*begins=*/false), out);
  }
  if (!part.ends) return;
  CountStrict(call);
  if (stream_) return;
  const std::string function =
      StrCat("\"name\":", JsonString(call.name), ",\"arguments\":", JsonString(call.arguments));
  const std::string whole = CallJson(choice, function, /*begins=*/true);
  choice.calls += StrCat(choice.calls.empty() ? "" : ",", whole);
}

void CompletionWriter::SendCall(Choice& choice, std::string_view call, std::string& out) {
  out += StrCat(choice.head, Calls(call));
  AppendTail(choice, out);
}

std::string CompletionWriter::CallJson(const Choice& choice, std::string_view function, bool begins) const {
  if (legacy_calls_) return StrCat("{", function, "}");
  const size_t number = choice.calls_made - 1;
  std::string json = "{";
  if (stream_) json += StrCat("\"index\":", number, ",");
  if (begins) {
    const auto index = static_cast<size_t>(&choice - choices_.data());
    json += StrCat("\"id\":", JsonString(StrCat("call_", id_, "-", index, "-", number)), ",\"type\":\"function\",");
  }
  return StrCat(json, "\"function\":{", function, "}}");
}

void CompletionWriter::CountStrict(const ToolCall& call) {
  const auto tool = std::ranges::find(strict_tools_, call.name, &StrictTool::name);
  if (tool == strict_tools_.end()) return;
  ++(tool->schema.Accepts(call.arguments) ? strict_calls_.matched : strict_calls_.mismatched);
}

std::string CompletionWriter::Calls(std::string_view json) const {
  return legacy_calls_ ? StrCat("\"function_call\":", json) : StrCat("\"tool_calls\":[", json, "]");
}

void CompletionWriter::End(size_t index, const RequestOutcome& outcome, std::string& out) {
  Choice& choice = choices_[index];
  const size_t begin = out.size();
  BATON_CHECK(choice.finish_reason.empty(), "a choice ends twice");
  if (!choice.begun) Begin(choice, index, out);
  // An output ends the character that the prompt begins. A call without output ends it here.
  const bool cut_off = !echo_.empty() && CutOffSuffix(echo_[index / samples_]) > 0;
  if (cut_off && !choice.updated) ShowText(choice, "\uFFFD", out);
  FinishText(choice, out);
  const bool calls = choice.calls_made > 0 && outcome.finish == FinishReason::kStop;
  choice.finish_reason = JsonString(!calls ? Name(outcome.finish) : legacy_calls_ ? "function_call" : "tool_calls");
  choice.prompt_tokens = outcome.prompt_tokens;
  choice.cached_tokens = outcome.cached_tokens;
  choice.completion_tokens = outcome.completion_tokens;
  choice.logprobs_json = choice.logprobs ? choice.logprobs->Take() : std::string(kNull);
  if (stream_) {
    out += StrCat(choice.head, chat_ ? "" : "\"\"");
    AppendTail(choice, choice.logprobs_json, choice.finish_reason, out);
    Pad(choice, begin, out);
  }
  ++ended_;
  if (stream_ && done()) AppendLastEvents(out);
}

void CompletionWriter::FinishText(Choice& choice, std::string& out) {
  if (choice.reasoning_parser) Show(choice, choice.reasoning_parser->Finish(), out);
  if (choice.tool_parser != nullptr) Show(choice, choice.tool_parser->Finish(), out);
}

std::string CompletionWriter::TakePartial() {
  std::string list, events;
  for (size_t i = 0; !stream_ && i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    if (!choice.updated) continue;
    if (choice.finish_reason.empty()) {
      FinishText(choice, events);
      choice.finish_reason = kNull;
      choice.logprobs_json = choice.logprobs ? choice.logprobs->Take() : std::string(kNull);
    }
    if (choice.text.empty() && choice.reasoning.empty() && choice.calls.empty()) continue;
    list += list.empty() ? "[" : ",";
    AppendChoice(choice, i, list);
  }
  return list.empty() ? list : list + "]";
}

void CompletionWriter::AppendLastEvents(std::string& out) const {
  if (include_usage_) out += StrCat(kData, identity_, "],\"usage\":", Usage(), "}", kEventEnd);
  out += ToEvent("[DONE]");
}

void CompletionWriter::Fail(const absl::Status& status, std::string& out) { out += ToEvent(ErrorBody(status)); }

// A prompt with several samples counts once. Its cached tokens are those of its first choice.
std::string CompletionWriter::Usage() const {
  int64_t prompt = 0, cached = 0, completion = 0;
  for (size_t i = 0; i < choices_.size(); ++i) {
    completion += choices_[i].completion_tokens;
    if (i % samples_ != 0) continue;
    prompt += choices_[i].prompt_tokens;
    cached += choices_[i].cached_tokens;
  }
  return StrCat("{\"prompt_tokens\":", prompt, ",\"completion_tokens\":", completion,
                ",\"total_tokens\":", prompt + completion, ",\"prompt_tokens_details\":{\"cached_tokens\":", cached,
                "}}");
}

void CompletionWriter::AppendChoice(const Choice& choice, size_t index, std::string& out) const {
  out += StrCat("{\"index\":", index);
  if (chat_) {
    const bool silent = choice.text.empty() && !(choice.calls.empty() && choice.reasoning.empty());
    out += StrCat(",\"message\":{\"role\":\"assistant\",\"content\":", silent ? "null" : JsonString(choice.text),
                  ",\"refusal\":null");
    if (!choice.reasoning.empty()) out += StrCat(",\"reasoning_content\":", JsonString(choice.reasoning));
    if (!choice.calls.empty()) out += StrCat(",", Calls(choice.calls));
    out += '}';
  } else {
    out += StrCat(",\"text\":", JsonString(choice.text));
  }
  if (!chat_ && prompt_logprobs_) out += StrCat(",\"prompt_logprobs\":", choice.prompt_logprobs);
  out += StrCat(",\"logprobs\":", choice.logprobs_json, ",\"finish_reason\":", choice.finish_reason,
                ChoiceIds(index, choice, /*with_prompt=*/true), "}");
}

std::string CompletionWriter::Body() const {
  BATON_CHECK(!stream_ && done(), "a whole answer needs a call that has ended and does not stream");
  std::string out = identity_;
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (i > 0) out += ',';
    AppendChoice(choices_[i], i, out);
  }
  out += StrCat("],\"usage\":", Usage());
  // A chat has one prompt, and the members are at vLLM's place.
  if (chat_ && prompt_logprobs_) out += StrCat(",\"prompt_logprobs\":", choices_.front().prompt_logprobs);
  out += StrCat(AnswerIds(/*with_prompt=*/true), "}");
  return out;
}

}  // namespace baton
