// One call of /v1/completions or /v1/chat/completions: joins its requests, its writer and its reply.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "frontend/admission.h"
#include "frontend/gateway/http_call.h"
#include "frontend/http/http_reply.h"
#include "frontend/openai/completion_call.h"
#include "frontend/openai/completion_writer.h"

namespace baton {

// Kept by the router while a request of it is live. If one of them fails, the others are cancelled and the client is
// told of that one; if the client goes away, all are. Thread-safe.
class CompletionAnswer final : public std::enable_shared_from_this<CompletionAnswer> {
 public:
  // `id`: of the completion. The router and the call's model must outlive it.
  static std::shared_ptr<CompletionAnswer> Make(Router& router, const CompletionCall& call, const CallId& call_id,
                                                const std::string& id, std::shared_ptr<HttpReply> reply);

  std::shared_ptr<CallSink> sink(size_t choice) { return {shared_from_this(), &choices_.at(choice)}; }
  // As the writer's.
  void SetThinking(Thinking thinking);
  // There is nothing more to say: what was not submitted need not be.
  bool over() const;
  // Of the whole call.
  void Fail(const absl::Status& status, absl::Duration retry_after);

 private:
  class Choice final : public CallSink {
   public:
    Choice(CompletionAnswer& answer, size_t index, Router& router) : answer_(answer), index_(index), handle_(&router) {}
    RequestHandle& handle() override { return handle_; }
    void SetId(const RequestId&) override {}  // the client knows the call by its own id
    void Refuse(const absl::Status& status, absl::Duration retry_after) override { answer_.Fail(status, retry_after); }
    void OnUpdate(TokenUpdate update) override { answer_.OnUpdate(index_, update); }
    void OnEnd(const RequestOutcome& outcome) override { answer_.OnEnd(index_, outcome); }

   private:
    CompletionAnswer& answer_;
    const size_t index_;
    RequestHandle handle_;
  };

  CompletionAnswer(Router& router, const CompletionCall& call, const CallId& call_id, const std::string& id,
                   std::shared_ptr<HttpReply> reply);
  void OnUpdate(size_t choice, const TokenUpdate& update);
  void OnEnd(size_t choice, const RequestOutcome& outcome);
  void OnGone(Gone why);
  void SendEvents();  // with the lock held
  HttpResponse WithLimits(HttpResponse response) const;

  const CallId call_id_;
  const bool chat_, stream_;
  const std::shared_ptr<HttpReply> reply_;
  std::deque<Choice> choices_;  // fixed after construction
  mutable std::mutex mutex_;    // guards what follows
  CompletionWriter writer_;
  std::string events_;  // scratch
  bool over_ = false;
};

}  // namespace baton
