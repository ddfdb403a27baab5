// Answers to the calls of baton.v1.Inference over HTTP, with the messages as JSON.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "frontend/admission.h"
#include "frontend/gateway/http_call.h"
#include "frontend/http/http_reply.h"
#include "inference.pb.h"

namespace baton {

enum class AnswerForm {
  kWhole,  // one GenerateResponse
  // Server-sent events. Each is a GenerateResponse.
  kEvents,
  kPrefillOnly,  // one PrefillOnlyResponse
};

// The answer to one call. The router keeps this object while the request is live.
class RpcAnswer final : public CallSink {
 public:
  RpcAnswer(Router& router, CallId call_id, std::shared_ptr<HttpReply> reply, AnswerForm form)
      : call_id_(std::move(call_id)), reply_(std::move(reply)), form_(form), handle_(&router) {}
  // Opens the stream of events. When the client leaves, cancels or detaches the request. REQUIRES:
  // the request is not submitted yet.
  static void Watch(const std::shared_ptr<RpcAnswer>& answer);
  RequestHandle& handle() override { return handle_; }
  void SetId(const RequestId& id) override;
  void Refuse(const absl::Status& status, absl::Duration retry_after) override;
  void OnUpdate(TokenUpdate update) override;
  void OnEnd(const RequestOutcome& outcome) override;

 private:
  // Sends pending_. REQUIRES: the caller holds the lock.
  void SendEvent();
  // `partial` is as in ErrorBody.
  void Fail(const absl::Status& status, absl::Duration retry_after, std::string_view partial);

  const CallId call_id_;
  const std::shared_ptr<HttpReply> reply_;
  const AnswerForm form_;
  RequestHandle handle_;
  std::mutex mutex_;  // guards the members below
  RequestId id_;
  v1::GenerateResponse pending_;
  bool over_ = false;
};

}  // namespace baton
