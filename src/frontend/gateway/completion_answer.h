// The answer to one call of /v1/completions or /v1/chat/completions. It joins the call's requests,
// writer and reply.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "frontend/admission.h"
#include "frontend/gateway/chat_log.h"
#include "frontend/gateway/http_call.h"
#include "frontend/http/http_reply.h"
#include "frontend/openai/completion_call.h"
#include "frontend/openai/completion_writer.h"

namespace baton {

// The router keeps this object while one of its requests is live. If one request fails, the others
// end with its error, which the client receives. If the client leaves, all requests are cancelled
// or detached. Thread-safe.
class CompletionAnswer final : public std::enable_shared_from_this<CompletionAnswer> {
 public:
  // `id` names the completion. The router, `chats` and the call's model must outlive this object.
  static std::shared_ptr<CompletionAnswer> Make(Router& router, ChatLog& chats, const CompletionCall& call,
                                                const CallId& id, std::shared_ptr<HttpReply> reply);

  std::shared_ptr<CallSink> sink(size_t choice) { return {shared_from_this(), &choices_.at(choice)}; }
  // As CompletionWriter::SetPrompt and SetThinking.
  void SetPrompt(size_t prompt, std::span<const TokenId> tokens);
  void SetThinking(Thinking thinking);
  // Returns whether the answer has ended. Requests that are not submitted yet are then not needed.
  bool over() const;
  // Why the answer ended before it was complete. OK: it has not ended, or it is complete.
  struct Failure {
    absl::Status status{};
    absl::Duration retry_after{};  // as in RetryDelayOf
  };
  Failure failure() const;
  // Fails the whole call.
  void Fail(const absl::Status& status, absl::Duration retry_after);

 private:
  class Choice final : public CallSink {
   public:
    Choice(CompletionAnswer& answer, size_t index, Router& router) : answer_(answer), index_(index), handle_(&router) {}
    RequestHandle& handle() override { return handle_; }
    void SetId(const RequestId&) override {}  // the client sees only the completion's id
    void Refuse(const absl::Status& status, absl::Duration retry_after) override { answer_.Fail(status, retry_after); }
    void OnUpdate(TokenUpdate update) override { answer_.OnUpdate(index_, update); }
    void OnEnd(const RequestOutcome& outcome) override { answer_.OnEnd(index_, outcome); }

   private:
    CompletionAnswer& answer_;
    const size_t index_;
    RequestHandle handle_;
  };

  CompletionAnswer(Router& router, ChatLog& chats, const CompletionCall& call, const CallId& id,
                   std::shared_ptr<HttpReply> reply);
  void OnUpdate(size_t choice, const TokenUpdate& update);
  void OnEnd(size_t choice, const RequestOutcome& outcome);
  void OnGone(Gone why);
  void SendEvents();  // REQUIRES: the caller holds the lock
  HttpResponse WithLimits(HttpResponse response) const;

  ChatLog& chats_;
  const CallId id_;
  const bool chat_, stream_;
  const std::shared_ptr<HttpReply> reply_;
  std::deque<Choice> choices_;  // fixed after construction
  mutable std::mutex mutex_;    // guards the members below
  CompletionWriter writer_;
  std::string events_;  // scratch
  bool over_ = false;
  Failure failure_;
};

}  // namespace baton
