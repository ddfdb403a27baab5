// What a forward pass asks of a device: few operations, each as large as the paper's. model/forward.cc is the only
// caller, so that there is one forward pass for every back end.
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

// The activations of a pass, [rows, cols], one row per token of the batch. The device owns them, chooses their element
// types (the hidden state is fp32) and grows them with the batch.
enum class Activation {
  kHidden,    // [rows, hidden], the residual stream
  kQkv,       // [rows, (heads + 2 kv_heads) * head_dim]: q, k, v
  kAttended,  // [rows, heads * head_dim]
  kGated,     // [rows, ffn]
};

// A tensor in the device's own form.
using WeightId = Id<struct WeightIdTag, uint32_t>;

// What to pack. Tensors need to live only until Pack returns.
struct WeightSource {
  using Form = PackedForm;
  Form form = Form::kMatrix;
  std::vector<Tensor> parts;
  std::vector<Tensor> biases;  // empty, or one for each part
};

// output = W norm(input) + bias, and what becomes of it.
struct LinearStep {
  enum class Then {
    kStore,   // output = y
    kAdd,     // output += y, the residual connection
    kSwiGlu,  // output = silu(gate) * up, for a weight packed as kGateUp
  };
  Activation input;
  std::optional<WeightId> norm;  // RMSNorm of each input row first
  WeightId weight;
  Activation output;
  Then then = Then::kStore;
};

// Norms of q and k over head_dim, before rope (Qwen3); absent in other families.
struct QkNorm {
  WeightId q, k;
};

// Made for one ModelConfig and one slab of KV blocks. Calls come from one thread, in the order of forward.cc.
class Ops {
 public:
  virtual ~Ops() = default;

  virtual absl::StatusOr<WeightId> Pack(const WeightSource& source) = 0;

  // Takes up a batch: rows are its tokens, slice after slice. The batch's spans must live until Logits.
  virtual absl::Status Begin(const Batch& batch) = 0;
  // hidden = table[token]
  virtual void Embed(WeightId table) = 0;
  virtual void Linear(const LinearStep& step) = 0;
  // Normalises and turns q and k (rope), in place, and writes k and v of every row into its block. Complete when it
  // returns or, on a device with streams, before what is submitted next.
  virtual void StoreKv(int64_t layer, const std::optional<QkNorm>& norm) = 0;
  // attended = softmax(q k^T / sqrt(head_dim)) v over positions [0, own position] of each row's sequence
  virtual void Attend(int64_t layer) = 0;
  // From here the pass goes on with only the rows that want logits: hidden and qkv keep these, in batch order.
  virtual void KeepLogitRows() = 0;
  // norm(hidden) head^T in fp32, after all else is done.
  virtual absl::StatusOr<LogitsView> Logits(WeightId norm, WeightId head) = 0;
};

}  // namespace baton
