#include "backend/cuda/cuda_backend.h"

#include <cuda.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backend/check_batch.h"
#include "backend/cuda/cublas_lt.h"
#include "backend/cuda/cuda_matmul.h"
#include "backend/cuda/cuda_memory.h"
#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/decode_steps.h"
#include "backend/cuda/projection_tuner.h"
#include "base/check.h"
#include "base/logging.h"
#include "base/status.h"
#include "model/forward.h"

namespace baton {
namespace {

struct DestroyStream {
  void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
};

// The kernels use tensor-core instructions that Ampere introduced.
constexpr int kLeastCapability = 80;

absl::StatusOr<cudaDeviceProp> Properties(int device) {
  cudaDeviceProp properties;
  RETURN_IF_ERROR(CudaStatus(cudaGetDeviceProperties(&properties, device), absl::StrCat("device ", device)));
  return properties;
}

// The largest step with padding: decode steps are padded, and the projections' kernels are chosen
// for up to this number of rows.
StepLimits Padded(const StepLimits& step) {
  constexpr int64_t kLeastRows = 512;
  const int64_t logits = step.logits > 0 ? DecodeGraphs::RowsFor(step.logits) : 0;
  return {CudaMatmul::RowsPlannedFor(std::max({step.tokens, logits, kLeastRows})), logits};
}

class CudaBackend final : public Backend {
 public:
  static absl::StatusOr<std::unique_ptr<Backend>> Make(const Weights& weights, const CudaBackendOptions& options) {
    std::unique_ptr<CudaBackend> backend(new CudaBackend(weights.config, options));
    RETURN_IF_ERROR(backend->Start(weights, options));
    return backend;
  }

  ~CudaBackend() override {
    if (HasStarted()) cudaStreamSynchronize(stream_.get());
  }

  const KvLayout& kv_layout() const override { return layout_; }
  Slab kv_slab() override { return options_.slab; }
  std::string numerics_id() const override { return numerics_id_; }

  absl::StatusOr<LogitsView> Forward(const Batch& batch, absl::FunctionRef<bool(int64_t layer)> layer_done,
                                     const Meanwhile& meanwhile) override {
    BATON_CHECK(batch.started == HasStarted(), "a pass must continue the step that is enqueued ahead");
    if (!batch.started) Check(batch);
    if (const absl::Status used = CudaStatus(cudaSetDevice(options_.device), "device"); !used.ok()) {
      CheckDeviceAlive(used);
      decode_steps_->DropStarted();
      return used;
    }
    const bool decode = batch.started || IsDecode(batch);
    if (!decode) meanwhile.work();
    absl::StatusOr<LogitsView> logits = decode ? Decode(batch, meanwhile) : ForwardByLayer(batch, layer_done);
    if (!HasStarted()) {
      // The caller may now change the batch that the pass read, so this also waits after a pass
      // that ended early.
      const absl::Status ended = Synchronise();
      RETURN_IF_ERROR(logits.status());
      RETURN_IF_ERROR(ended);
      if (!decode) RETURN_IF_ERROR(ops_->status());
    }
    if (decode && !layer_done(config_.layers - 1)) {
      decode_steps_->DropStarted();
      RETURN_IF_ERROR(Synchronise());
      return absl::AbortedError("the caller stopped the pass after the last layer");
    }
    return logits;
  }

 private:
  static constexpr int64_t kLayersAhead = 4;

  void Check(const Batch& batch) const {
    CheckBatch(batch, config_, static_cast<int64_t>(options_.slab.size()) / layout_.BlockBytes());
  }

  CudaBackend(const ModelConfig& config, const CudaBackendOptions& options)
      : config_(config), options_(options), layout_(CudaKvLayout(config)) {}

