// Decode steps as CUDA graphs: some hundred launches become one.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "backend/cuda/cuda_ops.h"

namespace baton {

class DecodeGraphs {
 public:
  // How many rows a step of so many sequences has, so that steps share graphs. The rest is padding: at most as many
  // rows again up to 8, then 7, above 64 15.
  static int64_t RowsFor(int64_t sequences);

  // Runs what `forward` enqueues on the stream: itself the first time that a step looks like this, so that whatever is
  // chosen or loaded once is; as a graph from then on, where one can be made.
  absl::Status Run(const CudaOps::Captured& step, absl::FunctionRef<absl::Status()> forward, cudaStream_t stream);

 private:
  struct Destroy {
    void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
  };
  struct Graph {
    int64_t used = 0;                                           // the run that used it last
    bool refused = false;                                       // capturing it failed
    std::vector<const void*> addresses;                         // that it was captured, or first run, with
    std::unique_ptr<CUgraphExec_st, Destroy> replay = nullptr;  // null: not captured yet
  };

  static absl::Status Capture(absl::FunctionRef<absl::Status()> forward, cudaStream_t stream, Graph& graph);

  void ForgetOne();

  int64_t runs_ = 0;
  std::map<std::vector<int64_t>, Graph> graphs_;  // by the sizes of their launches
};

}  // namespace baton
