// The interface of a device that computes: it runs one step of a ragged batch against a slab of KV
// blocks.
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

// Upper bounds on the size of a worker's steps.
struct StepLimits {
  int64_t tokens = 0;
  // Rows of logits.
  int64_t logits = 0;
};

// Callbacks that Forward calls on its own thread while a pass runs.
struct Meanwhile {
  // Called at most once, for work of the caller that should cost no extra time. A backend with a
  // device calls it when all of a decode step is enqueued on the device. In other cases it is
  // called before the pass. It is not called if the pass fails earlier.
  absl::FunctionRef<void()> work;
  // Returns the next decode step, or null if no step can be planned before the running step ends.
  // The backend enqueues the next step behind the running step, so the device does not wait until
  // the host has read the chosen tokens.
  //
  // - The backend calls it at most once, after `work`, and reads the running batch no further.
  //   Backends that gain nothing by it never call it.
  // - Slices of the next step may follow slices of the running step (SequenceSlice::follows). The
  //   backend chooses all tokens of the running step in that case.
  // - If LogitsView::next_started is true, the next pass must be for the returned batch, with
  //   Batch::started set. That pass reads only the number of slices. The backend reads everything
  //   else in the batch before the running pass returns.
  absl::FunctionRef<const Batch*()> next;
};

// A model on one device or one group of devices. Not thread-safe: the caller runs one step at a
// time.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual const KvLayout& kv_layout() const = 0;
  // Block i is at [i * BlockBytes(), (i + 1) * BlockBytes()). Other threads may read or write
  // blocks that the running batch does not name.
  virtual Slab kv_slab() = 0;
  // Names the backend, the kernel set and the dtype of the weights. Backends with equal ids compute
  // equal bits, unless the ids contain `varying-bits`.
  virtual std::string numerics_id() const = 0;

  // Writes the K/V of the batch into its blocks and computes the logits that slices ask for. Where
  // a slice allows it (SequenceSlice::sample), the backend may choose the token instead.
  //
  // Calls `layer_done(l)` on the calling thread once layer l of the whole batch is stored, so that
  // a hand-off can push layer l while layer l + 1 computes. In a decode step, which is not pushed,
  // a backend may call it for the last layer alone to save time. If `layer_done` returns false, the
  // pass ends there with ABORTED, and the K/V of the batch must not be used.
  //
  // The engine composes the batch, so a malformed batch fails a CHECK.
  virtual absl::StatusOr<LogitsView> Forward(const Batch& batch, absl::FunctionRef<bool(int64_t layer)> layer_done,
                                             const Meanwhile& meanwhile) = 0;
  absl::StatusOr<LogitsView> Forward(const Batch& batch, absl::FunctionRef<bool(int64_t layer)> layer_done) {
    return Forward(batch, layer_done, {[] {}, [] { return nullptr; }});
  }
};

}  // namespace baton
