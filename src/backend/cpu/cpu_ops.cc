#include "backend/cpu/cpu_ops.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"

namespace baton {
namespace {

// Rows per share of a parallel loop whose rows are little work.
int64_t RowGrain(int64_t columns) { return std::max<int64_t>(1, 8192 / columns); }

// Element i of a table or vector as a float.
float Element(const std::byte* data, DType dtype, int64_t i) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, data + i * sizeof(value), sizeof(value));
    return value;
  }
  Bf16 bits;
  std::memcpy(&bits, data + i * sizeof(bits), sizeof(bits));
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

std::vector<float> Widen(const Tensor& tensor) {
  std::vector<float> values(tensor.rows * tensor.cols);
  for (size_t i = 0; i < values.size(); ++i) values[i] = Element(tensor.data, tensor.dtype, static_cast<int64_t>(i));
  return values;
}

}  // namespace

CpuOps::CpuOps(const ModelConfig& config, const KernelTable& kernels, ThreadPool& pool, const KvLayout& layout,
               std::span<std::byte> slab, Communicator* communicator)
    : config_(config),
      kernels_(kernels),
      pool_(pool),
      layout_(layout),
      slab_(slab),
      communicator_(communicator),
      shard_(communicator == nullptr ? Shard{} : Shard{communicator->rank(), communicator->ranks()}),
      bf16_activations_(config.dtype == DType::kBF16 && kernels.bf16_format == WeightFormat::kBf16Pairs),
      linear_(kernels, pool),
      rope_(config),
      attention_(config, kernels, pool, layout) {}

absl::StatusOr<WeightId> CpuOps::Pack(const WeightSource& source) {
  Packed packed;
  switch (source.form) {
    case WeightSource::Form::kVector:
      packed.vector = Widen(source.parts[0]);
      break;
    case WeightSource::Form::kTable:
      CopyTable(source.parts[0], packed.table);
      break;
    case WeightSource::Form::kMatrix:
      packed.matrix = PackedWeight(weight_memory_, kernels_, source.parts, source.biases, &pool_);
      break;
    case WeightSource::Form::kGateUp:
      packed.matrix = PackedWeight::GateUp(weight_memory_, kernels_, source.parts[0], source.parts[1], &pool_);
      break;
  }
  weights_.push_back(std::move(packed));
  return WeightId(static_cast<uint32_t>(weights_.size() - 1));
}

void CpuOps::CopyTable(const Tensor& table, Buffer<std::byte>& copy) {
  const int64_t row_bytes = table.cols * BytesPerElement(table.dtype);
  copy.Reserve(table.rows * row_bytes);
  pool_.ParallelFor(table.rows, RowGrain(1), [&](Share share) {
    const int64_t begin = share.begin * row_bytes;
    std::memcpy(copy.data() + begin, table.data + begin, (share.end - share.begin) * row_bytes);
  });
}

absl::Status CpuOps::Begin(const Batch& batch) {
  slices_.clear();
  blocks_.clear();
  logit_rows_.clear();
  logit_slices_.clear();
  tokens_.clear();
  positions_.clear();
  row_blocks_.clear();
  int64_t past_last = 0;
  for (const SequenceSlice& slice : batch.slices) {
    const int64_t first_row = rows();
    const int64_t count = static_cast<int64_t>(slice.tokens.size());
    slices_.push_back({.first_row = first_row, .rows = count, .first_position = slice.start});
    tokens_.insert(tokens_.end(), slice.tokens.begin(), slice.tokens.end());
    for (int64_t i = 0; i < count; ++i) {
      const int64_t position = slice.start + i;
      positions_.push_back(static_cast<int32_t>(position));
      row_blocks_.push_back(slab_.data() + slice.blocks[position / kBlockTokens].value() * layout_.BlockBytes());
    }
    for (const BlockId block : slice.blocks) {
      blocks_.push_back(slab_.data() + block.value() * layout_.BlockBytes());
    }
    if (const int64_t wanted = slice.logit_rows(); wanted > 0) {
      logit_slices_.push_back(
          {.first_row = std::ssize(logit_rows_), .rows = wanted, .first_position = slice.start + count - wanted});
      for (int64_t row = first_row + count - wanted; row < first_row + count; ++row) logit_rows_.push_back(row);
    }
    past_last = std::max(past_last, slice.start + count);
  }
  // Set here, after blocks_ has stopped growing.
  const std::byte* const* table = blocks_.data();
  auto logit_slice = logit_slices_.begin();
  for (size_t i = 0; i < slices_.size(); table += batch.slices[i].blocks.size(), ++i) {
    slices_[i].blocks = table;
    if (batch.slices[i].logit_rows() > 0) (logit_slice++)->blocks = table;
  }
  rope_.Extend(past_last);
  ReserveActivations();
  attention_.Plan(slices_);
  return absl::OkStatus();
}