  absl::Status Start(const Weights& weights, const CudaBackendOptions& options) {
    RETURN_IF_ERROR(CheckCudaDevice(options.device));
    RETURN_IF_ERROR(CudaStatus(cudaSetDevice(options.device), absl::StrCat("device ", options.device)));
    ASSIGN_OR_RETURN(const cudaDeviceProp device, Properties(options.device));
    const int capability = 10 * device.major + device.minor;
    cudaStream_t stream = nullptr;
    RETURN_IF_ERROR(CudaStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream"));
    stream_.reset(stream);
    if (options.communicator != nullptr) RETURN_IF_ERROR(options.communicator->Join(stream));
    for (CudaEvent& stored : stored_) {
      ASSIGN_OR_RETURN(stored, MakeEvent());
    }
    ASSIGN_OR_RETURN(matmul_, CudaMatmul::Create(options.same_bits));
    ASSIGN_OR_RETURN(ops_, CudaOps::Create(config_, {.same_bits = options.same_bits,
                                                     .capability = capability,
                                                     .layout = layout_,
                                                     .slab = {options.slab.data(), options.slab.size()},
                                                     .stream = stream,
                                                     .matmul = matmul_.get(),
                                                     .unnamed = options_.unnamed,
                                                     .communicator = options.communicator}));
    // cuBLASLt's suggestions depend on all of these. Devices of one generation differ in the number
    // of multiprocessors.
    numerics_id_ = absl::StrCat("cuda-sm", capability, "x", device.multiProcessorCount, "-cublas", matmul_->version(),
                                "-bf16", options.same_bits ? "-same-bits" : "-varying-bits");
    const StepLimits step = Padded(options.step);
    RETURN_IF_ERROR(ops_->ReserveActivations(step.tokens, step.logits));
    ASSIGN_OR_RETURN(model_, PackModel(weights, options.lm_head, *ops_));
    // The copies run on another stream than the steps.
    RETURN_IF_ERROR(CudaStatus(cudaDeviceSynchronize(), "copying weights"));
    const auto begin = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(ProjectionTuner(*matmul_, stream).Tune(ops_->Projections(model_, step)));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    spdlog::info("{}: chose kernels for projections in {:.1f} s", device.name, took.count());
    // Outside of a group, decode steps are captured and may be enqueued ahead.
    decode_steps_ = std::make_unique<DecodeSteps>(*ops_, model_, options.communicator == nullptr, stream);
    return absl::OkStatus();
  }

  bool HasStarted() const { return decode_steps_ != nullptr && decode_steps_->has_started(); }

  // Aborts the process if the device has failed. Errors of launched work are sticky in CUDA, so
  // only a restart helps. The supervisor restarts the process, and peers recompute.
  static void CheckDeviceAlive(const absl::Status& error) {
    BATON_CHECK(cudaDeviceSynchronize() == cudaSuccess, absl::StrCat("the device has failed: ", error.ToString()));
  }

  absl::Status Synchronise() {
    const absl::Status ended = CudaStatus(cudaStreamSynchronize(stream_.get()), "the forward pass");
    if (!ended.ok()) CheckDeviceAlive(ended);
    return ended;
  }

  // A decode step has one new token for each sequence, and each wants logits. Its K/V is not pushed
  // while it computes.
  static bool IsDecode(const Batch& batch) {
    for (const SequenceSlice& slice : batch.slices) {
      if (slice.tokens.size() != 1 || !slice.wants_logits) return false;
    }
    return true;
  }

  absl::StatusOr<LogitsView> Decode(const Batch& batch, const Meanwhile& meanwhile) {
    return decode_steps_->Run(batch, {meanwhile.work, [&] {
                                        const Batch* next = meanwhile.next();
                                        if (next != nullptr) Check(*next);
                                        return next;
                                      }});
  }

  // Runs a pass that reports its layers one by one. The host enqueues kLayersAhead layers before it
  // waits for the K/V of the first of them, so the device is never idle, even if layers are short.
  // Two layers were enough for Llama-3.1-8B with 16 tokens on an H200.
  absl::StatusOr<LogitsView> ForwardByLayer(const Batch& batch, absl::FunctionRef<bool(int64_t layer)> layer_done) {
    // After an error, `report` reports no layer. Forward finds the error at the end.
    const auto report = [&](int64_t layer) {
      return !ops_->status().ok() || cudaEventSynchronize(stored_[layer % kLayersAhead].get()) != cudaSuccess ||
             layer_done(layer);
    };
    absl::StatusOr<LogitsView> logits = baton::Forward(model_, batch, *ops_, [&](int64_t layer) {
      cudaEventRecord(stored_[layer % kLayersAhead].get(), stream_.get());
      return layer + 1 < kLayersAhead || report(layer + 1 - kLayersAhead);
    });
    if (!logits.ok()) return logits;
    for (int64_t layer = std::max<int64_t>(0, config_.layers + 1 - kLayersAhead); layer < config_.layers; ++layer) {
      if (!report(layer)) return absl::AbortedError(absl::StrCat("the caller stopped the pass after layer ", layer));
    }
    return logits;
  }

  const ModelConfig config_;
  const CudaBackendOptions options_;
  const KvLayout layout_;
  std::string numerics_id_;
  std::unique_ptr<CUstream_st, DestroyStream> stream_;
  // Recorded when the K/V of the latest layers is stored.
  CudaEvent stored_[kLayersAhead];
  std::unique_ptr<CudaMatmul> matmul_;
  std::unique_ptr<CudaOps> ops_;
  PackedModel model_;
  std::unique_ptr<DecodeSteps> decode_steps_;
};

// Returns true if this process already uses the device.
bool IsUsed(int device) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  if (cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &function, 12000, cudaEnableDefault, &found) !=
          cudaSuccess ||
      function == nullptr) {
    return true;
  }
  unsigned flags = 0;
  int active = 0;
  const auto get_state = reinterpret_cast<decltype(&cuDevicePrimaryCtxGetState)>(function);
  return get_state(device, &flags, &active) != CUDA_SUCCESS || active != 0;
}

absl::Status CheckSlab(const Slab& slab, const KvLayout& layout) {
  const int64_t most_blocks = std::numeric_limits<int32_t>::max() / kBlockTokens;
  const auto bytes = static_cast<int64_t>(slab.size()), blocks = bytes / layout.BlockBytes();
  if (slab.on_host() || bytes % layout.BlockBytes() != 0 || blocks < 1 || blocks > most_blocks) {
    return absl::InvalidArgumentError(absl::StrCat("CUDA backend: KV slab: expected 1 to ", most_blocks,
                                                   " whole blocks of ", layout.BlockBytes(), " bytes, got ", bytes,
                                                   " bytes", slab.on_host() ? " of host memory" : ""));
  }
  return absl::OkStatus();
}

}  // namespace

