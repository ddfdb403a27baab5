// What prefill and decode workers say to each other (design section 4). Plain structs: rpc/ turns them into
// protobuf, the simulator passes them as they are.
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
#include "transport/write_right.h"

namespace baton {

// The version of proto/kv_transfer.proto, which rises with every change of that file (tools/tidy compares the digest).
// A decode worker refuses a Link of another version.
// proto/kv_transfer.proto: 2c120e33eef7bb2c
inline constexpr uint32_t kHandoffVersion = 3;
// A writer stops by itself when its lease runs out, so blocks of a lapsed reservation are given out again at the latest
// this many leases after it lapsed. Must outlast a push that was in flight at the lease's end.
inline constexpr int kQuarantineLeases = 4;

// Prefill → decode, once per pair and again when either side's incarnation changes. A mismatch of version, digest or
// layout is refused with both values named; different numerics ids are allowed and logged.
struct LinkRequest {
  uint32_t version = kHandoffVersion;
  WorkerAddress prefill_address;
  Incarnation prefill_incarnation;
  Digest module_digest{};
  KvLayout layout;
  std::string numerics_id;
  bool can_digest = false;      // its commits have digests where the reply asks for them; older workers cannot
  bool can_show_right = false;  // it writes under the rights that it is given (WriteGuard); older workers cannot
};
struct LinkReply {
  Incarnation decode_incarnation;
  std::string transport_descriptor;  // of the slab that will be written to
  int64_t slab_blocks = 0;
  std::string numerics_id;
  absl::Duration lease;  // a reservation lapses when no heartbeat names it for this long
  bool wants_digests = false;
};

// Prefill → decode: room for one prompt's KV and for the growth that is expected of it.
struct ReserveRequest {
  RequestId request_id{};
  Incarnation writer{};          // the prefill worker's, as linked
  std::vector<BlockKey> keys{};  // of the full blocks of the KV tokens
  int32_t kv_tokens = 0;         // [0, n-1) of a prompt of n tokens; 0 for a one-token prompt
  int32_t max_new_tokens = 0;
  // For a prompt that still grows: nobody will Start it. Once committed, its blocks are cached ones, and it is over.
  bool cache_only = false;
};
struct MissingBlock {
  int32_t index = 0;  // in the prompt's block table
  BlockId target;     // in the decode worker's slab
};
struct Reserved {
  ReservationRef reservation;
  std::vector<MissingBlock> missing;  // what must be pushed; the rest is there already
  std::optional<WriteRight> right{};  // to push it, where the decode worker guards its blocks
};
// There is no room now. The decode worker reports to routers when it has room again
// (HandoffReceiver::TakeRoom).
struct Wait {};
struct NeverFits {
  std::string reason;  // needed and total blocks, for the user
};
using ReserveReply = std::variant<Reserved, Wait, NeverFits>;

// Prefill → decode: all missing blocks are written and visible. Doubled commits are harmless.
struct Commit {
  ReservationRef reservation;
  int32_t blocks_written = 0;
  std::vector<BlockDigest> digests{};  // of the missing blocks' bytes, in their order; none unless they are wanted
  std::optional<WriteRight> right{};   // the reservation's, if it has one: nobody else says that it is complete
};

// Prefill → decode: this writer will not write under this reservation any more ("drained"). Ends an aborted hand-off;
// idempotent, also for reservations that never were or are long gone.
struct Release {
  ReservationRef reservation;
};

// Prefill → decode, several per lease: keeps the named reservations alive. The reply names those that the decode worker
// has given up, so that the writer stops, drains and releases them.
struct Heartbeat {
  Incarnation writer;
  std::vector<ReservationRef> active;
};
struct HeartbeatReply {
  std::vector<ReservationRef> revoked;
};

}  // namespace baton
