#include "backend/cuda/decode_graphs.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "backend/cuda/cuda_status.h"
#include "base/logging.h"
#include "base/status.h"

namespace baton {
namespace {

// A graph of a large model takes some MB of host and device memory.
constexpr size_t kMostGraphs = 128;

int64_t RoundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace

int64_t DecodeGraphs::RowsFor(int64_t sequences) {
  if (sequences <= 8) return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(sequences)));
  return RoundUp(sequences, sequences <= 64 ? 8 : 16);
}

absl::Status DecodeGraphs::Run(const CapturedStep& step, absl::FunctionRef<absl::Status()> forward,
                               cudaStream_t stream) {
  const auto [entry, added] = graphs_.try_emplace(step.sizes);
  Graph& graph = entry->second;
  graph.used = ++runs_;
  if (graphs_.size() > kMostGraphs) ForgetOne();
  if (added || graph.addresses != step.addresses) {
    graph = {.used = runs_, .addresses = step.addresses};
    const absl::Status ran = forward();
    // Forgets the step, so that the next step of this kind does not capture a `forward` that fails.
    if (!ran.ok()) graphs_.erase(entry);
    return ran;
  }
  if (graph.replay == nullptr && !graph.refused) {
    const absl::Status captured = Capture(forward, stream, graph);
    graph.refused = !captured.ok();
    if (graph.refused)
      spdlog::warn("cannot capture a decode step as a CUDA graph, steps of this size run without one: {}",
                   captured.ToString());
  }
  if (graph.replay == nullptr) return forward();
  return CudaStatus(cudaGraphLaunch(graph.replay.get(), stream), "launching a decode step");
}

void DecodeGraphs::ForgetOne() {
  graphs_.erase(std::min_element(graphs_.begin(), graphs_.end(),
                                 [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
}

absl::Status DecodeGraphs::Capture(absl::FunctionRef<absl::Status()> forward, cudaStream_t stream, Graph& graph) {
  RETURN_IF_ERROR(CudaStatus(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing a step"));
  const absl::Status enqueued = forward();
  cudaGraph_t captured = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream, &captured);
  cudaGraphExec_t replay = nullptr;
  const cudaError_t made = ended == cudaSuccess ? cudaGraphInstantiate(&replay, captured, 0) : ended;
  if (captured != nullptr) cudaGraphDestroy(captured);
  const absl::Status status = CudaStatus(made, "capturing a decode step");
  RETURN_IF_ERROR(enqueued);
  RETURN_IF_ERROR(status);
  graph.replay.reset(replay);
  return absl::OkStatus();
}

}  // namespace baton
