#include "transport/guarded/write_link.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kv/plane_copy.h"
#include "rpc/grpc_deadline.h"
#include "rpc/grpc_status.h"
#include "rpc/kv_convert.h"
#include "transport/block_copies.h"

namespace baton {
namespace {

// One thread reads the slab while the other's message is in flight.
constexpr int kThreads = 2;
constexpr int64_t kMessageBytes = int64_t{1} << 20;  // far below kMaxWireBytes

// Turns the errors of an unreachable peer into UNAVAILABLE. Keeps the errors that the peer
// returned.
absl::Status Classify(const absl::Status& status) {
  const bool unreached = absl::IsUnavailable(status) || absl::IsCancelled(status) || absl::IsDeadlineExceeded(status);
  return unreached ? absl::UnavailableError(status.message()) : status;
}

}  // namespace

KvWriteLink::KvWriteLink(std::shared_ptr<grpc::Channel> channel, KvWritePeer peer)
    : channel_(std::move(channel)), stub_(kv::v1::KvTransfer::NewStub(channel_)), peer_(std::move(peer)) {
  for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this] { Run(); });
}

KvWriteLink::~KvWriteLink() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
    for (grpc::ClientContext* call : calls_) call->TryCancel();
  }
  for (std::thread& thread : threads_) thread.join();
}

std::string KvWriteLink::Description() const {
  return absl::StrCat("gRPC to ", peer_.address, ", with the write keys of reservations");
}

void KvWriteLink::Push(std::span<const BlockCopy>, absl::AnyInvocable<void(absl::Status)> done) {
  done(absl::FailedPreconditionError(absl::StrCat(
      "decode worker ", peer_.address, " guards its KV blocks (--guard-kv) and granted no write key for this push")));
}

void KvWriteLink::PushUnder(const WriteKey& write_key, std::span<const BlockCopy> copies,
                            absl::AnyInvocable<void(absl::Status)> done) {
  const absl::Status valid = CheckCopies(copies, static_cast<int64_t>(peer_.source.size()), peer_.target_bytes);
  if (!valid.ok() || copies.empty()) return done(valid);
  const auto job = std::make_shared<Job>(Job{.write_key = write_key, .done = std::move(done)});
  std::vector<Message> messages = Cut(job, copies);
  job->messages = messages.size();
  const std::lock_guard lock(mutex_);
  std::move(messages.begin(), messages.end(), std::back_inserter(queue_));
  changed_.notify_all();
}

// Cuts the copies into messages of whole planes.
std::vector<KvWriteLink::Message> KvWriteLink::Cut(const std::shared_ptr<Job>& job,
                                                   std::span<const BlockCopy> copies) const {
  const int64_t most = std::max<int64_t>(1, kMessageBytes / peer_.plane_bytes) * peer_.plane_bytes;
  std::vector<Message> messages;
  for (const BlockCopy& copy : Coalesce(copies)) {
    for (int64_t at = 0; at < copy.bytes;) {
      if (messages.empty() || messages.back().bytes >= most || messages.back().copies.size() >= kMostWriteTargets) {
        messages.push_back({job, {}, 0});
      }
      Message& message = messages.back();
      const int64_t bytes = std::min(copy.bytes - at, most - message.bytes);
      message.copies.push_back({copy.source_offset + at, copy.target_offset + at, bytes});
      message.bytes += bytes;
      at += bytes;
    }
  }
  return messages;
}

void KvWriteLink::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return closed_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const Message message = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    const absl::Status status = Send(message);
    lock.lock();
    const std::vector<std::shared_ptr<Job>> ended = Settle(message, status);
    lock.unlock();
    for (const std::shared_ptr<Job>& job : ended) job->done(job->status);
    lock.lock();
  }
}

std::vector<std::shared_ptr<KvWriteLink::Job>> KvWriteLink::Settle(const Message& sent, const absl::Status& status) {
  const auto need_not_go = [&](const Message& queued) {
    return queued.job == sent.job ||
           (absl::IsPermissionDenied(status) && queued.job->write_key.id == sent.job->write_key.id);
  };
  std::vector<std::shared_ptr<Job>> settled = {sent.job}, ended;
  if (!status.ok()) {
    for (const Message& queued : queue_) {
      if (need_not_go(queued)) settled.push_back(queued.job);
    }
    std::erase_if(queue_, need_not_go);
  }
  for (const std::shared_ptr<Job>& job : settled) {
    if (job->status.ok()) job->status = status;
    if (--job->messages == 0) ended.push_back(job);
  }
  return ended;
}

absl::Status KvWriteLink::Send(const Message& message) {
  grpc::ClientContext context;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return absl::UnavailableError("the link was closed");
    calls_.insert(&context);
  }
  const absl::Status status = Write(context, message);
  const std::lock_guard lock(mutex_);
  calls_.erase(&context);
  return status;
}

absl::Status KvWriteLink::Write(grpc::ClientContext& context, const Message& message) {
  kv::v1::WriteRequest request;
  *request.mutable_right() = ToProto(message.job->write_key);
  std::string& data = *request.mutable_data();
  data.resize(static_cast<size_t>(message.bytes));
  auto* to = reinterpret_cast<std::byte*>(data.data());
  std::vector<MemoryCopy> planes;
  for (const BlockCopy& copy : message.copies) {
    AddPlanes(peer_.source, peer_.plane_bytes, to, peer_.source.data() + copy.source_offset, copy.bytes, planes);
    to += copy.bytes;
    request.add_target(copy.target_offset);
    request.add_bytes(copy.bytes);
  }
  RETURN_IF_ERROR(peer_.source.Copy(planes));
  context.set_deadline(DeadlineAfter(absl::FromChrono(peer_.write_within)));
  kv::v1::WriteReply reply;
  return Classify(FromGrpc(stub_->Write(&context, request, &reply)));
}

}  // namespace baton
