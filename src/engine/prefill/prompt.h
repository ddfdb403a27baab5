// A prompt that a prefill worker computes, as the parts of its scheduler see it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "kv/block_layout.h"
#include "kv/block_table.h"
#include "kv/eviction_rank.h"
#include "kv/prefix_key.h"
#include "request/priority.h"
#include "request/request_spec.h"

namespace baton {

struct PrefillTask {
  RequestId request_id;
  RequestSpec spec{};
  int64_t kv_tokens = 0;         // the prompt gets KV for tokens [0, kv_tokens) of the spec
  std::vector<BlockKey> keys{};  // of their full blocks; a partial last block is private
  absl::Time queue_order{};      // among equal priorities the earlier runs first, then the prompt added first
  bool open = false;             // the prompt streams: Extend appends to it, and it gets KV of whole blocks until then
};

// How a prompt came to the tokens that it has KV for.
struct PrefillCounters {
  int32_t cached = 0;                    // were ready, or staged, when it was added
  int32_t shared = 0;                    // another prompt computed them since
  int32_t computed = 0;                  // it computed them itself
  int32_t from_host = 0, from_disk = 0;  // it brought them back from where evicted blocks are staged
};

struct ScheduledPrompt {
  PrefillTask task;
  uint64_t arrival = 0;
  int64_t wanted = 0;        // [0, wanted) is to be there
  int64_t ready_at_add = 0;  // tokens [0, ready_at_add) were in the cache, or staged
  int64_t done = 0;          // [0, done) is written
  int64_t planned = 0;       // [0, planned) will be once the running step is over; = done between steps
  int64_t own_begin = 0;     // what it brings to the running step itself is [own_begin, planned), staged KV first
  int64_t slice_begin = 0;   // the running step's slice is [slice_begin, planned), empty if = planned
  size_t staged_begin = 0, staged_end = 0;  // keys that it holds in staging
  bool looked_again = false;                // for staged KV, when its turn came
  std::optional<Protection> protection{};   // of its cached blocks, while it waits to begin
  BlockTable table;                         // of [0, planned)
  PrefillCounters counters;
  PrefillCounters counters_before;  // what a failing step restores
  bool admitted = false;
  bool stopped = false;
  bool extended = false;          // so it may hold blocks and wait for more
  bool progress_reported = true;  // of [0, done), so its blocks stay. False: it streams, or did until lately
  uint64_t plan = 0;              // the last one that it had a part in

  bool IsInBackground() const { return IsBackground(task.spec.priority); }
  // All prompts that yield compute at most StreamingShare::step_tokens() per step.
  bool Yields() const { return task.open || IsInBackground(); }
  // Blocks that it may still take once it is admitted.
  int64_t Outstanding() const { return std::max<int64_t>(0, BlocksFor(wanted) - static_cast<int64_t>(table.size())); }
};

using ScheduledPrompts = absl::flat_hash_map<RequestId, std::unique_ptr<ScheduledPrompt>>;

}  // namespace baton
