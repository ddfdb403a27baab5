#include "frontend/gateway/completion_answer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace baton {

std::shared_ptr<CompletionAnswer> CompletionAnswer::Make(Router& router, ChatLog& chats, const CompletionCall& call,
                                                         const CallId& id, std::shared_ptr<HttpReply> reply) {
  std::shared_ptr<CompletionAnswer> answer(new CompletionAnswer(router, chats, call, id, std::move(reply)));
  if (answer->stream_) OpenEventStream(*answer->reply_, answer->WithLimits(EventStream(id)));
  answer->reply_->OnGone([weak = answer->weak_from_this()](Gone why) {
    if (const auto self = weak.lock()) self->OnGone(why);
  });
  return answer;
}

CompletionAnswer::CompletionAnswer(Router& router, ChatLog& chats, const CompletionCall& call, const CallId& id,
                                   std::shared_ptr<HttpReply> reply)
    : chats_(chats),
      id_(id),
      chat_(call.chat),
      stream_(call.stream),
      reply_(std::move(reply)),
      writer_(call, *call.model, id.request_id, absl::Now()) {
  for (size_t i = 0; i < call.choices(); ++i) choices_.emplace_back(*this, i, router);
}

void CompletionAnswer::SetPrompt(size_t prompt, std::span<const TokenId> tokens) {
  const std::lock_guard lock(mutex_);
  writer_.SetPrompt(prompt, tokens);
}

void CompletionAnswer::SetThinking(Thinking thinking) {
  const std::lock_guard lock(mutex_);
  writer_.SetThinking(thinking);
}

bool CompletionAnswer::over() const {
  const std::lock_guard lock(mutex_);
  return over_;
}

CompletionAnswer::Failure CompletionAnswer::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

// Adds a header by which clients can detect prefill hints. Other servers would refuse the field
// `followers`.
HttpResponse CompletionAnswer::WithLimits(HttpResponse response) const {
  if (chat_) response.headers.emplace_back("x-baton-followers", absl::StrCat(kMaxPrefillHints));
  return response;
}

// Writing with the lock held keeps events in order. The reply calls nothing back, so this cannot
// deadlock.
void CompletionAnswer::SendEvents() {
  reply_->Write(events_);
  events_.clear();
}

void CompletionAnswer::OnUpdate(size_t choice, const TokenUpdate& update) {
  const std::lock_guard lock(mutex_);
  if (over_) return;
  writer_.Update(choice, update, events_);
  SendEvents();
}

void CompletionAnswer::OnEnd(size_t choice, const RequestOutcome& outcome) {
  if (!outcome.status.ok()) return Fail(outcome.status, outcome.retry_after);
  const std::lock_guard lock(mutex_);
  if (over_) return;
  writer_.End(choice, outcome, events_);
  SendEvents();
  if (!writer_.done()) return;
  over_ = true;
  chats_.OnAnswer(writer_.strict_calls());
  stream_ ? reply_->End() : reply_->Send(WithLimits(JsonResponse(id_, writer_.Body())));
}

void CompletionAnswer::Fail(const absl::Status& status, absl::Duration retry_after) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(over_, true)) return;
    failure_ = {status, retry_after};
    // Once a stream has begun, even with a comment, its status is sent and cannot change.
    if (!reply_->TrySend(ErrorResponse(id_, status, retry_after, writer_.TakePartial()))) {
      writer_.Fail(status, events_);
      SendEvents();
      reply_->End();
    }
  }
  for (Choice& choice : choices_) choice.handle().Fail(status);
}

void CompletionAnswer::OnGone(Gone why) {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
    if (failure_.status.ok()) failure_.status = absl::CancelledError("the client left");
  }
  for (Choice& choice : choices_) OnClientGone(why, choice.handle());
}

}  // namespace baton
