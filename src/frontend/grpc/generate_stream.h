// One client's Generate call. It sends tokens as fast as the client reads, and merges updates while
// the client is slower.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "frontend/admission.h"
#include "frontend/grpc/call_deadline.h"
#include "grpcpp/grpcpp.h"
#include "inference.pb.h"

namespace baton {

// gRPC owns this object until OnDone. The router also owns it while the request is live.
class GenerateStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer>, public CallSink {
 public:
  static std::shared_ptr<GenerateStream> Make(grpc::CallbackServerContext* context, Router* router);

  // The initial metadata and the first message carry this id.
  void SetId(const RequestId& id) override;
  RequestHandle& handle() override { return handle_; }
  void Refuse(const absl::Status& status, absl::Duration retry_after) override;

  void OnUpdate(TokenUpdate update) override;
  void OnEnd(const RequestOutcome& outcome) override;

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  GenerateStream(grpc::CallbackServerContext* context, Router* router)
      : context_(context), deadline_(*context), handle_(router) {}
  // Writes or finishes the call, if that is possible now.
  void Continue();
  void Append(const TokenUpdate& update);

  grpc::CallbackServerContext* const context_;
  const CallDeadline deadline_;
  RequestHandle handle_;
  std::mutex mutex_;  // guards the members below
  std::shared_ptr<GenerateStream> self_;
  RequestId id_, unsent_id_;
  bool cut_off_ = false;          // if set, nothing more is written
  v1::GenerateResponse pending_;  // the part of the answer that is not written yet
  bool has_pending_ = false;
  size_t pending_bytes_ = 0;
  grpc::ByteBuffer writing_;
  bool is_writing_ = false;
  absl::Time write_started_;
  std::optional<grpc::Status> end_;
  bool finished_ = false;
};

}  // namespace baton
