#include "backend/cuda/cuda_ops.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "kernels/embedding.h"
#include "kernels/logit_mask.h"
#include "kernels/rms_norm.h"
#include "kernels/rope_store.h"
#include "kernels/swiglu.h"
#include "model/rope.h"

namespace baton {

CudaOps::CudaOps(const ModelConfig& config, const CudaOpsOptions& options, const CudaKvKernels& kv_kernels)
    : config_(config),
      options_(options),
      kv_kernels_(kv_kernels),
      stream_(options.stream),
      shard_(options.communicator == nullptr ? Shard{}
                                             : Shard{options.communicator->rank(), options.communicator->ranks()}),
      attention_(config, kv_kernels, options.same_bits, options.capability),
      kept_attention_(config, kv_kernels, options.same_bits, options.capability),
      output_(config.vocab, /*has_logits=*/shard_.rank == 0),
      upload_({.attention = &attention_, .kept_attention = &kept_attention_, .sampling = output_.sampling()}) {}

absl::StatusOr<std::unique_ptr<CudaOps>> CudaOps::Create(const ModelConfig& config, const CudaOpsOptions& options) {
  ASSIGN_OR_RETURN(const CudaKvKernels* kv_kernels, FindCudaKvKernels(options.layout.format));
  std::unique_ptr<CudaOps> ops(new CudaOps(config, options, *kv_kernels));
  RETURN_IF_ERROR(ops->attention_.Prepare(ops->Kv(0)));
  RETURN_IF_ERROR(ops->kept_attention_.Prepare(ops->Kv(0)));
  RETURN_IF_ERROR(ops->output_.Prepare());
  RETURN_IF_ERROR(ops->UploadUnnamed());
  const int64_t rope_size = config.context * config.head_dim;
  RETURN_IF_ERROR(ops->rope_.Reserve(rope_size, "the rotary embedding"));
  RopeTable table(config);
  table.Extend(config.context);
  RETURN_IF_ERROR(CudaStatus(
      cudaMemcpy(ops->rope_.data(), table.Row(0), rope_size * sizeof(float), cudaMemcpyHostToDevice), "rope table"));
  return ops;
}

absl::Status CudaOps::UploadUnnamed() {
  const std::span<const TokenId> ids = options_.unnamed;
  if (ids.empty() || output_.sampling() == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(unnamed_.Reserve(std::ssize(ids), "ids without a token"));
  return CudaStatus(cudaMemcpy(unnamed_.data(), ids.data(), ids.size_bytes(), cudaMemcpyHostToDevice), "unnamed ids");
}

cuda::PagedKv CudaOps::Kv(int64_t layer) const {
  const KvLayout& layout = options_.layout;
  return {.slab = options_.slab.data(),
          .blocks = static_cast<int64_t>(options_.slab.size()) / layout.BlockBytes(),
          .block_stride = layout.BlockBytes() / layout.ElementBytes(),
          .layer_offset = layout.KOffset(layer, 0) / layout.ElementBytes(),
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

// Returns true if `source` is the embedding. The head of a model with tied embeddings has the
// embedding's rows, unless a rank has only some of them.
bool CudaOps::IsTable(const WeightSource& source) const {
  return config_.tied_embeddings && table_.has_value() && source.form == WeightSource::Form::kMatrix &&
         source.parts.size() == 1 && source.biases.empty() && source.parts[0].data == table_->source &&
         source.parts[0].rows == At(table_->id).rows;
}

std::vector<Projection> CudaOps::Projections(const PackedModel& model, const StepLimits& step) const {
  const auto of = [&](const Bf16* input, WeightId first, int64_t most_rows) {
    const Packed& weight = At(first);
    return Projection{.product = {.x = input, .bias = weight.bias.data(), .n = weight.rows, .k = weight.cols},
                      .weights = {},
                      .most_rows = most_rows};
  };
  const auto adding = [&](Projection projection) {
    projection.product.fp32_output = true;
    projection.product.add = AddsToHidden();
    return projection;
  };
  using Role = LayerRole;
  const PackedLayer& first = model.layers.front();
  std::vector<Projection> projections = {of(normalised_.data(), first[Role::kQkv], step.tokens),
                                         adding(of(attended_.data(), first[Role::kO], step.tokens)),
                                         of(normalised_.data(), first[Role::kGateUp], step.tokens),
                                         adding(of(gated_.data(), first[Role::kDown], step.tokens))};
  for (const PackedLayer& layer : model.layers) {
    size_t i = 0;
    for (const Role role : {Role::kQkv, Role::kO, Role::kGateUp, Role::kDown}) {
      projections[i++].weights.push_back(At(layer[role]).values.data());
    }
  }
  if (model.lm_head) {
    Projection head = of(normalised_.data(), *model.lm_head, step.logits);
    head.product.fp32_output = true;
    head.product.y_stride = PartStride();
    head.weights = {At(*model.lm_head).values.data()};
    projections.push_back(std::move(head));
  }
  return projections;
}

absl::Status CudaOps::BeginDecode(const Batch& batch, int64_t rows) {
  BATON_CHECK(rows > 0, "a decode step has rows");
  return BeginBatch(batch, rows);
}

absl::Status CudaOps::BeginBatch(const Batch& batch, int64_t decode_rows) {
  status_ = absl::OkStatus();
  only_kept_ = false;
  RETURN_IF_ERROR(upload_.Send(batch, decode_rows, stream_));
  rows_ = upload_.rows();
  RETURN_IF_ERROR(ReserveActivations(rows_, std::max(decode_rows, upload_.kept())));
  current_hidden_ = hidden_.data();
  current_qkv_ = qkv_.data();
  const BatchLists& lists = upload_.lists();
  if (lists.follows.size() > 0) {
    Do("tokens of the previous step",
       [&] { return output_.sampling()->Follow(lists.follows, lists.tokens.data(), stream_); });
  }
  return status_;
}

int64_t CudaOps::ActivationBytes(const ModelConfig& config, int64_t rows, int64_t kept) {
  const int64_t fp32 = sizeof(float), bf16 = sizeof(Bf16), hidden = config.hidden, qkv = QkvColumns(config);
  const int64_t of_row = hidden * (fp32 + bf16) + (qkv + config.heads * config.head_dim + 3 * config.ffn) * bf16;
  const int64_t of_kept =
      // A rank of a group also has its own part of the logits.
      hidden * fp32 + qkv * bf16 + 2 * StrideOf(config.vocab) * fp32;
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
  if (output_.sampling() == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(logits_.Reserve(kept * LogitsStride(), "logits"));
  return output_.Reserve(kept, stream_);
}

template <typename Enqueue>
void CudaOps::Do(const char* what, Enqueue enqueue) {
  if (status_.ok()) status_ = CudaStatus(enqueue(), what);
}

void CudaOps::Embed(WeightId table) {
  Do("embedding", [&] {
    return cuda::LaunchEmbedding(At(table).values.data(), upload_.lists().tokens.data(), static_cast<int32_t>(rows_),
                                 static_cast<int32_t>(config_.hidden), current_hidden_, stream_);
  });
}

void CudaOps::Normalise(WeightId norm) {
  Do("RMSNorm", [&] {
    return cuda::LaunchRmsNorm(current_hidden_, At(norm).values.data(), static_cast<float>(config_.rms_eps),
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
  status_ = options_.matmul->Run({.x = input,
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
  if (options_.matmul->PrefersGemv(product)) {
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
      BATON_CHECK(step.output == Activation::kQkv, "a projection stores only q, k and v");
      return Multiply(weight, input, current_qkv_, /*fp32_output=*/false, /*add=*/false);
    case LinearStep::Then::kAdd:
      BATON_CHECK(step.output == Activation::kHidden, "a projection adds only to the hidden state");
      Multiply(weight, input, current_hidden_, /*fp32_output=*/true, /*add=*/AddsToHidden());
      return SumHidden();
    case LinearStep::Then::kSwiGlu:
      return MultiplySwiGlu(weight, input);
  }
}

// Sums the hidden state over the ranks. A rank that has failed does not call the communicator. The
// end of its pass releases the other ranks.
void CudaOps::SumHidden() {
  if (!InGroup() || !status_.ok()) return;
  options_.communicator->AllReduceSum(current_hidden_, rows_ * config_.hidden);
  status_ = options_.communicator->status();
}

void CudaOps::JoinLogits() {
  if (!InGroup() || !status_.ok()) return;
  const std::vector<int64_t> columns = VocabColumns(shard_.ranks, config_);
  options_.communicator->GatherColumns(part_logits_.data(), PartStride(), rows_, columns, logits_.data(),
                                       LogitsStride());
  status_ = options_.communicator->status();
}

void CudaOps::MaskUnnamed() {
  if (unnamed_.capacity() == 0) return;
  Do("logits of ids without a token", [&] {
    return cuda::LaunchLogitMask(unnamed_.data(), static_cast<int32_t>(unnamed_.capacity()),
                                 static_cast<int32_t>(rows_), LogitsStride(), logits_.data(), stream_);
  });
}

void CudaOps::StoreKv(int64_t layer, const std::optional<QkNorm>& norm) {
  cuda::RopeStoreArgs args = {.qkv = current_qkv_,
                              .rows = static_cast<int32_t>(rows_),
                              .heads = static_cast<int32_t>(config_.heads),
                              .positions = upload_.lists().positions.data(),
                              .slots = upload_.lists().slots.data(),
                              .rope = rope_.data(),
                              .epsilon = static_cast<float>(config_.rms_eps),
                              .kv = Kv(layer)};
  if (norm.has_value()) {
    args.q_norm = At(norm->q).values.data();
    args.k_norm = At(norm->k).values.data();
  }
  Do("rotary embedding", [&] { return kv_kernels_.rope_store(args, stream_); });
}

void CudaOps::Attend(int64_t layer) {
  const cuda::AttentionArgs args = {.q = current_qkv_,
                                    .q_stride = QkvColumns(),
                                    .heads = static_cast<int32_t>(config_.heads),
                                    .kv = Kv(layer),
                                    .block_tables = upload_.lists().block_tables.data(),
                                    .out = attended_.data()};
  Do("attention", [&] { return (only_kept_ ? kept_attention_ : attention_).Run(args, stream_); });
}

void CudaOps::KeepLogitRows() {
  const auto kept = static_cast<int32_t>(upload_.kept());
  const int32_t* kept_rows = upload_.lists().kept_rows.data();
  Do("hidden rows that want logits", [&] {
    return cuda::LaunchGatherRows(hidden_.data(), kept_rows, kept, static_cast<int32_t>(config_.hidden),
                                  kept_hidden_.data(), stream_);
  });
  Do("q of rows that want logits", [&] {
    return cuda::LaunchGatherRows(qkv_.data(), kept_rows, kept, static_cast<int32_t>(QkvColumns()), kept_qkv_.data(),
                                  stream_);
  });
  only_kept_ = true;
  rows_ = kept;
  current_hidden_ = kept_hidden_.data();
  current_qkv_ = kept_qkv_.data();
}

void CudaOps::ComputeLogits(WeightId norm, WeightId head) {
  Normalise(norm);
  float* logits = InGroup() ? part_logits_.data() : logits_.data();
  Multiply(At(head), normalised_.data(), logits, /*fp32_output=*/true, /*add=*/false, PartStride());
  JoinLogits();
  MaskUnnamed();
}

absl::StatusOr<LogitsView> CudaOps::Logits(WeightId norm, WeightId head) {
  ComputeLogits(norm, head);
  RETURN_IF_ERROR(Choose());
  return output_.Fetch(output_.choice());
}

absl::Status CudaOps::Choose() {
  if (status_.ok()) status_ = output_.Send(logits_.data(), LogitsStride(), stream_);
  return status_;
}

CapturedStep CudaOps::Describe() const {
  CapturedStep captured;
  captured.sizes.push_back(rows_);
  attention_.Describe(captured.sizes, captured.addresses);
  const BatchLists& lists = upload_.lists();
  captured.addresses.insert(captured.addresses.end(),
                            {lists.tokens.data(), lists.positions.data(), lists.block_tables.data(), lists.slots.data(),
                             hidden_.data(), logits_.data(), qkv_.data(), normalised_.data(), attended_.data(),
                             gate_up_.data(), static_cast<const void*>(gated_.data())});
  return captured;
}

}  // namespace baton
