// A connection to the memory of one UCX peer, and the paths on which it writes there.
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
  kSharedMemory,  // the peer's memory is mapped in this process, and the progress thread copies
  kMappedDevice,  // device memory of the peer is mapped in this process, and the device copies
  kPut,           // one-sided writes by RDMA; UCX emulates them over TCP
  kRendezvous,    // active messages that announce the data; UCX then moves the data
  kEager,         // active messages that contain the data
};
const char* NameOf(UcxPath path);

// A connection. All calls come from the progress thread. The offsets of copies are from the start
// of the memory on each side, and the caller has checked them.
class UcxEndpoint {
 public:
  using Done = absl::AnyInvocable<void(absl::Status)>;

  // Returns before the peer has answered. `source` is this worker's slab and scratch area, whose
  // memory must outlive the endpoint. If UCX cannot read it, `direct` is false, and messages are
  // sent from copies in host memory. Fails with UNAVAILABLE if no UCX transport reaches the peer.
  // Fails with INVALID_ARGUMENT if the peer is on this host and its memory is not as described.
  static absl::StatusOr<std::unique_ptr<UcxEndpoint>> Open(UcxProgress& progress, UcxInbox& inbox, const Slab& source,
                                                           bool direct, const UcxDescriptor& peer);
  // REQUIRES: `closed` of Close has been called.
  ~UcxEndpoint();

  // Returns the paths that can reach the peer's memory. If the memory is mapped in this process,
  // returns only that path. Returns only kEager if UCX does not reach the peer by RDMA alone,
  // because UCX may abort on the other paths if a peer dies.
  std::vector<UcxPath> Paths() const;

  // Writes `runs` to the peer's memory. `done` is called once, on the progress thread. It receives
  // UNAVAILABLE if the connection breaks.
  void Write(UcxPath path, std::vector<BlockCopy> runs, Done done);
  // Reads 8 bytes at `target_offset` in the peer's memory. The peer itself reads them and sends
  // them back.
  void Probe(uint64_t target_offset, absl::AnyInvocable<void(absl::StatusOr<uint64_t>)> done);

  // Closes the connection after the operations in flight. `closed` is called once.
  void Close(absl::AnyInvocable<void()> closed);
  // Breaks the connection. Operations in flight end with UNAVAILABLE and the message of `why`. Some
  // of them end only after UCX has closed its endpoint.
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
  void Closed();

  UcxProgress& progress_;
  UcxInbox& inbox_;
  const Slab source_;
  const bool direct_;
  HostPieces pieces_;  // used if not direct_
  ucp_ep_h endpoint_ = nullptr;
  ucp_rkey_h rkey_ = nullptr;
  uint64_t remote_base_ = 0;
  bool is_rdma_ = false;                // IsRdma of the endpoint's lanes
  std::byte* mapped_ = nullptr;         // the peer's memory, for kSharedMemory
  std::byte* mapped_device_ = nullptr;  // the peer's memory, for kMappedDevice
  absl::Status status_;                 // an error if the connection is broken
  int64_t active_ = 0;                  // operations without a result, and the end of the endpoint
  std::deque<std::unique_ptr<Chunk>> waiting_;
  std::map<uint64_t, Operation*> tickets_;  // messages without reply
  int64_t window_used_ = 0;                 // bytes of messages without reply
  absl::AnyInvocable<void()> closed_;       // set by Close until it is called
  bool closing_ = false;                    // CloseNow was called or is posted
};

}  // namespace baton
