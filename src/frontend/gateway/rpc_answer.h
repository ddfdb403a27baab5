// The calls of baton.v1.Inference over HTTP: their messages as JSON.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "frontend/admission.h"
#include "frontend/gateway/http_call.h"
#include "frontend/http/http_reply.h"
#include "inference.pb.h"

namespace baton {

// What the two have in common: a refusal, and a client that goes away. Kept by the router while the request is live.
class RpcAnswer : public CallSink {
 public:
  RpcAnswer(Router& router, CallId call_id, std::shared_ptr<HttpReply> reply)
      : call_id_(std::move(call_id)), reply_(std::move(reply)), handle_(&router) {}
  // Of an answer that is told when its client goes away, and of a stream that tells while it waits. Before its request
  // is submitted.
  static void Watch(const std::shared_ptr<RpcAnswer>& answer);

  RequestHandle& handle() override { return handle_; }
  void SetId(const RequestId& id) override;
  void Refuse(const absl::Status& status, absl::Duration retry_after) override;

 protected:
  virtual bool streams() const { return false; }

  const CallId call_id_;
  const std::shared_ptr<HttpReply> reply_;
  RequestHandle handle_;
  std::mutex mutex_;  // guards what follows
  RequestId id_;
};

// Whole, as one GenerateResponse; or as server-sent events, each of which is one.
class GenerateAnswer final : public RpcAnswer {
 public:
  GenerateAnswer(Router& router, CallId call_id, std::shared_ptr<HttpReply> reply, bool stream)
      : RpcAnswer(router, std::move(call_id), std::move(reply)), stream_(stream) {}
  void OnUpdate(TokenUpdate update) override;
  void OnEnd(const RequestOutcome& outcome) override;

 private:
  bool streams() const override { return stream_; }
  void SendEvent();  // what is pending; with the lock held

  const bool stream_;
  // Guarded by mutex_.
  v1::GenerateResponse pending_;
  bool over_ = false;
};

class PrefillOnlyAnswer final : public RpcAnswer {
 public:
  using RpcAnswer::RpcAnswer;
  void OnUpdate(TokenUpdate) override {}  // there are none
  void OnEnd(const RequestOutcome& outcome) override;
};

}  // namespace baton
