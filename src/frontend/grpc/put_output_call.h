// One client's PutOutput call: a stream of messages with the parts of a value.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "frontend/grpc/call_deadline.h"
#include "frontend/value_writer.h"
#include "grpcpp/grpcpp.h"

namespace baton {

// gRPC owns this object until OnDone. The router also owns it while the value is live.
//
// gRPC reports the end of the client's messages and a broken connection in the same way at first
// (OnReadDone). It reports a broken connection again before OnDone (OnCancel). The value therefore
// ends in OnDone, so that a part of a value never counts as the whole.
class PutOutputCall final : public grpc::ServerReadReactor<grpc::ByteBuffer>, public ValueSink {
 public:
  static std::shared_ptr<PutOutputCall> Make(grpc::CallbackServerContext* context, grpc::ByteBuffer* response,
                                             ValueWriter writer);
  // Begins to read. REQUIRES: Refuse was not called.
  void Start() { StartRead(&message_); }
  void Refuse(const absl::Status& status) { FinishOnce(status); }

  void OnValueEnded(const absl::Status& status) override { FinishOnce(status); }
  void OnReadDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  PutOutputCall(grpc::CallbackServerContext* context, grpc::ByteBuffer* response, ValueWriter writer)
      : context_(context), response_(response), deadline_(*context), writer_(std::move(writer)) {}
  // Finishes the call, unless it is finished.
  void FinishOnce(const absl::Status& status);

  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer* const response_;
  const CallDeadline deadline_;
  ValueWriter writer_;  // used by one of gRPC's calls at a time
  grpc::ByteBuffer message_;
  std::mutex mutex_;  // guards the members below
  std::shared_ptr<PutOutputCall> self_;
  bool finished_ = false;
  std::optional<CallEnd> cut_off_;  // why the call ended before its last message
};

}  // namespace baton