void CpuOps::ReserveActivations() {
  const int64_t operand_bytes = bf16_activations_ ? 2 : 4;
  hidden_.Reserve(rows() * config_.hidden);
  unrounded_rows_.Reserve(pool_.threads() * config_.hidden);
  qkv_.Reserve(rows() * QkvColumns());
  normalised_.Reserve(rows() * config_.hidden * operand_bytes);
  attended_.Reserve(rows() * config_.heads * config_.head_dim * operand_bytes);
  gated_.Reserve(rows() * config_.ffn * operand_bytes);
}

void CpuOps::Embed(WeightId table) {
  const std::byte* data = weights_[table.value()].table.data();
  const int64_t hidden = config_.hidden;
  pool_.ParallelFor(rows(), RowGrain(hidden), [&](Share share) {
    for (int64_t row = share.begin; row < share.end; ++row) {
      float* out = hidden_.data() + row * hidden;
      for (int64_t i = 0; i < hidden; ++i) out[i] = Element(data, config_.dtype, tokens_[row] * hidden + i);
    }
  });
}

void CpuOps::Linear(const LinearStep& step) {
  const Activations input = Input(step);
  linear_.Run(Matrix(step.weight), input, Output(step));
  if (step.then == LinearStep::Then::kAdd && communicator_ != nullptr) {
    communicator_->AllReduceSum(hidden_.data(), rows() * config_.hidden);
  }
}

Activations CpuOps::Input(const LinearStep& step) {
  switch (step.input) {
    case Activation::kHidden:
      BATON_CHECK(step.norm.has_value(), "the hidden state is normalised before a projection");
      return NormaliseHidden(*step.norm);
    case Activation::kAttended:
      return Operand(attended_.data(), config_.heads * config_.head_dim);
    case Activation::kGated:
      return Operand(gated_.data(), config_.ffn);
    case Activation::kQkv:
      break;
  }
  BATON_CHECK(false, "q, k and v are inputs of attention only");
}

LinearOutput CpuOps::Output(const LinearStep& step) {
  const LinearThen then[] = {LinearThen::kStore, LinearThen::kAdd, LinearThen::kSwiGlu};
  LinearOutput output{.then = then[static_cast<int>(step.then)]};
  switch (step.output) {
    case Activation::kHidden:
      output.y = hidden_.data();
      output.stride = config_.hidden;
      // Only rank 0 adds to the old hidden state, so that the sum over ranks contains it once.
      if (shard_.rank > 0) output.then = LinearThen::kStore;
      return output;
    case Activation::kQkv:
      output.y = qkv_.data();
      output.stride = QkvColumns();
      return output;
    case Activation::kGated:
      output.y = gated_.data();
      output.stride = config_.ffn;
      output.bf16 = bf16_activations_;
      return output;
    case Activation::kAttended:
      break;
  }
  BATON_CHECK(false, "only attention writes attended activations");
}

Activations CpuOps::NormaliseHidden(WeightId norm) {
  const int64_t columns = config_.hidden;
  const float* weight = Vector(norm);
  const float epsilon = static_cast<float>(config_.rms_eps);
  pool_.ParallelFor(rows(), RowGrain(columns), [&](Share share) {
    float* unrounded = unrounded_rows_.data() + share.worker * columns;
    for (int64_t row = share.begin; row < share.end; ++row) {
      const float* x = hidden_.data() + row * columns;
      if (bf16_activations_) {
        kernels_.rms_norm(x, weight, epsilon, columns, unrounded);
        kernels_.round_to_bf16(unrounded, columns, reinterpret_cast<Bf16*>(normalised_.data()) + row * columns);
      } else {
        kernels_.rms_norm(x, weight, epsilon, columns, reinterpret_cast<float*>(normalised_.data()) + row * columns);
      }
    }
  });
  return Operand(normalised_.data(), columns);
}

