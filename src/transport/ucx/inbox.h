// Active messages between UCX transports: writes for links that do not put, their acknowledgements, and probes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "kv/slab.h"
#include "transport/ucx/host_pieces.h"
#include "transport/ucx/progress.h"

namespace baton {

inline constexpr unsigned kWriteMessage = 1;  // header: UcxWrite, data: the bytes
inline constexpr unsigned kProbeMessage = 2;  // header: UcxWrite, whose answer carries the first bytes at the target
inline constexpr unsigned kReplyMessage = 3;  // header: UcxReply

inline constexpr int64_t kChunkBytes = int64_t{512} << 10;  // the most that our own messages carry

struct UcxWrite {
  uint64_t ticket = 0;         // quoted by the reply
  uint64_t target_offset = 0;  // in the receiver's memory: slab, then scratch area
};
struct UcxReply {
  uint64_t ticket = 0;
  int64_t ok = 0;       // 1: the bytes are in place; 0: they are out of bounds, or could not be received
  uint64_t probed = 0;  // 8 bytes from target_offset on
};

// The receiving side of a worker. On the progress thread only, except for its creation.
class UcxInbox {
 public:
  using OnReply = absl::AnyInvocable<void(const UcxReply&)>;

  explicit UcxInbox(ucp_worker_h worker) : worker_(worker) {}
  // Before this, messages are dropped.
  absl::Status Listen();
  // What peers may write to and probe; nothing until then.
  // `direct`: UCX writes to it by itself.
  void SetMemory(const Slab& memory, bool direct) {
    memory_ = memory;
    direct_ = direct;
    pieces_ = std::make_unique<HostPieces>(memory, kChunkBytes);
  }

  // `reply` is called at most once; never after Forget.
  uint64_t Expect(OnReply reply);
  void Forget(uint64_t ticket) { expected_.erase(ticket); }

 private:
  struct Receive;
  static ucs_status_t HandleWrite(void* self, const void* header, size_t header_bytes, void* data, size_t bytes,
                                  const ucp_am_recv_param_t* param);
  static ucs_status_t HandleProbe(void* self, const void* header, size_t header_bytes, void* data, size_t bytes,
                                  const ucp_am_recv_param_t* param);
  static ucs_status_t HandleReply(void* self, const void* header, size_t header_bytes, void* data, size_t bytes,
                                  const ucp_am_recv_param_t* param);
  bool Within(const UcxWrite& write, size_t bytes) const;
  bool Store(const UcxWrite& write, const void* data, size_t bytes);
  void EndReceive(const Receive& receive, ucs_status_t status, size_t bytes);
  ucs_status_t ReceiveRendezvous(const UcxWrite& write, void* data, size_t bytes, ucp_ep_h reply_to);
  static void Reply(ucp_ep_h to, const UcxReply& reply);

  const ucp_worker_h worker_;
  Slab memory_;
  bool direct_ = true;
  std::unique_ptr<HostPieces> pieces_;  // where it is not
  uint64_t next_ticket_ = 1;
  std::map<uint64_t, OnReply> expected_;
};

}  // namespace baton
