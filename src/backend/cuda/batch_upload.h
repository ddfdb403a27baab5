// The lists that a step reads of its batch, gathered on the host and sent to the device by one
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

// Lists on the device. A row is a token of the batch; a kept row wants logits.
struct BatchLists {
  UploadedList<int32_t> tokens, positions;  // [rows]
  UploadedList<int64_t> slots;              // [rows], kernels/rope_store.h; -1: padding
  UploadedList<int32_t> block_tables;       // the slices' tables, one after another
  UploadedList<int32_t> follows;            // [rows], SequenceSlice::follows; empty: no row follows
  UploadedList<int32_t> kept_rows;          // [kept], places among all rows; empty in a decode step
};

class BatchUpload {
 public:
  // Parts of a step that add lists of their own to the upload. They must outlive the BatchUpload.
  struct Planners {
    CudaAttention* attention;       // of all rows
    CudaAttention* kept_attention;  // of the kept rows; not of a decode step
    CudaSampling* sampling;         // null: this rank has no logits
  };
  explicit BatchUpload(const Planners& planners) : planners_(planners) {}

  // Gathers the batch's lists, reserves what the planners need, and enqueues the copy.
  //
  // With `decode_rows` > 0 the batch is a decode step, all of whose rows are kept. Padding fills
  // its rows up to `decode_rows`, and its lists lie where those of a captured step of equal sizes
  // lie. REQUIRES: the stream has passed the upload before the last one.
  absl::Status Send(const Batch& batch, int64_t decode_rows, cudaStream_t stream);

  // Of the last Send.
  const BatchLists& lists() const { return lists_; }
  int64_t rows() const { return static_cast<int64_t>(host_.tokens.size()); }  // with padding
  int64_t kept() const { return static_cast<int64_t>(host_.kept.size()); }    // without padding

 private:
  // The lists on the host.
  struct Host {
    std::vector<int32_t> tokens, positions;
    std::vector<int64_t> slots;
    std::vector<cuda::AttentionSlice> slices;  // of all rows
    std::vector<cuda::AttentionSlice> kept;    // of the kept rows, each alone
    std::vector<int32_t> kept_rows;
    std::vector<const SampleSpec*> specs;  // of the kept rows
    std::vector<int32_t> follows;

    void Clear();  // keeps the memory, because every step comes by here
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