void CpuOps::StoreKv(int64_t layer, const std::optional<QkNorm>& norm) {
  // Tokens of one block share cache lines, so one thread should store all of its rows.
  pool_.ParallelFor(rows(), kBlockTokens, [&](Share share) {
    for (int64_t row = share.begin; row < share.end; ++row) StoreRow(layer, row, norm);
  });
}

void CpuOps::StoreRow(int64_t layer, int64_t row, const std::optional<QkNorm>& norm) {
  const int64_t head_dim = config_.head_dim;
  float* q = qkv_.data() + row * QkvColumns();
  float* k = q + config_.heads * head_dim;
  float* v = k + config_.kv_heads * head_dim;
  if (norm.has_value()) {
    const float epsilon = static_cast<float>(config_.rms_eps);
    for (float* head = q; head < k; head += head_dim) {
      kernels_.rms_norm(head, Vector(norm->q), epsilon, head_dim, head);
    }
    for (float* head = k; head < v; head += head_dim) {
      kernels_.rms_norm(head, Vector(norm->k), epsilon, head_dim, head);
    }
  }
  kernels_.rope(q, rope_.Row(positions_[row]), head_dim, config_.heads + config_.kv_heads);
  const int64_t slot = positions_[row] % kBlockTokens;
  std::byte* k_out = row_blocks_[row] + layout_.KOffset(layer, 0);
  std::byte* v_out = row_blocks_[row] + layout_.VOffset(layer, 0);
  const CpuKvKernels& kv = kernels_.Kv(layout_.format);
  for (int64_t head = 0; head < config_.kv_heads; ++head) {
    kv.store_k(k + head * head_dim, head_dim, slot, k_out + head * layout_.HeadBytes());
    kv.store_v(v + head * head_dim, head_dim, slot, v_out + head * layout_.HeadBytes());
  }
}

void CpuOps::Attend(int64_t layer) {
  attention_.Run(layer, qkv_.data(), QkvColumns(), attended_.data(), bf16_activations_);
}

void CpuOps::KeepLogitRows() {
  // In a decode step, all rows have logits.
  if (std::ssize(logit_rows_) == rows()) return;
  for (size_t to = 0; to < logit_rows_.size(); ++to) {
    const auto from = static_cast<size_t>(logit_rows_[to]);
    if (from == to) continue;
    const auto hidden = static_cast<size_t>(config_.hidden), qkv = static_cast<size_t>(QkvColumns());
    std::memcpy(hidden_.data() + to * hidden, hidden_.data() + from * hidden, hidden * sizeof(float));
    std::memcpy(qkv_.data() + to * qkv, qkv_.data() + from * qkv, qkv * sizeof(float));
    positions_[to] = positions_[from];
  }
  slices_ = logit_slices_;
  positions_.resize(logit_rows_.size());
  attention_.Plan(slices_);
}

absl::StatusOr<LogitsView> CpuOps::Logits(WeightId norm, WeightId head) {
  const PackedWeight& weight = Matrix(head);
  const Activations input = NormaliseHidden(norm);
  float* y = logits_.Reserve(rows() * weight.n());
  linear_.Run(weight, input, {.y = y, .stride = weight.n()});
  if (communicator_ != nullptr) y = JoinLogits(y);
  if (y == nullptr) return LogitsView{};
  for (int64_t row = 0; row < rows(); ++row) {
    for (const TokenId id : masked_) y[row * config_.vocab + id] = -std::numeric_limits<float>::infinity();
  }
  return LogitsView{.data = y, .rows = rows(), .vocab = config_.vocab};
}

// Returns the logits of all ranks at rank 0, and null at other ranks. `part` is [rows, the rank's
// part of the vocabulary].
float* CpuOps::JoinLogits(float* part) {
  const std::vector<int64_t> columns = VocabColumns(shard_.ranks, config_);
  const bool joins = shard_.rank == 0;
  float* whole = joins ? joined_logits_.Reserve(rows() * config_.vocab) : nullptr;
  communicator_->GatherColumns(part, columns[shard_.rank], rows(), columns, whole, config_.vocab);
  return whole;
}

}  // namespace baton
