#include "frontend/grpc/prefill_only_call.h"

#include "base/retry.h"
#include "frontend/response_convert.h"
#include "rpc/grpc_status.h"

namespace baton {

std::shared_ptr<PrefillOnlyCall> PrefillOnlyCall::Make(grpc::CallbackServerContext* context, grpc::ByteBuffer* response,
                                                       Router* router) {
  std::shared_ptr<PrefillOnlyCall> call(new PrefillOnlyCall(context, response, router));
  const std::lock_guard lock(call->mutex_);
  call->self_ = call;
  return call;
}

void PrefillOnlyCall::SetId(const RequestId& id) {
  const std::lock_guard lock(mutex_);
  id_ = id;
}

void PrefillOnlyCall::Refuse(const absl::Status& status, absl::Duration retry_after) {
  AddRetryAfter(*context_, RetryDelayOf(status, retry_after));
  Finish(ToGrpc(status));
}

void PrefillOnlyCall::OnEnd(const RequestOutcome& outcome) {
  if (!outcome.status.ok()) return Refuse(outcome.status, outcome.retry_after);
  v1::PrefillOnlyResponse response;
  {
    const std::lock_guard lock(mutex_);
    response = ToPrefillOnly(id_, outcome);
  }
  bool own = false;
  grpc::SerializationTraits<v1::PrefillOnlyResponse>::Serialize(response, response_, &own);
  Finish(grpc::Status::OK);
}

void PrefillOnlyCall::OnDone() {
  // Keeps this object alive until the lock is released.
  std::shared_ptr<PrefillOnlyCall> last;
  const std::lock_guard lock(mutex_);
  last = std::move(self_);
}

}  // namespace baton
