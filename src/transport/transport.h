// How blocks move: one-sided writes from a prefill worker's slab into a decode worker's slab.
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
#include "transport/write_right.h"

namespace baton {

// A way to write into one peer's slab. Destroying it waits a little for what is in flight, then breaks it off; every
// `done` has been called by then. Not to be destroyed inside `done`, nor after its transport.
class Link {
 public:
  virtual ~Link() = default;
  // Starts the copies; neighbours that coalesce become one transfer. `done` is called once, from the transport's own
  // thread. OK: all of them are visible to the peer. INVALID_ARGUMENT: nothing was written. UNAVAILABLE: the connection
  // broke; some may be written, and if the peer lives, what was on its way may still land. The source blocks must stay
  // untouched until then.
  virtual void Push(std::span<const BlockCopy> copies, absl::AnyInvocable<void(absl::Status)> done) = 0;
  // The same where the peer guards its blocks: it takes nothing without such a right. What it refuses is
  // PERMISSION_DENIED; other peers do not ask.
  virtual void PushUnder(const WriteRight&, std::span<const BlockCopy> copies,
                         absl::AnyInvocable<void(absl::Status)> done) {
    Push(copies, std::move(done));
  }
  // For logs and `--check`: e.g. "ucx 1.13.1 shm put, 7.8 GB/s".
  virtual std::string Description() const = 0;
};

// What AdoptSlab wants behind a slab.
inline constexpr int64_t kSlabMarginBytes = int64_t{8} << 20;

// A worker's slab, as its peers know it, and the way to theirs.
class Connector {
 public:
  virtual ~Connector() = default;
  // What a peer needs in order to connect: opaque, travels in the Link message of the hand-off. Treat a peer's as
  // hostile.
  virtual std::string Descriptor() const = 0;
  // Reaches the peer, runs the self-test that chooses between put and active messages, and logs choice and rate.
  // Thread-safe: a peer that hangs must not hold up others.
  virtual absl::StatusOr<std::unique_ptr<Link>> Connect(std::string_view peer_descriptor) = 0;
};

// One for each slab of a process. Owns its progress thread.
class Transport : public Connector {
 public:
  // Memory that peers can write to by the fastest way there is (shared memory on one host); freed with the transport.
  // Called at most once.
  virtual absl::StatusOr<std::span<std::byte>> AllocateSlab(int64_t bytes) = 0;
  // Instead: the slab is the first `bytes` of a device's `memory`, which has kSlabMarginBytes more and holds nothing
  // else; `owner` is let go with the transport. Where the transport cannot reach the memory by itself, what moves is
  // copied through the host.
  virtual absl::Status AdoptSlab(const Slab& memory, int64_t bytes, std::shared_ptr<void> owner) = 0;
};

}  // namespace baton
