// A request of a prefill worker: its prompt, and what the engine and the scheduler keep of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "engine/prefill/steps.h"
#include "kv/block_layout.h"
#include "kv/block_table.h"
#include "kv/eviction_rank.h"
#include "kv/prefix_key.h"
#include "request/jobs.h"
#include "request/priority.h"
#include "request/request_spec.h"

namespace baton {

// How a prompt got the tokens that it has KV for.
struct PrefillCounters {
  int32_t cached = 0;                    // were ready or staged when the prompt was added
  int32_t shared = 0;                    // another prompt computed them since
  int32_t computed = 0;                  // the prompt computed them itself
  int32_t from_host = 0, from_disk = 0;  // the prompt brought them back from staged blocks
};

// A request from Add to its result. PrefillScheduler owns it. Its caller sets the fields up to
// `engine`, and later changes them through the scheduler alone.
struct PrefillPrompt {
  // Blocks of a streaming prompt that go to its probable decode worker before the prompt closes.
  struct Ahead {
    WorkerAddress to{};  // empty: no blocks go ahead
    int64_t sent = 0;    // blocks that the decode worker has, or that are on their way
    int64_t bytes = 0;   // pushed
    uint64_t part = 0;   // the hand-off that is under way; 0: none
    bool waits = false;  // as many such hand-offs as allowed are under way
    absl::Time again{};  // no hand-off begins before
  };
  // What the engine keeps of the request. The scheduler does not read it.
  struct EnginePart {
    // The KV stays in the cache. Also true while the prompt streams: no hand-off is the request's
    // own until the prompt closes.
    bool prefill_only = false;
    KvLease lease{};
    LeaseHolder lease_holder{};
    absl::Time added{};                            // or closed, if the prompt streamed
    absl::Time started = absl::InfiniteFuture();   // begin of its first step
    absl::Time computed = absl::InfiniteFuture();  // when it had all its KV
    absl::Duration copied{};                       // copies of staged KV in its steps
    absl::Status failure{};                        // the result, which waits for pushes in flight
    PrefillSteps steps{};
    Ahead ahead{};
  };

  RequestId id;
  RequestSpec spec{};
  int64_t kv_tokens = 0;         // the prompt gets KV for tokens [0, kv_tokens) of the spec
  std::vector<BlockKey> keys{};  // of their full blocks; a partial last block is private
  absl::Time queue_order{};      // the earlier of equal priorities runs first, then the first added
  // The prompt streams: Extend appends to it. Until it closes it has whole blocks only.
  bool open = false;
  EnginePart engine{};

  // What the scheduler keeps of the prompt.
  uint64_t arrival = 0;
  int64_t wanted = 0;                       // [0, wanted) is to get KV; Limit lowers it
  int64_t ready_at_add = 0;                 // tokens [0, ready_at_add) were in the cache, or staged
  int64_t done = 0;                         // [0, done) is written
  int64_t planned = 0;                      // [0, planned) is written once this step is over
  int64_t own_begin = 0;                    // [own_begin, planned): of this step, staged KV first
  int64_t slice_begin = 0;                  // [slice_begin, planned): slice of this step, or empty
  size_t staged_begin = 0, staged_end = 0;  // keys whose staged blocks the prompt holds
  bool looked_again = false;                // for staged KV, when the prompt was about to begin
  std::optional<Protection> protection{};   // of its cached blocks, while it waits to begin
  BlockTable table{};                       // of [0, planned)
  PrefillCounters counters{};
  PrefillCounters counters_before{};  // before the running step; restored if the step fails
  bool admitted = false;
  bool stopped = false;
  bool extended = false;          // so it may hold blocks and wait for more
  bool progress_reported = true;  // of [0, done), so its blocks stay. False: it streams, or did until lately
  uint64_t plan = 0;              // number of the last plan in which the prompt had a part

  bool IsInBackground() const { return IsBackground(spec.priority); }
  // The prompt streams or is a low-priority job. All prompts that yield compute at most
  // StreamingShare::step_tokens() per step, and they count against a limit of their own.
  bool Yields() const { return open || IsInBackground(); }
  // Blocks that it may still take once it is admitted.
  int64_t Outstanding() const { return std::max<int64_t>(0, BlocksFor(wanted) - static_cast<int64_t>(table.size())); }
};

using PrefillPrompts = absl::flat_hash_map<RequestId, std::unique_ptr<PrefillPrompt>>;

}  // namespace baton
