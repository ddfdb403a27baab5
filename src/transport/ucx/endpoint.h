// A connection to one UCX peer's memory, and the ways to write there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "transport/transport.h"
#include "transport/ucx/descriptor.h"
#include "transport/ucx/host_pieces.h"
#include "transport/ucx/inbox.h"
#include "transport/ucx/progress.h"

namespace baton {

enum class UcxPath {
  kSharedMemory,  // the peer's memory is mapped here; the progress thread copies
  kMappedDevice,  // the same with a device's memory on both sides; the device copies
  kPut,           // one-sided: RDMA, or UCX's emulation over TCP
  kRendezvous,    // active messages that announce the data, which the peer then fetches or is sent
  kEager,         // active messages that carry the data
};
const char* NameOf(UcxPath path);

// On the progress thread only. `source` (our slab and scratch area) must outlive it; where UCX cannot read it
// (`direct`), messages are sent from copies in host memory. Offsets of copies are from the
// start of either side's memory; the caller has checked them.
class UcxEndpoint {
 public:
  using Done = absl::AnyInvocable<void(absl::Status)>;

  // Returns before the peer has answered. UNAVAILABLE: no transport leads there. INVALID_ARGUMENT: it is on this host,
  // but its memory is not what it says.
  static absl::StatusOr<std::unique_ptr<UcxEndpoint>> Open(UcxProgress& progress, UcxInbox& inbox, const Slab& source,
                                                           bool direct, const UcxDescriptor& peer);
  // REQUIRES: closed.
  ~UcxEndpoint();

  // Those that lead into the peer's memory. Only one where that is mapped here: it is on this host.
  std::vector<UcxPath> Paths() const;

  // `done` is called once, on the progress thread; UNAVAILABLE when the connection broke.
  void Write(UcxPath path, std::vector<BlockCopy> runs, Done done);
  // The first 8 bytes at `target_offset`, as the peer sees them.
  void Probe(uint64_t target_offset, absl::AnyInvocable<void(absl::StatusOr<uint64_t>)> done);

  // Waits for what is in flight, then closes. `closed` is called once.
  void Close(absl::AnyInvocable<void()> closed);
  // What is in flight ends with this error, UNAVAILABLE, some of it only when UCX has closed its side.
  void Break(const absl::Status& why);

 private:
  struct Operation;
  struct Chunk;

  UcxEndpoint(UcxProgress& progress, UcxInbox& inbox, const Slab& source, bool direct);
  absl::Status Create(const UcxDescriptor& peer);
  absl::Status OpenMemory(const UcxDescriptor& peer);
  void MapDevice(const UcxDescriptor& peer);
  void ReleaseMemory();

  void CopySlice(Operation* operation);
  void CopyOnDevice(Operation* operation);
  void Put(Operation* operation);
  void Enqueue(UcxPath path, Operation* operation);
  void SendWaiting();
  void Send(std::unique_ptr<Chunk> chunk);
  uint64_t ExpectReply(Operation* operation, absl::AnyInvocable<void(const UcxReply&)> on_reply);

  static ucp_request_param_t ParamFor(Operation* operation);
  void Account(Operation* operation, void* request);
  void Finish(Operation* operation, ucs_status_t status);
  void Drop(Operation* operation, const absl::Status& status);
  void MaybeClose();
  void CloseNow();

  UcxProgress& progress_;
  UcxInbox& inbox_;
  const Slab source_;
  const bool direct_;
  HostPieces pieces_;  // where it is not
  ucp_ep_h endpoint_ = nullptr;
  ucp_rkey_h rkey_ = nullptr;
  uint64_t remote_base_ = 0;
  std::byte* mapped_ = nullptr;         // the peer's memory, for kSharedMemory
  std::byte* mapped_device_ = nullptr;  // for kMappedDevice
  absl::Status status_;                 // why the connection is broken
  int64_t active_ = 0;                  // operations without result
  std::deque<std::unique_ptr<Chunk>> waiting_;
  std::map<uint64_t, Operation*> tickets_;  // messages without reply
  int64_t window_used_ = 0;                 // bytes of messages without reply
  absl::AnyInvocable<void()> closed_;       // set: to be closed
  bool closing_ = false;                    // CloseNow has been called, or will be
};

}  // namespace baton
