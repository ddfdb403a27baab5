// One client's PrefillOnly call. It is a class of its own, because gRPC has different reactors for
// calls with one answer and for streams.
#pragma once

#include <memory>
#include <mutex>

#include "frontend/admission.h"
#include "frontend/grpc/call_deadline.h"
#include "grpcpp/grpcpp.h"

namespace baton {

// gRPC owns this object until OnDone. The router also owns it while the request is live.
class PrefillOnlyCall final : public grpc::ServerUnaryReactor, public CallSink {
 public:
  static std::shared_ptr<PrefillOnlyCall> Make(grpc::CallbackServerContext* context, grpc::ByteBuffer* response,
                                               Router* router);
  void SetId(const RequestId& id) override;
  RequestHandle& handle() override { return handle_; }
  void Refuse(const absl::Status& status, absl::Duration retry_after) override;

  void OnUpdate(TokenUpdate) override {}  // a prefill-only request has no output
  void OnEnd(const RequestOutcome& outcome) override;
  void OnCancel() override { handle_.Cancel(deadline_.End()); }
  void OnDone() override;

 private:
  PrefillOnlyCall(grpc::CallbackServerContext* context, grpc::ByteBuffer* response, Router* router)
      : context_(context), deadline_(*context), response_(response), handle_(router) {}

  grpc::CallbackServerContext* const context_;
  const CallDeadline deadline_;
  grpc::ByteBuffer* const response_;
  RequestHandle handle_;
  std::mutex mutex_;  // guards the members below
  std::shared_ptr<PrefillOnlyCall> self_;
  RequestId id_;
};

}  // namespace baton
