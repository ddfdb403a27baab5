#include "server/completion_routes.h"

#include <utility>

#include "server/completion_answer.h"
#include "server/openai/chat_reader.h"
#include "server/openai/completion_reader.h"
#include "server/openai/json_body.h"
#include "server/router_metrics.h"
#include "server/rpc_answer.h"

namespace baton {
namespace {

using Reader = absl::StatusOr<CompletionCall> (*)(const Json& body, const ServedModels& models);

// For calls that did not become requests.
void Refuse(const GatewayParts& parts, const HttpCall& call, const absl::Status& status,
            absl::Duration retry_after = {}) {
  CountRequest(parts.metrics, status.code());
  call.reply->Send(ErrorResponse(call.id, status, retry_after));
}

// Runs `read` where the body's length asks for it; not while the router shuts down.
void ReadBody(const GatewayParts& parts, const SharedCall& call, absl::AnyInvocable<void()> read) {
  if (const absl::Status open = parts.admission.Open(); !open.ok()) {
    return Refuse(parts, *call, open, ClientAdmission::kRetryHint);
  }
  if (const auto refusal = parts.admission.callers().Check(call->caller)) {
    return Refuse(parts, *call, refusal->status, refusal->retry_after);
  }
  auto unless_gone = [parts, call, read = std::move(read)]() mutable {
    // A long body may have waited: what nobody waits for any more is not parsed.
    if (call->reply->gone()) return CountRequest(parts.metrics, absl::StatusCode::kCancelled);
    read();
  };
  const absl::Status run = parts.admission.Run(call->request.body.size(), std::move(unless_gone));
  if (!run.ok()) Refuse(parts, *call, run, ClientAdmission::kRetryHint);
}

void SubmitAll(const GatewayParts& parts, const CompletionCall& completion, CallContext context,
               const std::shared_ptr<CompletionAnswer>& answer) {
  for (size_t i = 0; i < completion.requests.size() && !answer->over(); ++i) {
    context.further = i > 0;
    parts.admission.Admit(completion.requests[i], context, answer->sink(i));
  }
}

void ReadAndSubmit(const GatewayParts& parts, const SharedCall& call, Reader reader) {
  const absl::StatusOr<Json> body = ParseJsonBody(call->request.body);
  if (!body.ok()) return Refuse(parts, *call, body.status());
  absl::StatusOr<CompletionCall> read = reader(*body, parts.models);
  if (absl::IsNotFound(read.status())) {  // perhaps a decoder that has just come
    parts.admission.JoinDecoders();
    read = reader(*body, parts.models);
  }
  if (!read.ok()) return Refuse(parts, *call, read.status());
  const auto completion = std::make_shared<const CompletionCall>(*std::move(read));
  const CallContext context{call->caller, call->arrived + completion->timeout};
  const auto answer =
      CompletionAnswer::Make(parts.router, *completion, call->id, parts.admission.DrawId(), call->reply);
  // A short body may ask for many samples of its prompt.
  size_t bytes = 0;
  for (const v1::GenerateRequest& request : completion->requests) bytes += ClientAdmission::PromptBytes(request);
  const bool is_short = ClientAdmission::IsShort(call->request.body.size());
  const absl::Status run = parts.admission.Run(
      is_short ? bytes : 0, [parts, completion, context, answer] { SubmitAll(parts, *completion, context, answer); });
  if (run.ok()) return;
  CountRequest(parts.metrics, run.code());
  answer->Fail(run, ClientAdmission::kRetryHint);
}

// Of one message that is the whole body.
template <typename Request>
void ReadAndSubmitRpc(const GatewayParts& parts, const SharedCall& call, const std::shared_ptr<RpcAnswer>& answer) {
  Request request;
  if (const absl::Status status = ParseRpc(call->request.body, request); !status.ok()) {
    return Refuse(parts, *call, status);
  }
  RpcAnswer::Watch(answer);
  parts.admission.Admit(request, CallContext{call->caller}, answer);
}

}  // namespace

void ServeCompletion(const GatewayParts& parts, const SharedCall& call) {
  ReadBody(parts, call, [parts, call] { ReadAndSubmit(parts, call, ReadCompletion); });
}

void ServeChat(const GatewayParts& parts, const SharedCall& call) {
  ReadBody(parts, call, [parts, call] { ReadAndSubmit(parts, call, ReadChat); });
}

void ServeGenerate(const GatewayParts& parts, const SharedCall& call) {
  const absl::StatusOr<bool> stream = ReadSwitch(call->request.query, "stream");
  if (!stream.ok()) return Refuse(parts, *call, stream.status());
  ReadBody(parts, call, [parts, call, stream = *stream] {
    ReadAndSubmitRpc<v1::GenerateRequest>(
        parts, call, std::make_shared<GenerateAnswer>(parts.router, call->id, call->reply, stream));
  });
}

void ServePrefillOnly(const GatewayParts& parts, const SharedCall& call) {
  ReadBody(parts, call, [parts, call] {
    ReadAndSubmitRpc<v1::PrefillOnlyRequest>(parts, call,
                                             std::make_shared<PrefillOnlyAnswer>(parts.router, call->id, call->reply));
  });
}

}  // namespace baton
