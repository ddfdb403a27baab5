#include "frontend/gateway/completion_routes.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/json/json_body.h"
#include "base/request_id.h"
#include "base/strings.h"
#include "frontend/gateway/completion_answer.h"
#include "frontend/gateway/rpc_answer.h"
#include "frontend/gateway/rpc_query.h"
#include "frontend/name_headers.h"
#include "frontend/openai/chat_reader.h"
#include "frontend/openai/completion_reader.h"
#include "frontend/openai/field_reader.h"
#include "frontend/openai/reasoning_effort.h"
#include "model/sampler.h"
#include "model/thinking.h"
#include "rpc/proto_json.h"

namespace baton {
namespace {

using Reader = absl::StatusOr<CompletionCall> (*)(const Json& body, const ServedModels& models);

// Returns the names of the call's session and agent in its headers.
HeaderNames NamesIn(const GatewayParts& parts, const HttpCall& call) {
  HeaderNames names = ReadNameHeaders([&call](std::string_view header) { return call.request.header(header); });
  parts.chats.OnIgnored(names.ignored);
  return names;
}

// For calls that did not become requests.
void Refuse(const GatewayParts& parts, const HttpCall& call, const absl::Status& status,
            absl::Duration retry_after = {}) {
  parts.router.metrics().OnRefused(status.code());
  call.reply->Send(ErrorResponse(call.id, status, retry_after));
}

// Returns the ids of an answer to a request. A malformed id may not become a header.
CallId AnswerId(const HttpCall& call, const std::string& request_id) {
  const bool usable = !request_id.empty() && CheckRequestId("request_id", request_id).ok();
  return usable ? call.id.For(request_id) : call.id;
}

// Ends the prompts that refer to a call with several choices, and not to one of its choices.
void NoteWholeCall(const GatewayParts& parts, const Caller& caller, const v1::GenerateRequest& call,
                   const absl::Status& status, absl::Duration retry_after = {}) {
  v1::GenerateRequest whole;  // has no workflow, because the trace has the choices
  whole.set_request_id(call.request_id());
  whole.set_cache_salt(call.cache_salt());
  parts.admission.NoteRefused(caller, whole, status, retry_after);
}

// The names of a call that did not become requests.
struct CallNames {
  // Has the call's request_id, cache_salt, workflow and agent, as far as it names them.
  v1::GenerateRequest request{};
  size_t choices = 1;  // that the call asks for
};

// Like Refuse. Prompts that refer to a choice of the call fail.
void Refuse(const GatewayParts& parts, const HttpCall& call, const CallNames& names, const absl::Status& status,
            absl::Duration retry_after = {}) {
  const std::string& id = names.request.request_id();
  const size_t choices = id.empty() ? 1 : names.choices;
  if (choices > 1) NoteWholeCall(parts, call.caller, names.request, status, retry_after);
  for (size_t i = 0; i < choices; ++i) {
    v1::GenerateRequest choice = names.request;
    choice.set_request_id(ChoiceId(id, i, choices));
    parts.admission.NoteRefused(call.caller, choice, status, retry_after);
  }
  parts.router.metrics().OnRefused(status.code());
  call.reply->Send(ErrorResponse(AnswerId(call, id), status, retry_after));
}

// Returns the number of choices that a body asks for, or the most if it asks for more.
size_t ChoicesIn(const Json& body) {
  size_t choices = 1;
  if (const auto n = body.find("n"); n != body.end()) {
    choices = static_cast<size_t>(AsInteger(*n, 1, std::numeric_limits<int64_t>::max()).value_or(1));
    choices = std::min(choices, kMaxChoices);
  }
  const auto prompt = body.find("prompt");
  const bool has_list = prompt != body.end() && prompt->is_array() && !prompt->empty() && !prompt->front().is_number();
  if (has_list) choices *= prompt->size();
  return std::min(choices, kMaxChoices);
}

// `body` may have any content.
CallNames NamesOf(const GatewayParts& parts, const HttpCall& call, const Json& body) {
  CallNames call_names{.choices = ChoicesIn(body)};
  v1::GenerateRequest& names = call_names.request;
  const auto read = [&body](std::initializer_list<const char*> spellings, std::string* name) {
    for (const char* spelling : spellings) {
      const auto found = body.find(spelling);
      if (found != body.end() && found->is_string()) *name = found->get_ref<const std::string&>();
    }
  };
  read({"request_id", "requestId"}, names.mutable_request_id());
  read({"cache_salt", "cacheSalt"}, names.mutable_cache_salt());
  read({"workflow"}, names.mutable_workflow());
  read({"agent"}, names.mutable_agent());
  NamesIn(parts, call).ApplyTo(names);
  return call_names;
}

// Returns no names if the body is no JSON.
CallNames NamesOf(const GatewayParts& parts, const HttpCall& call) {
  const absl::StatusOr<Json> body = ParseJsonBody(call.request.body);
  return body.ok() ? NamesOf(parts, call, *body) : CallNames();
}

// Runs `read` on a thread that suits the length of the body. Refuses the call if the router shuts
// down or the caller has no quota left.
void ReadBody(const GatewayParts& parts, const SharedCall& call, absl::AnyInvocable<void()> read) {
  if (const auto why = parts.admission.RefusalFor(call->caller)) {
    // Prompts may wait for the request that a refused body names.
    read = [parts, call, why] { Refuse(parts, *call, NamesOf(parts, *call), why->status, why->retry_after); };
  }
  auto unless_gone = [parts, call, read = std::move(read)]() mutable {
    // A long body may have waited for a thread. Its client may have left since then.
    if (call->reply->gone()) {
      return Refuse(parts, *call, NamesOf(parts, *call), absl::CancelledError("the client cancelled"));
    }
    read();
  };
  const absl::Status run = parts.admission.Run(*call->caller, call->request.body.size(), std::move(unless_gone));
  if (!run.ok()) Refuse(parts, *call, run);
}

// Returns the end of the prompt. Empty if the prompt ends with a reference.
std::string EndOf(const ClientRequest& request) {
  if (request.prompt.segments.empty()) return PromptEnd(*request.served->tokenizer, request.spec.tokens);
  const auto* last = std::get_if<std::vector<TokenId>>(&request.prompt.segments.back());
  return last == nullptr ? "" : PromptEnd(*request.served->tokenizer, *last);
}

// Bounds the thinking of a chat by its effort, unless it has a bound of its own.
void SetThinking(const GatewayParts& parts, const CompletionCall& completion, ClientRequest& request,
                 CompletionAnswer& answer) {
  const Thinking thinking = ThinkingOf(*completion.model, !completion.values.tools.IsNone(), EndOf(request));
  answer.SetThinking(thinking);
  std::optional<int32_t>& budget = request.spec.sampling.thinking_token_budget;
  if (thinking == Thinking::kNone || budget || completion.reasoning_effort.empty()) return;
  budget = BudgetOf(completion.reasoning_effort, parts.thinking);
}

// Reads each prompt once, even if the call wants several samples of it. Returns the number of
// choices that reached the router. If that is not all, the answer has failed.
size_t SubmitChoices(const GatewayParts& parts, const CompletionCall& completion, CallContext context,
                     const std::string& id, const std::shared_ptr<CompletionAnswer>& answer) {
  size_t choice = 0;
  bool admitted = false;
  int64_t prompt_logprobs = 0;  // of all choices
  for (size_t prompt = 0; prompt < completion.requests.size(); ++prompt) {
    if (answer->over()) return choice;
    absl::StatusOr<ClientRequest> read =
        parts.admission.Read(completion.requests[prompt], context, completion.FormOf(prompt), &completion.values);
    if (!read.ok()) {
      parts.admission.Refuse(*answer->sink(choice), read.status());
      return choice;
    }
    // The failure of one choice ends the whole answer.
    read->keep |= completion.choices() > 1;
    prompt_logprobs += PromptLogprobsOf(*read) * completion.samples;
    if (const absl::Status fits = read->scores() ? CheckScoring(*read, prompt_logprobs) : absl::OkStatus();
        !fits.ok()) {
      parts.admission.Refuse(*answer->sink(choice), fits);
      return choice;
    }
    // The tokens of references and of a context are not known yet.
    if (read->prompt.segments.empty() && read->context.id.empty()) answer->SetPrompt(prompt, read->spec.tokens);
    if (completion.chat) SetThinking(parts, completion, *read, *answer);
    for (int32_t sample = 0; sample < completion.samples && !answer->over(); ++sample, ++choice) {
      ClientRequest request = *read;
      request.has_drawn_id = request.id.empty();
      request.id = completion.IdOf(id, choice);
      std::optional<uint64_t>& seed = request.spec.sampling.seed;
      if (seed) seed = ChoiceSeed(*seed, static_cast<uint64_t>(sample));
      context.further = choice > 0;
      const auto ticket = parts.admission.Submit(std::move(request), context, answer->sink(choice));
      if (!ticket) continue;
      if (!std::exchange(admitted, true)) parts.chats.OnAdmitted(completion.left_out);
      for (const PrefillHint& hint : completion.prefill_hints) {
        if (!answer->over()) parts.admission.AddPrefillHint(context.caller, *ticket, hint.request, hint.values);
      }
    }
  }
  return choice;
}

void SubmitAll(const GatewayParts& parts, const CompletionCall& completion, const CallContext& context,
               const std::string& id, const std::shared_ptr<CompletionAnswer>& answer) {
  const size_t submitted = SubmitChoices(parts, completion, context, id, answer);
  const CompletionAnswer::Failure failure = answer->failure();
  const bool has_id = !completion.requests.front().request_id().empty();
  if (const size_t choices = completion.choices(); has_id && choices > 1) {
    NoteWholeCall(
        parts, context.caller, completion.requests.front(),
        absl::NotFoundError(StrCat("'", id, "' has ", choices, " choices: expected one of '", ChoiceId(id, 0, choices),
                                   "' to '", ChoiceId(id, choices - 1, choices), "'")));
  }
  if (failure.status.ok()) return;
  // Prompts may wait for the other choices. A call without an id is in the trace once.
  for (size_t i = submitted; i < (has_id ? completion.choices() : size_t{1}); ++i) {
    v1::GenerateRequest names = completion.requests[i / static_cast<size_t>(completion.samples)];
    names.set_request_id(has_id ? completion.IdOf(id, i) : "");
    parts.admission.NoteRefused(context.caller, names, failure.status, failure.retry_after);
  }
}

void ReadAndSubmit(const GatewayParts& parts, const SharedCall& call, Reader reader) {
  const absl::StatusOr<Json> body = ParseJsonBody(call->request.body);
  if (!body.ok()) return Refuse(parts, *call, body.status());
  absl::StatusOr<CompletionCall> read = reader(*body, parts.models);
  if (absl::IsNotFound(read.status())) {  // the decoder's worker may have attached just now
    parts.admission.JoinDecoders();
    read = reader(*body, parts.models);
  }
  if (!read.ok()) return Refuse(parts, *call, NamesOf(parts, *call, *body), read.status());
  const HeaderNames names = NamesIn(parts, *call);
  for (v1::GenerateRequest& request : read->requests) names.ApplyTo(request);
  const std::string& given = read->requests.front().request_id();
  const std::string id = given.empty() ? parts.admission.DrawId() : given;
  const auto answer = CompletionAnswer::Make(parts.router, parts.chats, *read, AnswerId(*call, id), call->reply);
  SubmitAll(parts, *read,
            {call->caller, call->id.request_id, call->id.span, call->arrived + read->timeout, call->arrived}, id,
            answer);
}

// REQUIRES: the body of the call is one message.
template <typename Message>
void ReadAndSubmitRpc(const GatewayParts& parts, const SharedCall& call, absl::Duration timeout, AnswerForm form) {
  Message message;
  if (const absl::Status status = ParseRpc(call->request.body, message); !status.ok()) {
    return Refuse(parts, *call, NamesOf(parts, *call), status);
  }
  v1::GenerateRequest request = AsGenerate(std::move(message));
  NamesIn(parts, *call).ApplyTo(request);
  const absl::Time deadline = call->arrived + std::min(timeout, TimeoutOf(request));
  CallContext context{call->caller, call->id.request_id, call->id.span, deadline, call->arrived};
  if (request.request_id().empty()) context.drawn_id = parts.admission.DrawId();
  const std::string& id = context.drawn_id.empty() ? request.request_id() : context.drawn_id;
  const auto answer = std::make_shared<RpcAnswer>(parts.router, AnswerId(*call, id), call->reply, form);
  RpcAnswer::Watch(answer);
  parts.admission.Admit(request, context, answer);
}

}  // namespace

void ServeCompletion(const GatewayParts& parts, const SharedCall& call) {
  ReadBody(parts, call, [parts, call] { ReadAndSubmit(parts, call, ReadCompletion); });
}

void ServeChat(const GatewayParts& parts, const SharedCall& call) {
  ReadBody(parts, call, [parts, call] { ReadAndSubmit(parts, call, ReadChat); });
}

void ServeGenerate(const GatewayParts& parts, const SharedCall& call) {
  const absl::StatusOr<RpcQuery> query = ReadRpcQuery(call->request.query, /*may_stream=*/true);
  if (!query.ok()) return Refuse(parts, *call, query.status());
  ReadBody(parts, call, [parts, call, query = *query] {
    ReadAndSubmitRpc<v1::GenerateRequest>(parts, call, query.timeout,
                                          query.stream ? AnswerForm::kEvents : AnswerForm::kWhole);
  });
}

void ServePrefillOnly(const GatewayParts& parts, const SharedCall& call) {
  const absl::StatusOr<RpcQuery> query = ReadRpcQuery(call->request.query, /*may_stream=*/false);
  if (!query.ok()) return Refuse(parts, *call, query.status());
  ReadBody(parts, call, [parts, call, query = *query] {
    ReadAndSubmitRpc<v1::PrefillOnlyRequest>(parts, call, query.timeout, AnswerForm::kPrefillOnly);
  });
}

}  // namespace baton
