// Decode steps as CUDA graphs. A graph replaces some hundred launches by one.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace baton {

// The sizes and addresses on which the captured operations of a step depend.
struct CapturedStep {
  std::vector<int64_t> sizes;          // of launches
  std::vector<const void*> addresses;  // of memory that they read and write
};

// Captures steps and replays them. A graph is replayed only for a step with the sizes and the
// addresses of its capture. Not thread-safe.
class DecodeGraphs {
 public:
  // Returns the number of rows of a step of `sequences` sequences. The set of numbers is small, so
  // that steps share graphs. Up to 8 sequences, padding at most doubles the rows. It is at most 7
  // rows up to 64 sequences, and at most 15 rows above.
  static int64_t RowsFor(int64_t sequences);

  // Runs the work that `forward` enqueues on the stream. The first step of its kind calls
  // `forward`, so that libraries load and make their choices. The second step captures `forward`.
  // The second step and all later steps replay the graph. If the capture fails, they call
  // `forward`.
  absl::Status Run(const CapturedStep& step, absl::FunctionRef<absl::Status()> forward, cudaStream_t stream);

 private:
  struct Destroy {
    void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
  };
  struct Graph {
    // The number of the run that used it last.
    int64_t used = 0;
    bool refused = false;  // its capture failed
    // Addresses of its capture or first run.
    std::vector<const void*> addresses;
    // Null if it is not captured yet.
    std::unique_ptr<CUgraphExec_st, Destroy> replay = nullptr;
  };

  static absl::Status Capture(absl::FunctionRef<absl::Status()> forward, cudaStream_t stream, Graph& graph);

  // Removes the graph that was used least recently.
  void ForgetOne();

  int64_t runs_ = 0;
  std::map<std::vector<int64_t>, Graph> graphs_;  // by CapturedStep::sizes
};

}  // namespace baton
