// The active messages between UCX transports: writes for connections that do not use put, probes,
// and replies to both.
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

inline constexpr unsigned kWriteMessage = 1;  // header: UcxWrite; data: the bytes
inline constexpr unsigned kProbeMessage = 2;  // header: UcxWrite; replied with 8 bytes
inline constexpr unsigned kReplyMessage = 3;  // header: UcxReply

// Upper bound on the data of a message that this process sends.
inline constexpr int64_t kChunkBytes = int64_t{512} << 10;

struct UcxWrite {
  uint64_t ticket = 0;         // repeated in the reply
  uint64_t target_offset = 0;  // in the receiver's memory: slab, then scratch area
};
struct UcxReply {
  uint64_t ticket = 0;
  int64_t ok = 0;       // 1: success; 0: out of bounds, or the bytes could not be received
  uint64_t probed = 0;  // for a probe: the 8 bytes at target_offset
};

// The receiver of the messages of a UCX worker. All calls except the constructor come from the
// progress thread.
class UcxInbox {
 public:
  using OnReply = absl::AnyInvocable<void(const UcxReply&)>;

  explicit UcxInbox(ucp_worker_h worker) : worker_(worker) {}
  // Starts to receive. Earlier messages are dropped.
  absl::Status Listen();
  // Sets the memory that peers may write to and probe. Before this call, there is no such memory.
  // `direct` is true if UCX can write to the memory.
  void SetMemory(const Slab& memory, bool direct) {
    memory_ = memory;
    direct_ = direct;
    pieces_ = std::make_unique<HostPieces>(memory, kChunkBytes);
  }

  // Returns a new ticket. `reply` is called when a reply with this ticket arrives, at most once,
  // and not after Forget.
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
  std::unique_ptr<HostPieces> pieces_;  // used if not direct_
  uint64_t next_ticket_ = 1;
  std::map<uint64_t, OnReply> expected_;
};

}  // namespace baton
