#include "backend/simulated/cost_model.h"

#include <algorithm>

#include "backend/fixed_cost.h"
#include "model/layer_tensors.h"

namespace baton {
namespace {

constexpr double kWeightBytes = 2;  // bf16
// Share of a device's memory that weights and KV may use.
constexpr double kUsableShare = 0.9;

// Elements of those projections of one layer that `picks` accepts. Norms and biases are negligible.
double Parameters(const ModelConfig& m, bool (*picks)(const LayerTensorRow& row)) {
  int64_t elements = 0;
  for (const LayerTensorRow& row : kLayerTensors) {
    if (row.is_matrix() && Has(m, row) && picks(row)) elements += ElementsOf(row, m);
  }
  return static_cast<double>(elements);
}
double QkvParameters(const ModelConfig& m) {
  return Parameters(m, [](const LayerTensorRow& row) { return row.role == LayerRole::kQkv; });
}
double LayerParameters(const ModelConfig& m) {
  return Parameters(m, [](const LayerTensorRow&) { return true; });
}
double HeadParameters(const ModelConfig& m) { return static_cast<double>(m.vocab * m.hidden); }

// Parameters that run for every token.
double TokenParameters(const ModelConfig& m) {
  return static_cast<double>(m.layers - 1) * LayerParameters(m) + QkvParameters(m);
}
// Parameters that run only for tokens with logits.
double LogitParameters(const ModelConfig& m) { return LayerParameters(m) - QkvParameters(m) + HeadParameters(m); }

double KvBytesPerToken(const ModelConfig& m) {
  return static_cast<double>(SimulatedKvLayout(m).BlockBytes()) / static_cast<double>(kBlockTokens);
}

}  // namespace

KvLayout SimulatedKvLayout(const ModelConfig& model) {
  return {.layers = model.layers, .kv_heads = model.kv_heads, .head_dim = model.head_dim};
}

double WeightBytes(const ModelConfig& model) {
  const double tables = model.tied_embeddings ? 1 : 2;
  return kWeightBytes * (static_cast<double>(model.layers) * LayerParameters(model) + tables * HeadParameters(model));
}

int64_t BlocksBeside(const ModelConfig& model, const DeviceShape& device) {
  const double left = kUsableShare * device.memory_bytes - WeightBytes(model);
  return static_cast<int64_t>(std::max(0.0, left) / static_cast<double>(SimulatedKvLayout(model).BlockBytes()));
}

absl::Duration CopyTime(const ModelConfig& model, const DeviceShape& device, int64_t blocks) {
  const double bytes = static_cast<double>(blocks) * static_cast<double>(SimulatedKvLayout(model).BlockBytes());
  return absl::Seconds(bytes / device.host_rate);
}

StepWork WorkOf(const ModelConfig& model, const Batch& batch) {
  // FLOPs of q k^T and p v in one layer, for one query and one key.
  const double per_key = 4.0 * static_cast<double>(model.heads * model.head_dim);
  double tokens = 0, rows = 0, keys = 0, row_keys = 0, history = 0;
  for (const SequenceSlice& slice : batch.slices) {
    const auto n = static_cast<double>(slice.tokens.size()), start = static_cast<double>(slice.start);
    tokens += n;
    history += start;
    keys += n * start + n * (n + 1) / 2;
    const auto wanted = static_cast<double>(slice.logit_rows());
    rows += wanted;
    row_keys += wanted * (start + n - (wanted - 1) / 2);
  }
  StepWork work;
  work.flops = 2 * (tokens * TokenParameters(model) + rows * LogitParameters(model)) +
               per_key * (static_cast<double>(model.layers - 1) * keys + row_keys);
  const double weights = TokenParameters(model) + (rows > 0 ? LogitParameters(model) : 0);
  work.bytes = kWeightBytes * weights + (history + tokens) * KvBytesPerToken(model);
  return work;
}

absl::Duration StepTime(const DeviceShape& device, const StepWork& work) {
  const double seconds =
      std::max(work.flops / (device.peak_flops * device.efficiency), work.bytes / device.memory_rate);
  return absl::Seconds(seconds) + device.step_overhead;
}

double FixedTokens(const ModelConfig& model, const DeviceShape& device) {
  return FixedTokens(model, StepRates{.flops = device.peak_flops * device.efficiency,
                                      .memory_bytes = device.memory_rate,
                                      .overhead = device.step_overhead});
}

}  // namespace baton