KvLayout CudaKvLayout(const ModelConfig& config) {
  return {.layers = config.layers,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .format = KvFormat::kBf16,
          .order = KvOrder::kRows};
}

absl::StatusOr<std::string> DescribeCudaDevice(int device) {
  ASSIGN_OR_RETURN(const cudaDeviceProp properties, Properties(device));
  return absl::StrCat(properties.name, ", ", properties.totalGlobalMem >> 20, " MiB, compute capability ",
                      properties.major, ".", properties.minor);
}

absl::Status CheckCudaDevice(int device) {
  ASSIGN_OR_RETURN(const cudaDeviceProp properties, Properties(device));
  if (10 * properties.major + properties.minor < kLeastCapability) {
    return absl::UnavailableError(absl::StrCat("CUDA device ", device, " (", properties.name,
                                               "): expected compute capability 8.0 or later, got ", properties.major,
                                               ".", properties.minor));
  }
  return LoadCublasLt().status();
}

absl::StatusOr<int64_t> FreeCudaBytes(int device) {
  RETURN_IF_ERROR(CudaStatus(cudaSetDevice(device), absl::StrCat("device ", device)));
  size_t free_bytes = 0, total_bytes = 0;
  RETURN_IF_ERROR(CudaStatus(cudaMemGetInfo(&free_bytes, &total_bytes), absl::StrCat("device ", device)));
  return static_cast<int64_t>(free_bytes);
}

// FreeCudaBytes creates a context, which takes device memory until cudaDeviceReset. If there are
// more devices than needed, each is therefore reset after the query, unless this process already
// uses it.
absl::StatusOr<std::vector<int>> EmptiestDevices(int count) {
  int devices = 0;
  const cudaError_t counted = cudaGetDeviceCount(&devices);
  if (counted != cudaSuccess || devices < count) {
    return absl::UnavailableError(absl::StrCat("CUDA: expected ", count, " device", count > 1 ? "s" : "", ", found ",
                                               devices, counted == cudaSuccess ? "" : ": ",
                                               counted == cudaSuccess ? "" : cudaGetErrorString(counted)));
  }
  std::vector<std::pair<int64_t, int>> by_memory;
  absl::Status unfit;
  for (int device = 0; device < devices; ++device) {
    if (const absl::Status fits = CheckCudaDevice(device); !fits.ok()) {
      unfit = fits;
      continue;
    }
    const bool used = IsUsed(device);
    const absl::StatusOr<int64_t> free_bytes = FreeCudaBytes(device);
    by_memory.emplace_back(free_bytes.ok() ? -*free_bytes : 0, device);
    if (free_bytes.ok() && devices > count && !used) cudaDeviceReset();
  }
  if (std::ssize(by_memory) < count) return unfit;
  std::sort(by_memory.begin(), by_memory.end());
  std::vector<int> emptiest;
  for (int i = 0; i < count; ++i) emptiest.push_back(by_memory[static_cast<size_t>(i)].second);
  std::sort(emptiest.begin(), emptiest.end());
  return emptiest;
}

int64_t ActivationBytes(const ModelConfig& part, const StepLimits& step) {
  const StepLimits padded = Padded(step);
  return CudaOps::ActivationBytes(part, padded.tokens, padded.logits);
}

absl::Status CheckCudaShape(const ModelConfig& config) {
  if (config.dtype != DType::kBF16) {
    return absl::InvalidArgumentError(
        "CUDA backend: expected bf16 weights, got fp32 ones: convert the checkpoint (tools/convert_weights)");
  }
  if (config.head_dim != 64 && config.head_dim != 128) {
    return absl::InvalidArgumentError(
        absl::StrCat("CUDA backend: head_dim: expected 64 or 128, got ", config.head_dim));
  }
  const std::pair<const char*, int64_t> sizes[] = {{"hidden size", config.hidden}, {"FFN size", config.ffn}};
  for (const auto& [name, value] : sizes) {
    if (value < 8 || value % 8 != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("CUDA backend: ", name, ": expected a multiple of 8, got ", value));
    }
  }
  constexpr int64_t kLargestGroup = 16;  // rows of a tensor core's tile
  if (config.kv_heads < 1 || config.heads % config.kv_heads != 0 || config.heads / config.kv_heads > kLargestGroup) {
    return absl::InvalidArgumentError(absl::StrCat("CUDA backend: expected 1 to ", kLargestGroup,
                                                   " heads for each KV head, got ", config.heads, " and ",
                                                   config.kv_heads));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const Weights& weights, const CudaBackendOptions& options) {
  RETURN_IF_ERROR(CheckCudaShape(weights.config));
  RETURN_IF_ERROR(CheckSlab(options.slab, CudaKvLayout(weights.config)));
  return CudaBackend::Make(weights, options);
}

}  // namespace baton
