// Who computes: runs one step of a ragged batch against a slab of KV blocks.
#pragma once

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kv/block_layout.h"
#include "kv/slab.h"
#include "model/batch.h"
#include "model/logits.h"

namespace baton {

// The largest step that a worker takes.
struct StepLimits {
  int64_t tokens = 0;
  int64_t logits = 0;  // rows of them
};

// What the caller does while a pass runs, on the calling thread.
struct Meanwhile {
  // Called once, so that the caller's own work costs no time: when the device has all of a decode step, and otherwise
  // before the pass; not where the pass fails first.
  absl::FunctionRef<void()> work;
  // Asks for the decode step after this one, which then begins behind it: the device does not wait for the host to
  // learn what was chosen. Its slices may follow the running step's (SequenceSlice::follows), all of whose tokens the
  // backend chooses. Null: it depends on what the running one makes. Called at most once, after `work`, by backends
  // that gain by it, when they read the running batch no more. Where LogitsView::next_begun says so, the next pass must
  // be this batch's (Batch::begun), which reads of it no more than the number of its slices: all else is read before
  // this pass is over.
  absl::FunctionRef<const Batch*()> next;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual const KvLayout& kv_layout() const = 0;
  // Block i is at [i * BlockBytes(), (i + 1) * BlockBytes()). Other threads may read or write blocks that the running
  // batch does not name.
  virtual Slab kv_slab() = 0;
  // Equal ids promise equal bits: backend, kernel set, weight dtype.
  virtual std::string numerics_id() const = 0;

  // Writes the batch's K/V into its blocks and computes the logits that were asked for, or chooses tokens from them
  // where a slice lets it and it can (SequenceSlice::sample). `layer_done(l)` is called on the calling thread once
  // layer l of the whole batch is stored, so that the hand-off can push it while l + 1 computes, or of a decode step,
  // which nobody pushes, for the last layer alone where that saves time; where it returns false, the pass ends there:
  // ABORTED, and the batch's K/V is not to be used. The batch is the engine's own work: malformed batches are CHECKed.
  // Not thread-safe: one step at a time.
  virtual absl::StatusOr<LogitsView> Forward(const Batch& batch, absl::FunctionRef<bool(int64_t layer)> layer_done,
                                             const Meanwhile& meanwhile) = 0;
  absl::StatusOr<LogitsView> Forward(const Batch& batch, absl::FunctionRef<bool(int64_t layer)> layer_done) {
    return Forward(batch, layer_done, {[] {}, [] { return nullptr; }});
  }
};

}  // namespace baton
