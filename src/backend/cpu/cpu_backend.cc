#include "backend/cpu/cpu_backend.h"

#include <limits>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backend/check_batch.h"
#include "backend/cpu/buffer.h"
#include "backend/cpu/cpu_features.h"
#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/thread_pool.h"
#include "base/status.h"
#include "model/forward.h"

namespace baton {
namespace {

// Upper bound on the option `threads`. A larger number is regarded as a mistake.
constexpr int kMostThreads = 1024;

class CpuBackend final : public Backend {
 public:
  CpuBackend(const ModelConfig& config, const KernelTable& kernels, const CpuBackendOptions& options)
      : config_(config),
        layout_(CpuKvLayout(config)),
        numerics_id_(absl::StrCat("cpu-", kernels.name, config.dtype == DType::kBF16 ? "-bf16" : "-f32")),
        slab_(options.slab),
        pool_(options.threads),
        ops_(config, kernels, pool_, layout_, SlabOrOwn(options.kv_blocks), options.communicator) {
    ops_.Mask(options.unnamed);
  }

  absl::Status Pack(const Weights& weights, bool lm_head) {
    ASSIGN_OR_RETURN(model_, PackModel(weights, lm_head, ops_));
    return absl::OkStatus();
  }

  const KvLayout& kv_layout() const override { return layout_; }
  Slab kv_slab() override { return slab_; }
  std::string numerics_id() const override { return numerics_id_; }

  absl::StatusOr<LogitsView> Forward(const Batch& batch, absl::FunctionRef<bool(int64_t layer)> layer_done,
                                     const Meanwhile& meanwhile) override {
    CheckBatch(batch, config_, static_cast<int64_t>(slab_.size()) / layout_.BlockBytes());
    meanwhile.work();
    try {
      return baton::Forward(model_, batch, ops_, layer_done);
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError("CPU backend: out of memory for a batch's activations");
    }
  }

 private:
  std::span<std::byte> SlabOrOwn(int64_t blocks) {
    if (slab_.empty()) {
      const size_t bytes = static_cast<size_t>(blocks * layout_.BlockBytes());
      slab_ = {own_slab_.Reserve(bytes), bytes};
    }
    return slab_;
  }

  const ModelConfig config_;
  const KvLayout layout_;
  const std::string numerics_id_;
  Buffer<std::byte> own_slab_;
  std::span<std::byte> slab_;
  ThreadPool pool_;
  CpuOps ops_;
  PackedModel model_;
};

absl::Status CheckOptions(const CpuBackendOptions& options, const KvLayout& layout) {
  if (options.threads < 1 || options.threads > kMostThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("CPU backend: threads: expected 1 to ", kMostThreads, ", got ", options.threads));
  }
  const int64_t block_bytes = layout.BlockBytes();
  const int64_t most_blocks = std::numeric_limits<int64_t>::max() / block_bytes;
  if (options.slab.empty() && (options.kv_blocks < 1 || options.kv_blocks > most_blocks)) {
    return absl::InvalidArgumentError(
        absl::StrCat("CPU backend: KV blocks: expected 1 to ", most_blocks, ", got ", options.kv_blocks));
  }
  if (options.slab.size() % block_bytes != 0) {
    return absl::InvalidArgumentError(absl::StrCat("CPU backend: KV slab: expected a multiple of ", block_bytes,
                                                   " bytes, got ", options.slab.size()));
  }
  return absl::OkStatus();
}

// The kernels multiply pairs of bf16 and rotate pairs of elements, so they need even dimensions.
absl::Status CheckShape(const ModelConfig& config) {
  const std::pair<const char*, int64_t> even[] = {
      {"head_dim", config.head_dim}, {"hidden size", config.hidden}, {"FFN size", config.ffn}};
  for (const auto& [name, value] : even) {
    if (value < 2 || value % 2 != 0) {
      return absl::InvalidArgumentError(absl::StrCat("CPU backend: ", name, ": expected an even number, got ", value));
    }
  }
  if (config.kv_heads < 1 || config.heads % config.kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat("CPU backend: expected heads to be a multiple of KV heads, got ",
                                                   config.heads, " and ", config.kv_heads));
  }
  return absl::OkStatus();
}

}  // namespace

KvLayout CpuKvLayout(const ModelConfig& config) {
  return {.layers = config.layers,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .format = config.dtype == DType::kF32 ? KvFormat::kF32 : KvFormat::kBf16};
}

absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const Weights& weights, const CpuBackendOptions& options) {
  RETURN_IF_ERROR(CheckShape(weights.config));
  RETURN_IF_ERROR(CheckOptions(options, CpuKvLayout(weights.config)));
  const KernelTable* kernels = &SelectKernels();
  if (!options.kernels.empty()) {
    ASSIGN_OR_RETURN(kernels, KernelsNamed(options.kernels));
  }
  try {
    auto backend = std::make_unique<CpuBackend>(weights.config, *kernels, options);
    RETURN_IF_ERROR(backend->Pack(weights, options.lm_head));
    return backend;
  } catch (const std::bad_alloc&) {
    // With a slab, the memory of KV blocks is already there.
    const int64_t kv_bytes = options.slab.empty() ? options.kv_blocks * CpuKvLayout(weights.config).BlockBytes() : 0;
    return absl::ResourceExhaustedError(
        absl::StrCat("CPU backend: out of memory for the packed weights",
                     kv_bytes > 0 ? absl::StrCat(" and ", kv_bytes, " bytes of KV") : ""));
  }
}

}  // namespace baton
