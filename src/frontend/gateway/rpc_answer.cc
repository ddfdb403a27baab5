#include "frontend/gateway/rpc_answer.h"

#include <utility>

#include "frontend/openai/json_text.h"
#include "frontend/openai/openai_error.h"
#include "frontend/response_convert.h"
#include "rpc/proto_json.h"

namespace baton {

void RpcAnswer::Watch(const std::shared_ptr<RpcAnswer>& answer) {
  if (answer->form_ == AnswerForm::kEvents) OpenEventStream(*answer->reply_, EventStream(answer->call_id_));
  answer->reply_->OnGone([weak = std::weak_ptr(answer)](Gone why) {
    const auto self = weak.lock();
    if (self) OnClientGone(why, self->handle_);
  });
}

void RpcAnswer::SetId(const RequestId& id) {
  const std::lock_guard lock(mutex_);
  id_ = id;
}

void RpcAnswer::Refuse(const absl::Status& status, absl::Duration retry_after) { Fail(status, retry_after, {}); }

void RpcAnswer::Fail(const absl::Status& status, absl::Duration retry_after, std::string_view partial) {
  if (reply_->TrySend(ErrorResponse(call_id_, status, retry_after, partial))) return;
  reply_->Write(ToEvent(ErrorBody(status)));
  reply_->End();
}

void RpcAnswer::SendEvent() {
  pending_.set_request_id(std::exchange(id_, {}));  // only the first event has it
  reply_->Write(ToEvent(ToJson(pending_)));
  pending_.Clear();
}

void RpcAnswer::OnUpdate(TokenUpdate update) {
  const std::lock_guard lock(mutex_);
  if (over_) return;
  AddTo(pending_, update);
  if (form_ == AnswerForm::kEvents) SendEvent();
}

void RpcAnswer::OnEnd(const RequestOutcome& outcome) {
  const std::lock_guard lock(mutex_);
  over_ = true;
  if (!outcome.status.ok()) {
    const bool has_text = !pending_.text().empty();  // an event has it already
    return Fail(outcome.status, outcome.retry_after, has_text ? ToJson(pending_) : "");
  }
  if (form_ == AnswerForm::kPrefillOnly) {
    return reply_->Send(JsonResponse(call_id_, ToJson(ToPrefillOnly(id_, outcome))));
  }
  *pending_.mutable_final() = ToFinal(outcome);
  if (form_ == AnswerForm::kEvents) {
    SendEvent();
    return reply_->End();
  }
  pending_.set_request_id(id_);
  reply_->Send(JsonResponse(call_id_, ToJson(pending_)));
}

}  // namespace baton
