// The messages between prefill workers and decode workers (docs/design/overview.md, section 4).
// rpc/ converts these structs to protobuf. The simulator passes them unchanged.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "base/ids.h"
#include "kv/block_digest.h"
#include "kv/block_layout.h"
#include "kv/prefix_key.h"
#include "model/weights.h"
#include "transport/write_key.h"

namespace baton {

// The version of proto/kv_transfer.proto. It rises with every change of that file, and tools/tidy
// compares the digest below. It also rises with KvLayout of proto/worker.proto, which a Link
// contains. A decode worker refuses a Link of another version.
// proto/kv_transfer.proto: ea77443704bae6bc
inline constexpr uint32_t kHandoffVersion = 6;
// Number of leases after which a decode worker may reuse the blocks of a reservation that lapsed or
// was given up, even if the writer has not released it. A writer stops by itself when its
// lease ends, so this time must be longer than a push that is in flight at the lease's end.
inline constexpr int kQuarantineLeases = 4;

// Prefill → decode: asks for a link, once per pair of workers, and again when the incarnation of
// either side changes. The decode worker refuses another version, digest or layout, and names both
// values. It accepts another numerics id, and logs the difference.
struct LinkRequest {
  uint32_t version = kHandoffVersion;
  WorkerAddress prefill_address;
  Incarnation prefill_incarnation;
  Digest module_digest{};
  KvLayout layout;
  std::string numerics_id;
  // Its commits have digests if the reply asks for them. Every worker of this version sets it.
  bool can_digest = false;
  // The prefill worker supports write keys (WriteGuard). Every worker of this version sets it.
  bool supports_write_keys = false;
  // The prefill worker's process (OwnProcessName), or empty if it has no name.
  std::string process{};
};
struct LinkReply {
  Incarnation decode_incarnation;
  WriterId writer{};                 // names this link in the messages below
  std::string transport_descriptor;  // Connector::Descriptor of the decode worker's slab
  int64_t slab_blocks = 0;
  std::string numerics_id;
  absl::Duration lease;  // a reservation lapses if no heartbeat names it for this long
  bool wants_digests = false;
};

// Prefill → decode: asks for room for one prompt's KV and for its expected growth.
struct ReserveRequest {
  RequestId request_id{};
  WriterId writer{};                // LinkReply::writer of the link that writes the blocks
  std::vector<BlockKey> keys{};     // of the full blocks of the KV tokens
  int32_t kv_tokens = 0;            // [0, n-1) of a prompt of n tokens; 0 for a one-token prompt
  int32_t expected_new_tokens = 0;  // of the output; it may become longer
  // No write of this reservation can arrive after the end of the writer's process
  // (Link::EndsWithProcess).
  bool ends_with_process = false;
  // For a streaming prompt. The commit ends the reservation, and its blocks become cached blocks.
  // No Start follows.
  bool cache_only = false;
};
struct MissingBlock {
  int32_t index = 0;  // in the prompt's block table
  BlockId target;     // in the decode worker's slab
};
struct Reserved {
  ReservationRef reservation;
  std::vector<MissingBlock> missing;    // blocks to push; the decode worker holds the other blocks
  std::optional<WriteKey> write_key{};  // for the pushes, if the decode worker guards its blocks
};
// There is no room now. The decode worker reports to routers when it has room again
// (HandoffReceiver::TakeRoom).
struct Wait {};
// There can never be room.
struct NeverFits {
  std::string reason;  // needed and total blocks, for the user
};
using ReserveReply = std::variant<Reserved, Wait, NeverFits>;

// Prefill → decode: all missing blocks are written and visible. A repeated commit is harmless.
struct Commit {
  ReservationRef reservation;
  int32_t blocks_written = 0;
  // The digests of the missing blocks, in their order. Empty unless LinkReply::wants_digests is
  // set.
  std::vector<BlockDigest> digests{};
  // The reservation's write key, if it has one. It shows that the commit comes from the writer.
  std::optional<WriteKey> write_key{};
};

// Prefill → decode: the writer's pushes have ended, and it will not write under this reservation
// again. Ends an aborted hand-off. Idempotent. Has no effect for an unknown reservation.
struct Release {
  ReservationRef reservation;
};

// Prefill → decode, several times per lease: renews the leases of the named reservations. The reply
// names the reservations that the decode worker has given up. The writer then begins no
// push, waits for the end of its pushes, and releases the reservations.
struct Heartbeat {
  WriterId writer;  // of the link under which the named reservations were made
  std::vector<ReservationRef> active;
};
struct HeartbeatReply {
  std::vector<ReservationRef> revoked;
};

}  // namespace baton
