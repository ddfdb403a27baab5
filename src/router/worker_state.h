// A worker's identity, which it reports once, its load, which it reports repeatedly, and its
// health, which a router derives from the reports.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "base/ids.h"
#include "kv/block_layout.h"

namespace baton {

enum class WorkerRole { kPrefill, kDecode };

// The weights of a decode worker, and the prefill module whose KV it reads.
struct DecoderDigests {
  std::array<uint8_t, 32> module{}, weights{};
  friend bool operator==(const DecoderDigests&, const DecoderDigests&) = default;
};

// A worker's identity and capacity.
struct WorkerInfo {
  WorkerRole role = WorkerRole::kPrefill;
  // The address at which other workers reach it. Pins hash this address, so all routers must see
  // the same one.
  WorkerAddress address{};
  Incarnation incarnation{};
  std::string model{};
  // Workers share KV only if this digest is equal.
  std::array<uint8_t, 32> module_digest{};
  // Digest of the worker's own weights. Decode workers of one model have equal weights and module
  // digests.
  std::array<uint8_t, 32> weights_digest{};
  std::string numerics_id{};
  KvLayout layout{};
  int64_t blocks_total = 0;
  // Blocks that host memory and disk hold in addition.
  int64_t staging_blocks = 0;
  // Part of staging_blocks: those in host memory.
  int64_t host_blocks = 0;
  int32_t context = 0;    // the context length
  int32_t max_batch = 0;  // requests in one step

  // Returns how many tokens of KV the worker's context length and pool can hold for one sequence.
  int64_t most_tokens() const { return std::min<int64_t>(context, blocks_total * kBlockTokens); }
  bool CanHold(int64_t tokens) const { return tokens <= most_tokens(); }
  // Returns whether the worker's own weights are the prefill module's, so that a prefill worker can
  // compute KV of its output.
  bool has_module_weights() const { return weights_digest == module_digest; }
  DecoderDigests decoder() const { return {module_digest, weights_digest}; }
};

// A worker's report of its load.
struct WorkerLoad {
  int32_t running_requests = 0;
  int32_t queued_requests = 0;
  int64_t queued_tokens = 0;  // prompt tokens that wait for a step (PrefillScheduler)
  int64_t blocks_free = 0;
  int64_t blocks_cached = 0;
  // Blocks that are not used, because a prefill worker may still write them.
  int64_t blocks_quarantined = 0;
  // True if the worker shuts down: it finishes its requests and accepts no new ones.
  bool draining = false;
  // Steps that have ended since the worker's start.
  int64_t steps = 0;
  // For how long the running step has run. Zero if none runs.
  absl::Duration step_time{};
  // Forecast of the running step's whole time. Zero if it is unknown.
  absl::Duration step_forecast{};
  // For how long the request that arrived first waits for its first step. Excludes streaming
  // prompts and low-priority jobs.
  absl::Duration longest_wait{};
  // Commands of this router that the worker has taken up since it attached. Unset if it does not
  // count them.
  std::optional<int64_t> commands{};
  // The router's own count of the commands that it has sent since then.
  int64_t commands_sent = 0;
};

// The health of an attached worker, as WorkerWatch finds it.
enum class WorkerHealth {
  kWell,
  // Was avoided, reports again, and gets no new requests yet.
  kReturning,
  // Sends no reports, or does not take up commands.
  kSilent,
  // Reports, and its running step does not end.
  kHung,
};
// Returns a name for metrics, log lines and status pages.
inline std::string_view NameOf(WorkerHealth health) {
  constexpr std::string_view kNames[] = {"well", "returning", "silent", "hung"};
  return kNames[static_cast<int>(health)];
}
// Returns whether such a worker gets requests only if no other worker can take them.
inline bool IsAvoided(WorkerHealth health) { return health == WorkerHealth::kSilent || health == WorkerHealth::kHung; }

}  // namespace baton
