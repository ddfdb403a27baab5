#include "transport/ucx/endpoint.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/logging.h"
#include "base/status.h"
#include "transport/ucx/lanes.h"
#include "transport/ucx/shared_mapping.h"

namespace baton {
namespace {

// Bytes that the progress thread copies before it runs other tasks.
constexpr int64_t kSliceBytes = int64_t{8} << 20;
// Upper bound on bytes of active messages without reply. Each message counts as at least
// kWindowCost.
constexpr int64_t kWindowBytes = int64_t{8} << 20;
constexpr int64_t kWindowCost = int64_t{8} << 10;
// Below this size, the handshake of a rendezvous costs more than the data.
constexpr int64_t kSmall = int64_t{64} << 10;

}  // namespace

const char* NameOf(UcxPath path) {
  switch (path) {
    case UcxPath::kSharedMemory:
      return "shared memory";
    case UcxPath::kMappedDevice:
      return "mapped device memory";
    case UcxPath::kPut:
      return "put";
    case UcxPath::kRendezvous:
      return "active messages, rendezvous";
    case UcxPath::kEager:
      return "active messages, eager";
  }
  return "";
}

// One Write or Probe. The operation ends when `pending` is 0. Each awaited completion of UCX and
// each awaited reply counts as 1 in `pending`, and so does the call that starts or continues the
// operation.
struct UcxEndpoint::Operation {
  UcxEndpoint* endpoint;
  std::vector<BlockCopy> runs;
  Done done;
  absl::Status status;
  int64_t pending = 1;
  size_t next_run = 0;  // for kSharedMemory: the run to copy next
  int64_t copied = 0;   // bytes of that run that are copied
};

struct UcxEndpoint::Chunk {
  UcxPath path;
  Operation* operation;
  UcxWrite header;
  BlockCopy copy;
  HostMemory staged = nullptr;  // a copy of the bytes, if UCX cannot read the source
};

UcxEndpoint::UcxEndpoint(UcxProgress& progress, UcxInbox& inbox, const Slab& source, bool direct)
    : progress_(progress), inbox_(inbox), source_(source), direct_(direct), pieces_(source, kChunkBytes) {}

absl::StatusOr<std::unique_ptr<UcxEndpoint>> UcxEndpoint::Open(UcxProgress& progress, UcxInbox& inbox,
                                                               const Slab& source, bool direct,
                                                               const UcxDescriptor& peer) {
  std::unique_ptr<UcxEndpoint> endpoint(new UcxEndpoint(progress, inbox, source, direct));
  RETURN_IF_ERROR(endpoint->Create(peer));
  return endpoint;
}

absl::Status UcxEndpoint::Create(const UcxDescriptor& peer) {
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(peer.worker_address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.arg = this;
  params.err_handler.cb = [](void* self, ucp_ep_h, ucs_status_t status) {
    static_cast<UcxEndpoint*>(self)->Break(ToStatus(status, "the peer is gone"));
  };
  RETURN_IF_ERROR(ToStatus(ucp_ep_create(progress_.worker(), &params, &endpoint_), "reaching the peer"));
  is_rdma_ = IsRdma(LanesOf(endpoint_));
  absl::Status status = OpenMemory(peer);
  if (!status.ok()) {
    ReleaseMemory();
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    void* request = ucp_ep_close_nbx(std::exchange(endpoint_, nullptr), &param);
    if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
  }
  return status;
}

// Prepares access to the peer's memory. UCX computes the mapped address from the peer's descriptor
// without any check, so this function checks it.
absl::Status UcxEndpoint::OpenMemory(const UcxDescriptor& peer) {
  remote_base_ = peer.base;
  MapDevice(peer);
  if (peer.rkey.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(ToStatus(ucp_ep_rkey_unpack(endpoint_, peer.rkey.data(), &rkey_), "the peer's memory key"));
  // UCX may return an address for device memory, but the host cannot use it.
  if (peer.on_device != 0) return absl::OkStatus();
  void* mapped = nullptr;
  if (ucp_rkey_ptr(rkey_, remote_base_, &mapped) != UCS_OK) return absl::OkStatus();
  const std::span peer_memory(static_cast<std::byte*>(mapped), peer.scratch_offset + kScratchBytes);
  if (const absl::Status status = CheckSharedMapping(peer_memory); !status.ok()) return status;
  const auto peer_begin = reinterpret_cast<uintptr_t>(peer_memory.data());
  const auto own_begin = reinterpret_cast<uintptr_t>(source_.data());
  if (peer_begin < own_begin + source_.size() && own_begin < peer_begin + peer_memory.size()) {
    return absl::InvalidArgumentError("UCX descriptor: the peer's memory overlaps this worker's own");
  }
  mapped_ = peer_memory.data();
  return absl::OkStatus();
}

// Maps the peer's device memory, if possible. It is not possible if the peer is on another host, or
// if its device is not visible to this process.
void UcxEndpoint::MapDevice(const UcxDescriptor& peer) {
  if (peer.shared.empty() || source_.on_host()) return;
  const auto mapped = source_.device()->Map(peer.shared);
  if (!mapped.ok()) {
    spdlog::info("the peer's device memory is not mapped: {}", mapped.status().ToString());
  } else if (mapped->size() < peer.scratch_offset + kScratchBytes) {
    source_.device()->Unmap(mapped->data());
  } else {
    mapped_device_ = mapped->data();
  }
}

// Releases access to the peer's memory when the connection ends. While a dead peer's device memory
// is mapped, its successor cannot allocate it.
void UcxEndpoint::ReleaseMemory() {
  if (rkey_ != nullptr) ucp_rkey_destroy(std::exchange(rkey_, nullptr));
  if (mapped_device_ != nullptr) source_.device()->Unmap(std::exchange(mapped_device_, nullptr));
}

std::vector<UcxPath> UcxEndpoint::Paths() const {
  if (mapped_device_ != nullptr) return {UcxPath::kMappedDevice};
  if (mapped_ != nullptr) return {UcxPath::kSharedMemory};
  // Over TCP, puts and rendezvous need handshakes inside UCX. UCX aborts a process if the
  // connection fails during one of them (docs/design/overview.md, UCX).
  if (!is_rdma_) return {UcxPath::kEager};
  if (rkey_ != nullptr && direct_) return {UcxPath::kPut, UcxPath::kRendezvous, UcxPath::kEager};
  return {UcxPath::kRendezvous, UcxPath::kEager};
}

UcxEndpoint::~UcxEndpoint() { BATON_CHECK(endpoint_ == nullptr, "destroyed before it was closed"); }

void UcxEndpoint::Write(UcxPath path, std::vector<BlockCopy> runs, Done done) {
  ++active_;
  auto* operation =
      new Operation{.endpoint = this, .runs = std::move(runs), .done = std::move(done), .status = status_};
  if (!status_.ok()) {
    Drop(operation, status_);
    return;
  }
  switch (path) {
    case UcxPath::kSharedMemory:
      CopySlice(operation);
      break;
    case UcxPath::kMappedDevice:
      CopyOnDevice(operation);
      break;
    case UcxPath::kPut:
      Put(operation);
      break;
    case UcxPath::kRendezvous:
    case UcxPath::kEager:
      Enqueue(path, operation);
      break;
  }
}

void UcxEndpoint::CopySlice(Operation* operation) {
  int64_t budget = kSliceBytes;
  while (status_.ok() && budget > 0 && operation->next_run < operation->runs.size()) {
    const BlockCopy& run = operation->runs[operation->next_run];
    const int64_t bytes = std::min(budget, run.bytes - operation->copied);
    const absl::Status copied =
        source_.Copy(mapped_ + run.target_offset + operation->copied,
                     source_.data() + run.source_offset + operation->copied, static_cast<size_t>(bytes));
    if (!copied.ok()) Break(copied);
    budget -= bytes;
    operation->copied += bytes;
    if (operation->copied == run.bytes) {
      ++operation->next_run;
      operation->copied = 0;
    }
  }
  if (status_.ok() && operation->next_run < operation->runs.size()) {
    progress_.Post([this, operation] { CopySlice(operation); });
    return;
  }
  Drop(operation, status_);
}

void UcxEndpoint::CopyOnDevice(Operation* operation) {
  const absl::Status copied = source_.device()->CopyRuns(mapped_device_, source_.data(), operation->runs);
  if (!copied.ok()) Break(copied);
  Drop(operation, copied);
}

ucp_request_param_t UcxEndpoint::ParamFor(Operation* operation) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.user_data = operation;
  param.cb.send = [](void* request, ucs_status_t status, void* user_data) {
    auto* finished = static_cast<Operation*>(user_data);
    ucp_request_free(request);
    finished->endpoint->Finish(finished, status);
  };
  return param;
}

// Handles the result of starting a request. UCX has accepted the request, completed it at once, or
// refused it.
void UcxEndpoint::Account(Operation* operation, void* request) {
  if (!UCS_PTR_IS_PTR(request)) Finish(operation, UCS_PTR_STATUS(request));
}

// Handles the completion of a request. After a failure, the replies to other messages may never
// come, and sent data may still be written later. All operations therefore end.
void UcxEndpoint::Finish(Operation* operation, ucs_status_t status) {
  const absl::Status result = ToStatus(status, "writing to the peer");
  if (!result.ok()) Break(result);
  Drop(operation, result);
}

void UcxEndpoint::Put(Operation* operation) {
  const ucp_request_param_t param = ParamFor(operation);
  for (const BlockCopy& run : operation->runs) {
    if (!status_.ok()) break;
    ++operation->pending;
    Account(operation, ucp_put_nbx(endpoint_, source_.data() + run.source_offset, static_cast<size_t>(run.bytes),
                                   remote_base_ + static_cast<uint64_t>(run.target_offset), rkey_, &param));
  }
  if (status_.ok()) {
    ++operation->pending;
    Account(operation, ucp_ep_flush_nbx(endpoint_, &param));
  }
  Drop(operation, absl::OkStatus());
}

void UcxEndpoint::Enqueue(UcxPath path, Operation* operation) {
  for (const BlockCopy& run : operation->runs) {
    for (int64_t at = 0; at < run.bytes; at += kChunkBytes) {
      const BlockCopy copy{run.source_offset + at, run.target_offset + at, std::min(kChunkBytes, run.bytes - at)};
      ++operation->pending;  // for the reply
      waiting_.push_back(std::make_unique<Chunk>(Chunk{path, operation, {}, copy}));
    }
  }
  Drop(operation, absl::OkStatus());
  SendWaiting();
}

void UcxEndpoint::SendWaiting() {
  while (status_.ok() && window_used_ < kWindowBytes && !waiting_.empty()) {
    std::unique_ptr<Chunk> chunk = std::move(waiting_.front());
    waiting_.pop_front();
    Send(std::move(chunk));
  }
}

uint64_t UcxEndpoint::ExpectReply(Operation* operation, absl::AnyInvocable<void(const UcxReply&)> on_reply) {
  const uint64_t ticket =
      inbox_.Expect([this, operation, on_reply = std::move(on_reply)](const UcxReply& reply) mutable {
        tickets_.erase(reply.ticket);
        on_reply(reply);
        Drop(operation, reply.ok == 1 ? absl::OkStatus() : absl::InternalError("the peer refused a write"));
      });
  tickets_.emplace(ticket, operation);
  return ticket;
}

// Sends one chunk. The chunk contains the message's header, so it lives until UCX has sent the
// message.
void UcxEndpoint::Send(std::unique_ptr<Chunk> chunk) {
  Operation* operation = chunk->operation;
  const int64_t cost = std::max(chunk->copy.bytes, kWindowCost);
  window_used_ += cost;
  chunk->header.target_offset = static_cast<uint64_t>(chunk->copy.target_offset);
  chunk->header.ticket = ExpectReply(operation, [this, cost](const UcxReply&) {
    window_used_ -= cost;
    SendWaiting();
  });
  ++operation->pending;  // for the send
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  const bool eager = chunk->path == UcxPath::kEager || chunk->copy.bytes < kSmall;
  param.flags = UCP_AM_SEND_FLAG_REPLY | (eager ? UCP_AM_SEND_FLAG_EAGER : UCP_AM_SEND_FLAG_RNDV);
  param.user_data = chunk.get();
  param.cb.send = [](void* request, ucs_status_t status, void* user_data) {
    const std::unique_ptr<Chunk> sent(static_cast<Chunk*>(user_data));
    ucp_request_free(request);
    sent->operation->endpoint->Finish(sent->operation, status);
  };
  const std::byte* data = source_.data() + chunk->copy.source_offset;
  if (!direct_) {
    chunk->staged = pieces_.Take(static_cast<size_t>(chunk->copy.bytes));
    const absl::Status copied = source_.Copy(chunk->staged.get(), data, static_cast<size_t>(chunk->copy.bytes));
    if (!copied.ok()) {
      Break(copied);
      return Drop(operation, copied);
    }
    data = chunk->staged.get();
  }
  void* request = ucp_am_send_nbx(endpoint_, kWriteMessage, &chunk->header, sizeof chunk->header, data,
                                  static_cast<size_t>(chunk->copy.bytes), &param);
  if (UCS_PTR_IS_PTR(request)) chunk.release();
  Account(operation, request);
}

void UcxEndpoint::Probe(uint64_t target_offset, absl::AnyInvocable<void(absl::StatusOr<uint64_t>)> done) {
  ++active_;
  auto probed = std::make_shared<uint64_t>(0);
  auto* operation = new Operation{.endpoint = this, .runs = {}, .done = nullptr, .status = status_};
  operation->done = [probed, done = std::move(done)](const absl::Status& status) mutable {
    done(status.ok() ? absl::StatusOr<uint64_t>(*probed) : status);
  };
  if (!status_.ok()) {
    Drop(operation, status_);
    return;
  }
  auto* header = new UcxWrite{0, target_offset};
  header->ticket = ExpectReply(operation, [probed](const UcxReply& reply) { *probed = reply.probed; });
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_AM_SEND_FLAG_REPLY | UCP_AM_SEND_FLAG_EAGER;
  param.user_data = header;
  param.cb.send = [](void* request, ucs_status_t, void* user_data) {
    delete static_cast<UcxWrite*>(user_data);
    ucp_request_free(request);
  };
  // If the message cannot be sent, no reply comes, and Break ends the operation.
  void* request = ucp_am_send_nbx(endpoint_, kProbeMessage, header, sizeof *header, nullptr, 0, &param);
  if (!UCS_PTR_IS_PTR(request)) delete header;
  if (UCS_PTR_IS_ERR(request)) Break(ToStatus(UCS_PTR_STATUS(request), "probing the peer"));
}

void UcxEndpoint::Drop(Operation* operation, const absl::Status& status) {
  if (operation->status.ok()) operation->status = status;
  if (--operation->pending > 0) return;
  const std::unique_ptr<Operation> finished(operation);
  // UNAVAILABLE means that some bytes may still be written later.
  if (!finished->status.ok() && !status_.ok()) finished->status = status_;
  finished->done(finished->status);
  --active_;
  MaybeClose();
}

void UcxEndpoint::Break(const absl::Status& why) {
  if (!status_.ok() || endpoint_ == nullptr) return;  // The connection is already broken or closed.
  status_ = absl::UnavailableError(why.message());
  for (auto& chunk : std::exchange(waiting_, {})) Drop(chunk->operation, status_);
  for (const auto& [ticket, operation] : std::exchange(tickets_, {})) {
    inbox_.Forget(ticket);
    Drop(operation, status_);
  }
  MaybeClose();
}

void UcxEndpoint::Close(absl::AnyInvocable<void()> closed) {
  closed_ = std::move(closed);
  MaybeClose();
}

// Closes the endpoint if it is broken, or if Close was called and the last operation has ended.
// Closing ends the requests that UCX still holds. The caller may be a callback of UCX, so CloseNow
// is posted to the thread. An endpoint that is closed inside its error handler may complete
// requests twice (openucx/ucx#9721).
void UcxEndpoint::MaybeClose() {
  const bool broken = !status_.ok();
  if (endpoint_ != nullptr && !closing_ && (broken || (closed_ && active_ == 0))) {
    closing_ = true;
    ++active_;  // until UCX has closed the endpoint
    progress_.Post([this] { CloseNow(); });
  }
  if (endpoint_ == nullptr && active_ == 0 && closed_) std::exchange(closed_, nullptr)();
}

void UcxEndpoint::CloseNow() {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  param.user_data = this;
  param.cb.send = [](void* request, ucs_status_t, void* user_data) {
    auto& self = *static_cast<UcxEndpoint*>(user_data);
    ucp_request_free(request);
    self.Closed();
  };
  if (!UCS_PTR_IS_PTR(ucp_ep_close_nbx(std::exchange(endpoint_, nullptr), &param))) Closed();
}

// UCX has ended all requests, so none uses the peer's memory.
void UcxEndpoint::Closed() {
  ReleaseMemory();
  --active_;
  MaybeClose();
}

}  // namespace baton
