#include "backend/cuda/cuda_ops.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "kernels/embedding.h"
#include "kernels/rms_norm.h"
#include "kernels/rope_store.h"
#include "kernels/swiglu.h"
#include "model/rope.h"

namespace baton {

CudaOps::CudaOps(const ModelConfig& config, const CudaOpsOptions& options)
    : config_(config),
      options_(options),
      stream_(options.stream),
      shard_(options.communicator == nullptr ? Shard{}
                                             : Shard{options.communicator->rank(), options.communicator->ranks()}),
      attention_(config, options.same_bits, options.capability),
      kept_attention_(config, options.same_bits, options.capability),
      sampling_(config.vocab) {}

absl::StatusOr<std::unique_ptr<CudaOps>> CudaOps::Create(const ModelConfig& config, const CudaOpsOptions& options) {
  std::unique_ptr<CudaOps> ops(new CudaOps(config, options));
  ASSIGN_OR_RETURN(ops->matmul_, CudaMatmul::Create(options.same_bits));
  RETURN_IF_ERROR(ops->attention_.Prepare(ops->Kv(0)));
  RETURN_IF_ERROR(ops->kept_attention_.Prepare(ops->Kv(0)));
  for (CudaEvent& chosen : ops->chosen_) {
    ASSIGN_OR_RETURN(chosen, MakeEvent());
  }
  const int64_t rope_size = config.context * config.head_dim;
  RETURN_IF_ERROR(ops->rope_.Reserve(rope_size, "the rotary embedding"));
  RopeTable table(config);
  table.Extend(config.context);
  RETURN_IF_ERROR(CudaStatus(
      cudaMemcpy(ops->rope_.data(), table.Row(0), rope_size * sizeof(float), cudaMemcpyHostToDevice), "rope table"));
  return ops;
}

cuda::PagedKv CudaOps::Kv(int64_t layer) const {
  const KvLayout& layout = options_.layout;
  return {.slab = reinterpret_cast<Bf16*>(options_.slab.data()),
          .blocks = static_cast<int64_t>(options_.slab.size()) / layout.BlockBytes(),
          .block_stride = layout.BlockBytes() / layout.element_bytes,
          .layer_offset = layout.KOffset(layer, 0) / layout.element_bytes,
          .kv_heads = static_cast<int32_t>(layout.kv_heads),
          .head_dim = static_cast<int32_t>(layout.head_dim)};
}

namespace {

// Stacks the parts by rows.
absl::Status CopyParts(const std::vector<Tensor>& parts, DeviceBuffer<cuda::Bf16>& to) {
  int64_t size = 0;
  for (const Tensor& part : parts) size += part.rows * part.cols;
  RETURN_IF_ERROR(to.Reserve(size, "weights"));
  cuda::Bf16* target = to.data();
  for (const Tensor& part : parts) {
    const size_t rows = static_cast<size_t>(part.rows), width = static_cast<size_t>(part.cols) * sizeof(cuda::Bf16);
    const size_t pitch = static_cast<size_t>(part.row_stride()) * sizeof(cuda::Bf16);
    const cudaError_t copied = pitch == width
                                   ? cudaMemcpy(target, part.data, rows * width, cudaMemcpyHostToDevice)
                                   : cudaMemcpy2D(target, width, part.data, pitch, width, rows, cudaMemcpyHostToDevice);
    RETURN_IF_ERROR(CudaStatus(copied, "copying weights"));
    target += part.rows * part.cols;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<WeightId> CudaOps::Pack(const WeightSource& source) {
  if (IsTable(source)) return table_->id;
  Packed packed;
  RETURN_IF_ERROR(CopyParts(source.parts, packed.values));
  if (!source.biases.empty()) RETURN_IF_ERROR(CopyParts(source.biases, packed.bias));
  for (const Tensor& part : source.parts) packed.rows += part.rows;
  packed.cols = source.parts[0].cols;
  weights_.push_back(std::move(packed));
  const WeightId id(static_cast<uint32_t>(weights_.size() - 1));
  if (source.form == WeightSource::Form::kTable) table_ = {id, source.parts[0].data};
  return id;
}

// The head of a model with tied embeddings has the embedding's rows, unless a rank has only some of them.
bool CudaOps::IsTable(const WeightSource& source) const {
  return config_.tied_embeddings && table_.has_value() && source.form == WeightSource::Form::kMatrix &&
         source.parts.size() == 1 && source.biases.empty() && source.parts[0].data == table_->source &&
         source.parts[0].rows == At(table_->id).rows;
}

absl::Status CudaOps::Tune(const PackedModel& model, const StepLimits& step) {
  struct Projection {
    std::vector<WeightId> weights;  // of all layers
    const Bf16* input;
    bool fp32, add;
    int64_t stride;
  };
  const bool adds = AddsToHidden();
  std::vector<Projection> projections = {{{}, normalised_.data(), false, false, 0},
                                         {{}, attended_.data(), true, adds, 0},
                                         {{}, normalised_.data(), false, false, 0},
                                         {{}, gated_.data(), true, adds, 0}};
  for (const PackedLayer& layer : model.layers) {
    size_t i = 0;
    for (const WeightId id : {layer.qkv, layer.o, layer.gate_up, layer.down}) projections[i++].weights.push_back(id);
  }
  if (model.lm_head) projections.push_back({{*model.lm_head}, normalised_.data(), true, false, PartStride()});
  for (const Projection& p : projections) {
    const Packed& weight = At(p.weights.front());
    std::vector<const Bf16*> weights;
    for (const WeightId id : p.weights) weights.push_back(At(id).values.data());
    const int64_t most_rows = model.lm_head == p.weights.front() ? step.logits : step.tokens;
    for (int64_t rows = 8; rows <= CudaMatmul::RowsPlannedFor(most_rows); rows *= 2) {
      RETURN_IF_ERROR(matmul_->Learn({.x = p.input,
                                      .bias = weight.bias.data(),
                                      .rows = rows,
                                      .n = weight.rows,
                                      .k = weight.cols,
                                      .y_stride = p.stride,
                                      .fp32_output = p.fp32,
                                      .add = p.add},
                                     weights, stream_));
    }
  }
  return absl::OkStatus();
}

absl::Status CudaOps::Begin(const Batch& batch) {
  if (decode_rows_ > 0) {        // BeginDecode has taken it up
    status_ = absl::OkStatus();  // a capture that failed is followed by a pass without
    return absl::OkStatus();
  }
  return TakeUp(batch);
}

absl::Status CudaOps::BeginDecode(const Batch& batch, int64_t rows) {
  decode_rows_ = rows;
  return TakeUp(batch);
}

absl::Status CudaOps::TakeUp(const Batch& batch) {
  status_ = absl::OkStatus();
  only_kept_ = false;
  RETURN_IF_ERROR(AddLists(batch));
  RETURN_IF_ERROR(Upload());
  rows_ = std::ssize(batch_.tokens);
  RETURN_IF_ERROR(ReserveActivations(rows_, std::max(decode_rows_, std::ssize(batch_.kept))));
  now_hidden_ = hidden_.data();
  now_qkv_ = qkv_.data();
  if (!batch_.follows.empty()) {
    Do("tokens of the step before", [&] { return sampling_.Follow(follows_, tokens_.data(), stream_); });
  }
  return status_;
}

void CudaOps::Collect(const Batch& batch) {
  batch_.Clear();
  int32_t next_table = 0;
  for (const SequenceSlice& slice : batch.slices) {
    const int32_t table = std::exchange(next_table, next_table + static_cast<int32_t>(slice.blocks.size()));
    const auto first_row = static_cast<int32_t>(batch_.tokens.size());
    const auto rows = static_cast<int32_t>(slice.tokens.size());
    batch_.slices.push_back({.first_row = first_row, .rows = rows, .start = slice.start, .table = table});
    batch_.tokens.insert(batch_.tokens.end(), slice.tokens.begin(), slice.tokens.end());
    for (int32_t position = slice.start; position < slice.start + rows; ++position) {
      batch_.positions.push_back(position);
      const int64_t block = slice.blocks[position / kBlockTokens].value();
      batch_.slots.push_back(block * kBlockTokens + position % kBlockTokens);
    }
    if (!slice.wants_logits) continue;
    batch_.specs.push_back(slice.sample);
    const int32_t last = rows - 1;
    batch_.kept_rows.push_back(first_row + last);
    batch_.kept.push_back({.first_row = static_cast<int32_t>(batch_.kept.size()),
                           .rows = 1,
                           .start = slice.start + last,
                           .table = table});
  }
  const auto follows = [](const SequenceSlice& slice) { return slice.follows != kFollowsNone; };
  if (std::ranges::none_of(batch.slices, follows)) return;
  BATON_CHECK(decode_rows_ > 0, "a decode step alone begins before its tokens are known");
  for (const SequenceSlice& slice : batch.slices) batch_.follows.push_back(slice.follows);
}

// What a captured decode step reads: the places of these lists follow from the sizes that it was captured with.
absl::Status CudaOps::AddLists(const Batch& batch) {
  Collect(batch);
  while (std::ssize(batch_.tokens) < decode_rows_) {
    batch_.tokens.push_back(0);
    batch_.positions.push_back(0);
    batch_.slots.push_back(-1);
  }
  upload_.Clear();
  RETURN_IF_ERROR(upload_.Add(std::span<const int32_t>(batch_.tokens), tokens_));
  RETURN_IF_ERROR(upload_.Add(std::span<const int32_t>(batch_.positions), positions_));
  RETURN_IF_ERROR(upload_.Add(std::span<const int64_t>(batch_.slots), slots_));
  RETURN_IF_ERROR(attention_.Plan(batch_.slices, decode_rows_, upload_));
  RETURN_IF_ERROR(AddBlockTables(batch));
  if (Samples()) RETURN_IF_ERROR(sampling_.Plan(batch_.specs, upload_));
  return batch_.follows.empty() ? absl::OkStatus() : upload_.Add(std::span<const int32_t>(batch_.follows), follows_);
}

absl::Status CudaOps::Upload() {
  RETURN_IF_ERROR(attention_.Reserve(stream_));
  if (Samples()) RETURN_IF_ERROR(sampling_.ReserveSeen());
  if (decode_rows_ == 0) {  // else all rows are kept
    RETURN_IF_ERROR(upload_.Add(std::span<const int32_t>(batch_.kept_rows), kept_rows_));
    RETURN_IF_ERROR(kept_attention_.Plan(batch_.kept, /*rows=*/0, upload_));
    RETURN_IF_ERROR(kept_attention_.Reserve(stream_));
  }
  return upload_.Send("what a step reads", stream_);
}

// These are most of what is uploaded.
absl::Status CudaOps::AddBlockTables(const Batch& batch) {
  static_assert(sizeof(BlockId) == sizeof(int32_t) && std::is_trivially_copyable_v<BlockId>);
  int64_t size = 0;
  for (const SequenceSlice& slice : batch.slices) size += std::ssize(slice.blocks);
  ASSIGN_OR_RETURN(const std::span<int32_t> place, upload_.Place(size, block_tables_));
  int32_t* to = place.data();
  for (const SequenceSlice& slice : batch.slices) {
    std::memcpy(to, slice.blocks.data(), slice.blocks.size_bytes());
    to += slice.blocks.size();
  }
  return absl::OkStatus();
}

int64_t CudaOps::ActivationBytes(const ModelConfig& config, int64_t rows, int64_t kept) {
  const int64_t fp32 = sizeof(float), bf16 = sizeof(Bf16), hidden = config.hidden, qkv = QkvColumns(config);
  const int64_t of_row = hidden * (fp32 + bf16) + (qkv + config.heads * config.head_dim + 3 * config.ffn) * bf16;
  const int64_t of_kept =
      hidden * fp32 + qkv * bf16 + 2 * StrideOf(config.vocab) * fp32;  // a group has a rank's part, too
  return rows * of_row + kept * of_kept + CudaSampling::BytesOf(kept);
}

absl::Status CudaOps::ReserveActivations(int64_t rows, int64_t kept) {
  RETURN_IF_ERROR(hidden_.Reserve(rows * config_.hidden, "activations"));
  RETURN_IF_ERROR(qkv_.Reserve(rows * QkvColumns(), "activations"));
  RETURN_IF_ERROR(normalised_.Reserve(rows * config_.hidden, "activations"));
  RETURN_IF_ERROR(attended_.Reserve(rows * config_.heads * config_.head_dim, "activations"));
  RETURN_IF_ERROR(gate_up_.Reserve(rows * 2 * config_.ffn, "activations"));
  RETURN_IF_ERROR(gated_.Reserve(rows * config_.ffn, "activations"));
  RETURN_IF_ERROR(kept_hidden_.Reserve(kept * config_.hidden, "activations"));
  RETURN_IF_ERROR(kept_qkv_.Reserve(kept * QkvColumns(), "activations"));
  if (InGroup()) RETURN_IF_ERROR(part_logits_.Reserve(kept * PartStride(), "logits"));
  if (shard_.rank > 0) return absl::OkStatus();
  RETURN_IF_ERROR(sampling_.ReserveRows(kept, stream_));
  RETURN_IF_ERROR(logits_.Reserve(kept * LogitsStride(), "logits"));
  return sampling_.all() ? absl::OkStatus() : host_logits_.Reserve(kept * config_.vocab, "logits");
}

template <typename Enqueue>
void CudaOps::Do(const char* what, Enqueue enqueue) {
  if (status_.ok()) status_ = CudaStatus(enqueue(), what);
}

void CudaOps::Embed(WeightId table) {
  Do("embedding", [&] {
    return cuda::LaunchEmbedding(At(table).values.data(), tokens_.data(), static_cast<int32_t>(rows_),
                                 static_cast<int32_t>(config_.hidden), now_hidden_, stream_);
  });
}

void CudaOps::Normalise(WeightId norm) {
  Do("RMSNorm", [&] {
    return cuda::LaunchRmsNorm(now_hidden_, At(norm).values.data(), static_cast<float>(config_.rms_eps),
                               static_cast<int32_t>(rows_), static_cast<int32_t>(config_.hidden), normalised_.data(),
                               stream_);
  });
}

const CudaOps::Bf16* CudaOps::Input(const LinearStep& step) {
  switch (step.input) {
    case Activation::kHidden:
      BATON_CHECK(step.norm.has_value(), "the hidden state is normalised before a projection");
      Normalise(*step.norm);
      return normalised_.data();
    case Activation::kAttended:
      return attended_.data();
    case Activation::kGated:
      return gated_.data();
    case Activation::kQkv:
      break;
  }
  BATON_CHECK(false, "q, k and v are inputs of attention only");
}

void CudaOps::Multiply(const Packed& weight, const Bf16* input, void* output, bool fp32_output, bool add,
                       int64_t output_stride) {
  if (!status_.ok()) return;
  status_ = matmul_->Run({.x = input,
                          .w = weight.values.data(),
                          .bias = weight.bias.data(),
                          .y = output,
                          .rows = rows_,
                          .n = weight.rows,
                          .k = weight.cols,
                          .y_stride = output_stride,
                          .fp32_output = fp32_output,
                          .add = add},
                         stream_);
}

void CudaOps::MultiplySwiGlu(const Packed& weight, const Bf16* input) {
  const MatrixProduct product{.x = input,
                              .w = weight.values.data(),
                              .bias = weight.bias.data(),
                              .y = gated_.data(),
                              .rows = rows_,
                              .n = weight.rows,
                              .k = weight.cols};
  if (matmul_->PrefersGemv(product)) {
    return Do("SwiGLU", [&] { return RunGemv(product, /*swiglu=*/true, stream_); });
  }
  Multiply(weight, input, gate_up_.data(), /*fp32_output=*/false, /*add=*/false);
  Do("SwiGLU", [&] {
    return cuda::LaunchSwiGlu(gate_up_.data(), static_cast<int32_t>(rows_), static_cast<int32_t>(config_.ffn),
                              gated_.data(), stream_);
  });
}

void CudaOps::Linear(const LinearStep& step) {
  const Bf16* input = Input(step);
  const Packed& weight = At(step.weight);
  switch (step.then) {
    case LinearStep::Then::kStore:
      BATON_CHECK(step.output == Activation::kQkv, "a projection stores q, k and v alone");
      return Multiply(weight, input, now_qkv_, /*fp32_output=*/false, /*add=*/false);
    case LinearStep::Then::kAdd:
      BATON_CHECK(step.output == Activation::kHidden, "only the hidden state is added to");
      Multiply(weight, input, now_hidden_, /*fp32_output=*/true, /*add=*/AddsToHidden());
      return SumHidden();
    case LinearStep::Then::kSwiGlu:
      return MultiplySwiGlu(weight, input);
  }
}

// Over the ranks. One that has failed meets nobody: its pass ends, and lets the others go.
void CudaOps::SumHidden() {
  if (!InGroup() || !status_.ok()) return;
  options_.communicator->AllReduceSum(now_hidden_, rows_ * config_.hidden);
  status_ = options_.communicator->status();
}

void CudaOps::JoinLogits() {
  if (!InGroup() || !status_.ok()) return;
  const std::vector<int64_t> columns = VocabColumns(shard_.ranks, config_);
  options_.communicator->GatherColumns(part_logits_.data(), PartStride(), rows_, columns, logits_.data(),
                                       LogitsStride());
  status_ = options_.communicator->status();
}

void CudaOps::StoreKv(int64_t layer, const std::optional<QkNorm>& norm) {
  cuda::RopeStoreArgs args = {.qkv = now_qkv_,
                              .rows = static_cast<int32_t>(rows_),
                              .heads = static_cast<int32_t>(config_.heads),
                              .positions = positions_.data(),
                              .slots = slots_.data(),
                              .rope = rope_.data(),
                              .epsilon = static_cast<float>(config_.rms_eps),
                              .kv = Kv(layer)};
  if (norm.has_value()) {
    args.q_norm = At(norm->q).values.data();
    args.k_norm = At(norm->k).values.data();
  }
  Do("rotary embedding", [&] { return cuda::LaunchRopeStore(args, stream_); });
}

void CudaOps::Attend(int64_t layer) {
  const cuda::AttentionArgs args = {.q = now_qkv_,
                                    .q_stride = QkvColumns(),
                                    .heads = static_cast<int32_t>(config_.heads),
                                    .kv = Kv(layer),
                                    .block_tables = block_tables_.data(),
                                    .out = attended_.data()};
  Do("attention", [&] { return (only_kept_ ? kept_attention_ : attention_).Run(args, stream_); });
}

void CudaOps::KeepLogitRows() {
  if (decode_rows_ > 0) return;  // all are
  const auto kept = static_cast<int32_t>(batch_.kept.size());
  Do("hidden rows that want logits", [&] {
    return cuda::LaunchGatherRows(hidden_.data(), kept_rows_.data(), kept, static_cast<int32_t>(config_.hidden),
                                  kept_hidden_.data(), stream_);
  });
  Do("q of rows that want logits", [&] {
    return cuda::LaunchGatherRows(qkv_.data(), kept_rows_.data(), kept, static_cast<int32_t>(QkvColumns()),
                                  kept_qkv_.data(), stream_);
  });
  only_kept_ = true;
  rows_ = kept;
  now_hidden_ = kept_hidden_.data();
  now_qkv_ = kept_qkv_.data();
}

absl::StatusOr<LogitsView> CudaOps::Logits(WeightId norm, WeightId head) {
  const Packed& weight = At(head);
  Normalise(norm);
  float* logits = InGroup() ? part_logits_.data() : logits_.data();
  Multiply(weight, normalised_.data(), logits, /*fp32_output=*/true, /*add=*/false, PartStride());
  JoinLogits();
  if (decode_rows_ > 0) return LogitsView{};
  RETURN_IF_ERROR(Choose());
  return Fetch(choice());
}

absl::Status CudaOps::Choose() {
  if (!Samples()) return status_;
  if (sampling_.any()) {
    Do("sampling", [&] { return sampling_.Run(logits_.data(), LogitsStride(), stream_); });
  }
  CopyLogits();
  Do("sampling", [&] { return cudaEventRecord(chosen_[choice()].get(), stream_); });
  return status_;
}

absl::StatusOr<LogitsView> CudaOps::Fetch(int choice) {
  if (!Samples()) return LogitsView{};
  RETURN_IF_ERROR(CudaStatus(cudaEventSynchronize(chosen_[choice].get()), "the forward pass"));
  return LogitsView{.data = host_logits_.data(),
                    .rows = sampling_.rows(choice),
                    .vocab = config_.vocab,
                    .sampled = sampling_.Tokens(choice)};
}

// To the host: the rows that were not sampled, neighbours together.
void CudaOps::CopyLogits() {
  const auto rows = std::ssize(batch_.kept);
  const size_t row_bytes = static_cast<size_t>(config_.vocab) * sizeof(float);
  for (int64_t begin = 0, end; begin < rows; begin = end + 1) {
    end = begin;
    while (end < rows && !sampling_.IsSampled(end)) ++end;
    if (end == begin) continue;
    Do("copying logits", [&] {
      return cudaMemcpy2DAsync(host_logits_.data() + begin * config_.vocab, row_bytes,
                               logits_.data() + begin * LogitsStride(), LogitsStride() * sizeof(float), row_bytes,
                               static_cast<size_t>(end - begin), cudaMemcpyDeviceToHost, stream_);
    });
  }
}

CudaOps::Captured CudaOps::Describe() const {
  Captured captured;
  captured.sizes.push_back(rows_);
  attention_.Describe(captured.sizes, captured.addresses);
  captured.addresses.insert(
      captured.addresses.end(),
      {tokens_.data(), positions_.data(), block_tables_.data(), slots_.data(), hidden_.data(), logits_.data(),
       qkv_.data(), normalised_.data(), attended_.data(), gate_up_.data(), static_cast<const void*>(gated_.data())});
  return captured;
}

}  // namespace baton
