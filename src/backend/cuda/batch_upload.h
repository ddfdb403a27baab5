// The lists that a step reads about its batch, gathered on the host and sent to the device with one
// copy.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "backend/cuda/cuda_attention.h"
#include "backend/cuda/cuda_sampling.h"
#include "backend/cuda/upload.h"
#include "model/batch.h"
#include "model/sample_spec.h"

namespace baton {

// The lists on the device. A row is a token of the batch. A kept row is a row that wants logits.
struct BatchLists {
  UploadedList<int32_t> tokens, positions;  // [rows]
  // [rows], slots of the KV slab (kernels/rope_store.h). -1 for padding.
  UploadedList<int64_t> slots;
  UploadedList<int32_t> block_tables;  // the slices' tables, concatenated
  // [rows], SequenceSlice::follows. Empty if no slice follows another slice.
  UploadedList<int32_t> follows;
  // [kept], indexes of the kept rows among all rows. Empty in a decode step.
  UploadedList<int32_t> kept_rows;
};

// Not thread-safe.
class BatchUpload {
 public:
  // Parts of a step that add their own lists to the upload. They must outlive the BatchUpload.
  struct Planners {
    CudaAttention* attention;       // of all rows
    CudaAttention* kept_attention;  // of the kept rows, not in a decode step
    CudaSampling* sampling;         // null: this rank has no logits
  };
  explicit BatchUpload(const Planners& planners) : planners_(planners) {}

  // Gathers the batch's lists, reserves the memory that the planners need, and enqueues the copy.
  //
  // If `decode_rows` > 0, the batch is a decode step, all of whose rows are kept. Padding fills it
  // up to `decode_rows` rows. Its lists then have the same addresses as those of any captured step
  // with equal sizes.
  //
  // REQUIRES: the stream has completed the upload before the last one.
  absl::Status Send(const Batch& batch, int64_t decode_rows, cudaStream_t stream);

  // The lists of the last Send.
  const BatchLists& lists() const { return lists_; }
  int64_t rows() const { return static_cast<int64_t>(host_.tokens.size()); }  // with padding
  int64_t kept() const { return std::ssize(host_.kept_rows); }                // without padding

 private:
  // The lists on the host.
  struct Host {
    std::vector<int32_t> tokens, positions;
    std::vector<int64_t> slots;
    std::vector<cuda::AttentionSlice> slices;  // of all rows
    std::vector<cuda::AttentionSlice> kept;    // the kept rows as slices
    std::vector<int32_t> kept_rows;
    std::vector<const SampleSpec*> specs;  // of the kept rows
    std::vector<int32_t> follows;

    // Keeps the memory for the next step.
    void Clear();
  };

  void Collect(const Batch& batch, int64_t decode_rows);
  absl::Status AddRows(const Batch& batch, int64_t decode_rows);
  absl::Status AddBlockTables(const Batch& batch);
  absl::Status AddKept(cudaStream_t stream);

  const Planners planners_;
  Host host_;
  UploadBuffer upload_;
  BatchLists lists_;
};

}  // namespace baton
