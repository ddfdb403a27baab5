#include "frontend/grpc/generate_stream.h"

#include <utility>

#include "base/clock.h"
#include "base/logging.h"
#include "base/retry.h"
#include "frontend/response_convert.h"
#include "rpc/grpc_status.h"

namespace baton {
namespace {

grpc::ByteBuffer Serialize(const v1::GenerateResponse& response) {
  grpc::ByteBuffer bytes;
  bool own = false;
  grpc::SerializationTraits<v1::GenerateResponse>::Serialize(response, &bytes, &own);
  return bytes;
}

}  // namespace

std::shared_ptr<GenerateStream> GenerateStream::Make(grpc::CallbackServerContext* context, Router* router) {
  std::shared_ptr<GenerateStream> stream(new GenerateStream(context, router));
  const std::lock_guard lock(stream->mutex_);
  stream->self_ = stream;
  return stream;
}

void GenerateStream::SetId(const RequestId& id) {
  const std::lock_guard lock(mutex_);
  id_ = unsent_id_ = id;
  context_->AddInitialMetadata("x-request-id", id);
  StartSendInitialMetadata();
}

void GenerateStream::Refuse(const absl::Status& status, absl::Duration retry_after) {
  const std::lock_guard lock(mutex_);
  AddRetryAfter(*context_, RetryDelayOf(status, retry_after));
  end_ = ToGrpc(status);
  Continue();
}

void GenerateStream::Append(const TokenUpdate& update) {
  has_pending_ = true;
  pending_bytes_ += update.text.size() + update.tokens.size() * sizeof(TokenId);
  for (const TokenLogprobs& logprobs : update.logprobs) {
    pending_bytes_ += sizeof(float) + logprobs.top.size() * 2 * sizeof(float);
  }
  AddTo(pending_, update);
}

void GenerateStream::OnUpdate(TokenUpdate update) {
  {
    const std::lock_guard lock(mutex_);
    if (end_ || cut_off_) return;
    Append(update);
    const bool paused = is_writing_ && SteadyClock().Now() - write_started_ > kMaxReadPause;
    Continue();
    if (pending_bytes_ <= kMaxUnreadBytes && !paused) return;
    cut_off_ = true;
    pending_.Clear();
    LogFields(spdlog::level::warn, "disconnected a client that does not read its answer", {{"request", id_}});
  }
  handle_.Detach();
  context_->TryCancel();  // also ends a write that hangs
}

void GenerateStream::OnEnd(const RequestOutcome& outcome) {
  const std::lock_guard lock(mutex_);
  if (end_) return;
  if (outcome.status.ok()) {
    *pending_.mutable_final() = ToFinal(outcome);
    has_pending_ = true;
  }
  AddRetryAfter(*context_, RetryDelayOf(outcome.status, outcome.retry_after));
  end_ = ToGrpc(outcome.status);
  Continue();
}

void GenerateStream::Continue() {
  if (is_writing_ || finished_) return;
  if (has_pending_ && !cut_off_) {
    if (!unsent_id_.empty()) pending_.set_request_id(std::exchange(unsent_id_, {}));
    writing_ = Serialize(pending_);
    pending_.Clear();
    has_pending_ = false;
    pending_bytes_ = 0;
    is_writing_ = true;
    if (end_) {
      finished_ = true;
      StartWriteAndFinish(&writing_, {}, *end_);
    } else {
      write_started_ = SteadyClock().Now();
      StartWrite(&writing_);
    }
  } else if (end_) {
    finished_ = true;
    Finish(*end_);
  }
}

void GenerateStream::OnWriteDone(bool ok) {
  {
    const std::lock_guard lock(mutex_);
    is_writing_ = false;
    if (!ok) cut_off_ = true;
    Continue();
    if (ok) return;
  }
  handle_.Cancel(deadline_.End());
}

void GenerateStream::OnCancel() {
  {
    const std::lock_guard lock(mutex_);
    cut_off_ = true;
  }
  handle_.Cancel(deadline_.End());
}

void GenerateStream::OnDone() {
  // Keeps this object alive until the lock is released.
  std::shared_ptr<GenerateStream> last;
  const std::lock_guard lock(mutex_);
  last = std::move(self_);
}

}  // namespace baton
