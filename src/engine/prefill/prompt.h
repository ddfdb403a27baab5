// A request of a prefill worker: its prompt, and its state in the engine and in the scheduler.
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

// The sources of a prompt's KV. Every number counts tokens.
struct PrefillCounters {
  // Ready or staged when these tokens arrived. Excludes from_host and from_disk.
  int32_t cached = 0;
  int32_t shared = 0;    // computed or copied back by another prompt after these tokens arrived
  int32_t computed = 0;  // computed by this prompt
  // Copied back from staged blocks by this prompt.
  int32_t from_host = 0, from_disk = 0;
  // Computed by this prompt earlier. It restarted or gave its blocks back since then.
  int64_t dropped = 0;
};

// A request from Add to its result. A prompt streams until all of its tokens have arrived.
// Then it is closed.
//
// PrefillScheduler owns the request. The caller of PrefillScheduler::Add sets the fields up to
// `engine`, and `counters.dropped` of a prompt that restarts. After Add the caller changes `engine`
// through PrefillScheduler::FindEngine, and other fields only through the scheduler's events.
struct PrefillPrompt {
  // The early hand-offs of a streaming prompt to its probable decode worker.
  struct Ahead {
    WorkerAddress to{};  // empty: no early hand-off begins
    int64_t sent = 0;    // blocks of the latest early hand-off; 0 after a failure
    int64_t bytes = 0;   // pushed so far
    uint64_t part = 0;   // the early hand-off in flight; 0: none
    bool waits = false;  // the prompt waits until fewer early hand-offs are in flight
    absl::Time again{};  // the next early hand-off does not begin before this time
  };
  // The engine's state of the request. The scheduler does not read it.
  struct EnginePart {
    // The KV stays in the cache. Also true while the prompt streams, since the request's own
    // hand-off begins when the prompt closes.
    bool prefill_only = false;
    KvLease lease{};
    LeaseHolder lease_holder{};
    absl::Time added{};                            // when it was added; if it streamed, closed
    absl::Time started = absl::InfiniteFuture();   // when its first step began
    absl::Time computed = absl::InfiniteFuture();  // when it had all of its KV
    absl::Duration copied{};                       // time of copies of staged KV in its steps
    // The result of a failed request, which is reported when no push of it is in flight.
    absl::Status failure{};
    PrefillSteps steps{};
    Ahead ahead{};
  };

  RequestId id;
  RequestSpec spec{};
  int64_t kv_tokens = 0;         // the prompt gets KV for tokens [0, kv_tokens) of the spec
  std::vector<BlockKey> keys{};  // of the full blocks; a partial last block is private
  absl::Time queue_order{};      // orders prompts of equal priority (PromptQueue)
  // The prompt streams: PrefillScheduler::Extend appends to it. Until it closes it has KV for whole
  // blocks only.
  bool streaming = false;
  EnginePart engine{};

  // The scheduler's state of the prompt. Intervals are positions of tokens.
  uint64_t arrival = 0;      // number of the Add; unique
  int64_t wanted = 0;        // [0, wanted) is to get KV; Limit lowers it
  int64_t ready_at_add = 0;  // [0, ready_at_add) was in the cache or staged when it arrived
  int64_t done = 0;          // [0, done) has KV
  int64_t planned = 0;       // [0, planned) has KV after the running step
  int64_t own_begin = 0;     // [done, own_begin): made by other prompts of the running step
  // [own_begin, slice_begin): staged KV that the running step copies back for this prompt.
  // [slice_begin, planned): tokens that the running step computes for this prompt.
  int64_t slice_begin = 0;
  // The prompt holds the staged blocks of keys [staged_begin, staged_end).
  size_t staged_begin = 0, staged_end = 0;
  // The prompt looked for staged blocks a second time, just before its first step.
  bool looked_again = false;
  std::optional<Protection> protection{};  // of its cached blocks, while the prompt is queued
  BlockTable table{};                      // of [0, planned)
  // Blocks of a failed step, which pushes may still read. They stay until the prompt is removed.
  std::vector<BlockRef> failed_blocks{};
  PrefillCounters counters{};
  PrefillCounters counters_before{};  // before the running step; restored if the step fails
  bool admitted = false;
  bool stopped = false;
  bool extended = false;  // Extend was called, so the prompt may hold blocks without being admitted
  // Progress up to `done` was reported, so the prompt keeps its blocks unless it is a low-priority
  // job. False while the prompt streams, and after it gave its blocks back. Becomes true when the
  // closed prompt is admitted or has all of its KV.
  bool progress_reported = true;
  uint64_t plan = 0;  // number of the latest step in which the prompt took part

  // Returns true for a low-priority job.
  bool is_low_priority() const { return IsLowPriority(spec.priority); }
  // Returns true for a streaming prompt and for a low-priority job. Prompts that yield share
  // StreamingShare::step_tokens() tokens per step, and they count against a limit of their own.
  bool Yields() const { return streaming || is_low_priority(); }
  // Returns how many more blocks the prompt may take if it is admitted.
  int64_t Outstanding() const { return std::max<int64_t>(0, BlocksFor(wanted) - static_cast<int64_t>(table.size())); }
};

using PrefillPrompts = absl::flat_hash_map<RequestId, std::unique_ptr<PrefillPrompt>>;

}  // namespace baton
