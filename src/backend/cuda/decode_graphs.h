// Decode steps as CUDA graphs: some hundred launches become one.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace baton {

// What the captured operations of a step depend on.
struct CapturedStep {
  std::vector<int64_t> sizes;          // of launches
  std::vector<const void*> addresses;  // of memory that they read and write
};

// A graph is replayed only for a step with the sizes and the addresses that it was captured with.
class DecodeGraphs {
 public:
  // The rows of a step of `sequences` sequences. Few numbers of rows let steps share graphs.
  // Padding is at most as many rows again up to 8, 7 rows up to 64, and 15 rows above.
  static int64_t RowsFor(int64_t sequences);

  // Runs what `forward` enqueues on the stream. The first step of its kind runs `forward` itself,
  // so that libraries load and choose what they need. The second step captures `forward`; it and
  // later ones are replayed as a graph, unless the capture fails.
  absl::Status Run(const CapturedStep& step, absl::FunctionRef<absl::Status()> forward, cudaStream_t stream);

 private:
  struct Destroy {
    void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
  };
  struct Graph {
    int64_t used = 0;                                           // the run that used it last
    bool refused = false;                                       // its capture failed
    std::vector<const void*> addresses;                         // of its capture or first run
    std::unique_ptr<CUgraphExec_st, Destroy> replay = nullptr;  // null: not captured yet
  };

  static absl::Status Capture(absl::FunctionRef<absl::Status()> forward, cudaStream_t stream, Graph& graph);

  void ForgetOne();

  int64_t runs_ = 0;
  std::map<std::vector<int64_t>, Graph> graphs_;  // by CapturedStep::sizes
};

}  // namespace baton
