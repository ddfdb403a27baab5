// The interface of transports, which move blocks by one-sided writes from a prefill worker's slab
// into a decode worker's slab.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "kv/slab.h"
#include "transport/write_key.h"

namespace baton {

// A connection that writes into one peer's slab. The destructor may wait briefly for pushes in
// flight, and then aborts them. It returns after every `done` has been called. REQUIRES: a
// connection is not destroyed inside `done`, and it is destroyed before its transport.
class Link {
 public:
  virtual ~Link() = default;
  // Starts the copies. Neighbouring copies become one transfer. `done` is called once, either on a
  // thread of the connection or before Push returns:
  // - OK: all copies are visible to the peer.
  // - INVALID_ARGUMENT: nothing was written.
  // - UNAVAILABLE: the connection broke. Some copies may be written. If the peer is alive, copies
  //   in flight may still be written later.
  //
  // REQUIRES: the source blocks do not change before `done` is called.
  virtual void Push(std::span<const BlockCopy> copies, absl::AnyInvocable<void(absl::Status)> done) = 0;
  // Pushes to a peer that guards its blocks (WriteGuard) and refuses writes without a write key. A
  // refused write ends with PERMISSION_DENIED. Connections to other peers ignore the write key.
  virtual void PushUnder(const WriteKey&, std::span<const BlockCopy> copies,
                         absl::AnyInvocable<void(absl::Status)> done) {
    Push(copies, std::move(done));
  }
  // Returns true if no write can arrive after the operating system has reported the end of this
  // process. That holds if only threads of this process write, and no device or network does.
  virtual bool EndsWithProcess() const { return false; }
  // Returns a text for logs and `--check`, such as "ucx 1.13.1, put, 7.80 GB/s".
  virtual std::string Description() const = 0;
};

// The number of bytes that AdoptSlab needs behind a slab.
inline constexpr int64_t kSlabMarginBytes = int64_t{8} << 20;

// Connects a worker's slab to the slabs of its peers.
class Connector {
 public:
  virtual ~Connector() = default;
  // Returns the opaque text that a peer needs in order to connect. It travels in the Link message
  // of the hand-off. The descriptor of a peer is not trusted.
  virtual std::string Descriptor() const = 0;
  // Connects to the peer. The UCX transport also measures the paths to the peer, chooses the
  // fastest and logs the choice and its rate. May block for some seconds. Thread-safe, so that a
  // peer that hangs does not delay others.
  virtual absl::StatusOr<std::unique_ptr<Link>> Connect(std::string_view peer_descriptor) = 0;
};

// A transport for one slab of a process. REQUIRES: exactly one of AllocateSlab and AdoptSlab is
// called, once, before Connect.
class Transport : public Connector {
 public:
  // Allocates a slab to which peers can write by the fastest path (shared memory on one host). It
  // is freed with the transport.
  virtual absl::StatusOr<std::span<std::byte>> AllocateSlab(int64_t bytes) = 0;
  // Uses the first `bytes` of a device's `memory` as the slab. `memory` has kSlabMarginBytes more
  // bytes and no other contents. The transport keeps `owner` until its own end. If the transport
  // cannot access the memory directly, it copies blocks through the host.
  virtual absl::Status AdoptSlab(const Slab& memory, int64_t bytes, std::shared_ptr<void> owner) = 0;
};

}  // namespace baton
