// The operations that a device provides to the forward pass. There are few, and each is as large as
// a step of the transformer paper. Only model/forward.cc calls them, so that all devices share one
// forward pass.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "model/batch.h"
#include "model/logits.h"
#include "model/weights.h"

namespace baton {

// The activations of a pass, [rows, cols], with one row per token of the batch. The device owns
// them, chooses their element types (the hidden state is fp32) and grows them with the batch.
enum class Activation {
  kHidden,    // [rows, hidden], the residual stream
  kQkv,       // [rows, (heads + 2 kv_heads) * head_dim]: q, k, v
  kAttended,  // [rows, heads * head_dim]
  kGated,     // [rows, ffn]
};

// The id of a weight that a device has packed.
using WeightId = Id<struct WeightIdTag, uint32_t>;

// The tensors that Pack joins to one weight. They must live until Pack returns.
struct WeightSource {
  using Form = PackedForm;
  Form form = Form::kMatrix;
  std::vector<Tensor> parts;
  std::vector<Tensor> biases;  // empty, or one for each part
};

// A linear layer: y = W norm(input) + bias. `then` combines y with `output`.
struct LinearStep {
  enum class Then {
    kStore,   // output = y
    kAdd,     // output += y, the residual connection
    kSwiGlu,  // output = silu(gate) * up, for a weight packed as kGateUp
  };
  Activation input;
  std::optional<WeightId> norm;  // RMSNorm of each input row; nullopt: none
  WeightId weight;
  Activation output;
  Then then = Then::kStore;
};

// The RMSNorms of q and k over head_dim, applied before rope. Only Qwen3 has them.
struct QkNorm {
  WeightId q, k;
};

// The operations of one device, for one ModelConfig and one slab of KV blocks. REQUIRES: all calls
// come from one thread, in the order of model/forward.cc.
class Ops {
 public:
  virtual ~Ops() = default;

  // Converts a weight to the device's own form and keeps it.
  virtual absl::StatusOr<WeightId> Pack(const WeightSource& source) = 0;

  // Starts the pass of a batch. The rows are the batch's tokens, slice after slice. The spans of
  // the batch must live until Logits returns.
  virtual absl::Status Begin(const Batch& batch) = 0;
  // hidden = table[token]
  virtual void Embed(WeightId table) = 0;
  virtual void Linear(const LinearStep& step) = 0;
  // Normalises q and k and applies rope to them, in place. Then writes k and v of every row into
  // the row's block. The writes are complete when the call returns. On a device with streams, they
  // are complete before any work that is submitted later begins.
  virtual void StoreKv(int64_t layer, const std::optional<QkNorm>& norm) = 0;
  // attended = softmax(q k^T / sqrt(head_dim)) v over positions [0, own position] of each sequence
  virtual void Attend(int64_t layer) = 0;
  // Removes the rows that do not want logits from kHidden and kQkv. The other rows stay in batch
  // order.
  virtual void KeepLogitRows() = 0;
  // Returns norm(hidden) head^T in fp32, once all earlier operations of the pass are complete.
  virtual absl::StatusOr<LogitsView> Logits(WeightId norm, WeightId head) = 0;
};

}  // namespace baton
