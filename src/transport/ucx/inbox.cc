#include "transport/ucx/inbox.h"

#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "base/logging.h"
#include "base/status.h"

namespace baton {
namespace {

// Returns nullopt if the message has another form, or if it has no endpoint for the reply.
std::optional<UcxWrite> ReadHeader(const void* header, size_t header_bytes, const ucp_am_recv_param_t* param) {
  UcxWrite write;
  if (header_bytes != sizeof write || (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) == 0) return std::nullopt;
  std::memcpy(&write, header, sizeof write);
  return write;
}

// Returns true for an error of the connection. The sender detects it as well, and the endpoint for
// a reply may be gone.
bool IsConnectionError(ucs_status_t status) {
  return status == UCS_ERR_CANCELED || status == UCS_ERR_CONNECTION_RESET || UCS_IS_LINK_ERROR(status) ||
         UCS_IS_ENDPOINT_ERROR(status);
}

}  // namespace

absl::Status UcxInbox::Listen() {
  const std::pair<unsigned, ucp_am_recv_callback_t> handlers[] = {
      {kWriteMessage, &HandleWrite}, {kProbeMessage, &HandleProbe}, {kReplyMessage, &HandleReply}};
  for (const auto& [id, handler] : handlers) {
    ucp_am_handler_param_t param{};
    param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    param.id = id;
    param.cb = handler;
    param.arg = this;
    RETURN_IF_ERROR(ToStatus(ucp_worker_set_am_recv_handler(worker_, &param), "registering a message handler"));
  }
  return absl::OkStatus();
}

uint64_t UcxInbox::Expect(OnReply reply) {
  expected_.emplace(next_ticket_, std::move(reply));
  return next_ticket_++;
}

bool UcxInbox::Within(const UcxWrite& write, size_t bytes) const {
  return bytes <= memory_.size() && write.target_offset <= memory_.size() - bytes;
}

// Sends a reply. UCX reads the header from a copy, which lives until the message is sent.
void UcxInbox::Reply(ucp_ep_h to, const UcxReply& reply) {
  auto* header = new UcxReply(reply);
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_AM_SEND_FLAG_EAGER;
  param.user_data = header;
  param.cb.send = [](void* request, ucs_status_t, void* user_data) {
    delete static_cast<UcxReply*>(user_data);
    ucp_request_free(request);
  };
  // An error is ignored, because the receiver of the reply is then gone.
  if (!UCS_PTR_IS_PTR(ucp_am_send_nbx(to, kReplyMessage, header, sizeof *header, nullptr, 0, &param))) delete header;
}

ucs_status_t UcxInbox::HandleWrite(void* self, const void* header, size_t header_bytes, void* data, size_t bytes,
                                   const ucp_am_recv_param_t* param) {
  auto& inbox = *static_cast<UcxInbox*>(self);
  const std::optional<UcxWrite> write = ReadHeader(header, header_bytes, param);
  if (!write.has_value()) return UCS_OK;
  if (!inbox.Within(*write, bytes)) {
    Reply(param->reply_ep, {.ticket = write->ticket, .ok = 0});
    return UCS_OK;
  }
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
    return inbox.ReceiveRendezvous(*write, data, bytes, param->reply_ep);
  }
  const bool ok = inbox.Store(*write, data, bytes);
  Reply(param->reply_ep, {.ticket = write->ticket, .ok = ok});
  return UCS_OK;
}

bool UcxInbox::Store(const UcxWrite& write, const void* data, size_t bytes) {
  if (bytes == 0) return true;
  const absl::Status stored = memory_.Copy(memory_.data() + write.target_offset, data, bytes);
  if (!stored.ok()) spdlog::error("a peer's write was not stored: {}", stored.ToString());
  return stored.ok();
}

struct UcxInbox::Receive {
  UcxInbox* inbox;
  UcxWrite write;
  ucp_ep_h reply_to;
  HostMemory staged = nullptr;  // the target, if UCX cannot write to the slab
};

// Receives the data of a rendezvous, directly into the slab if UCX can write to it. Replies when
// all bytes have arrived.
ucs_status_t UcxInbox::ReceiveRendezvous(const UcxWrite& write, void* data, size_t bytes, ucp_ep_h reply_to) {
  auto* receive = new Receive{this, write, reply_to};
  void* target = memory_.data() + write.target_offset;
  if (!direct_) {
    receive->staged = pieces_->Take(bytes);
    target = receive->staged.get();
  }
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.user_data = receive;
  param.cb.recv_am = [](void* request, ucs_status_t status, size_t received, void* user_data) {
    const std::unique_ptr<Receive> done(static_cast<Receive*>(user_data));
    ucp_request_free(request);
    done->inbox->EndReceive(*done, status, received);
  };
  void* request = ucp_am_recv_data_nbx(worker_, data, target, bytes, &param);
  if (UCS_PTR_IS_PTR(request)) return UCS_OK;
  const std::unique_ptr<Receive> done(receive);
  EndReceive(*done, UCS_PTR_STATUS(request), bytes);
  return UCS_OK;
}

void UcxInbox::EndReceive(const Receive& receive, ucs_status_t status, size_t bytes) {
  if (IsConnectionError(status)) return;
  const bool stored =
      status == UCS_OK && (receive.staged == nullptr || Store(receive.write, receive.staged.get(), bytes));
  Reply(receive.reply_to, {.ticket = receive.write.ticket, .ok = stored});
}

ucs_status_t UcxInbox::HandleProbe(void* self, const void* header, size_t header_bytes, void*, size_t,
                                   const ucp_am_recv_param_t* param) {
  auto& inbox = *static_cast<UcxInbox*>(self);
  const std::optional<UcxWrite> probe = ReadHeader(header, header_bytes, param);
  if (!probe.has_value()) return UCS_OK;
  UcxReply reply{.ticket = probe->ticket};
  if (inbox.Within(*probe, sizeof reply.probed)) {
    const std::byte* target = inbox.memory_.data() + probe->target_offset;
    reply.ok = inbox.memory_.Copy(&reply.probed, target, sizeof reply.probed).ok();
  }
  Reply(param->reply_ep, reply);
  return UCS_OK;
}

ucs_status_t UcxInbox::HandleReply(void* self, const void* header, size_t header_bytes, void*, size_t,
                                   const ucp_am_recv_param_t*) {
  auto& inbox = *static_cast<UcxInbox*>(self);
  UcxReply reply;
  if (header_bytes != sizeof reply) return UCS_OK;
  std::memcpy(&reply, header, sizeof reply);
  auto expected = inbox.expected_.extract(reply.ticket);
  if (!expected.empty()) expected.mapped()(reply);
  return UCS_OK;
}

}  // namespace baton
