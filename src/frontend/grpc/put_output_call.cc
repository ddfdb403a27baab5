#include "frontend/grpc/put_output_call.h"

#include <utility>

#include "base/retry.h"
#include "frontend/grpc/message_check.h"
#include "rpc/grpc_status.h"

namespace baton {

std::shared_ptr<PutOutputCall> PutOutputCall::Make(grpc::CallbackServerContext* context, grpc::ByteBuffer* response,
                                                   ValueWriter writer) {
  std::shared_ptr<PutOutputCall> call(new PutOutputCall(context, response, std::move(writer)));
  const std::lock_guard lock(call->mutex_);
  call->self_ = call;
  return call;
}

void PutOutputCall::FinishOnce(const absl::Status& status) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(finished_, true)) return;
  }
  AddRetryAfter(*context_, RetryDelayOf(status, absl::ZeroDuration()));
  bool own = false;
  grpc::SerializationTraits<v1::PutOutputResponse>::Serialize(v1::PutOutputResponse(), response_, &own);
  Finish(ToGrpc(status));
}

void PutOutputCall::OnReadDone(bool ok) {
  if (!ok) {
    const bool began = writer_.began();
    return FinishOnce(began ? absl::OkStatus() : absl::InvalidArgumentError("request_id: the stream has no message"));
  }
  v1::PutOutputRequest message;
  const bool begins = !writer_.began();
  absl::Status status = Parse(message_, message);
  if (!status.ok()) {
    writer_.End(status);
  } else {
    std::shared_ptr<PutOutputCall> self;
    {
      const std::lock_guard lock(mutex_);
      self = self_;
    }
    status = writer_.Add(message, self);
  }
  if (!status.ok()) return FinishOnce(status);
  {
    const std::lock_guard lock(mutex_);
    if (finished_) return;
    if (begins) {
      context_->AddInitialMetadata("x-request-id", message.request_id());
      StartSendInitialMetadata();
    }
  }
  message_.Clear();
  StartRead(&message_);
}

void PutOutputCall::OnCancel() {
  {
    const std::lock_guard lock(mutex_);
    cut_off_ = deadline_.End();
  }
  FinishOnce(absl::CancelledError("the client cancelled"));
}

void PutOutputCall::OnDone() {
  // Keeps this object alive until the end of this call.
  std::shared_ptr<PutOutputCall> last;
  std::optional<CallEnd> cut_off;
  {
    const std::lock_guard lock(mutex_);
    last = std::move(self_);
    cut_off = cut_off_;
  }
  if (!cut_off) return writer_.End(absl::OkStatus());
  writer_.End(*cut_off == CallEnd::kDeadline ? absl::DeadlineExceededError("the deadline of the call passed")
                                             : absl::CancelledError("the client cancelled, or its connection broke"));
}

}  // namespace baton
