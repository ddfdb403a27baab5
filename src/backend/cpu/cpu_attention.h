// The attention of a batch, split over threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/buffer.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/thread_pool.h"
#include "kv/block_layout.h"
#include "model/config.h"

namespace baton {

// Adjacent rows of a batch that belong to one sequence.
struct AttentionSlice {
  int64_t first_row = 0;
  int64_t rows = 0;
  // Position of first_row. Positions [0, first_position + rows) are written.
  int64_t first_position = 0;
  // blocks[p / 16] holds position p.
  const std::byte* const* blocks = nullptr;
};

// Not thread-safe.
class CpuAttention {
 public:
  CpuAttention(const ModelConfig& config, const KernelTable& kernels, ThreadPool& pool, const KvLayout& layout);

  // Cuts the slices into tasks, once per batch for all layers. The block tables must live until the
  // last Run.
  void Plan(std::span<const AttentionSlice> slices);

  // Runs the planned attention for one layer. `q` is [rows, q_stride] and has the query heads at
  // the start of each row. `out` is [rows, heads * head_dim], Bf16 or float.
  void Run(int64_t layer, const float* q, int64_t q_stride, std::byte* out, bool out_is_bf16);

 private:
  // Rows of one slice and KV head that one thread attends at a time, over some spans of their
  // history.
  struct Task {
    int64_t slice = 0;
    int64_t kv_head = 0;
    int64_t first_token = 0;  // within the slice
    int64_t tokens = 0;
    int64_t span_begin = 0;
    int64_t span_end = 0;
    // Index of the Split of which this task computes one span. -1 if the task computes all spans.
    int64_t split = -1;
  };
  // A history that is long enough for several threads. Each span is one task. The task that ends
  // last merges all spans in order.
  struct Split {
    int64_t spans = 0;
    int64_t rows = 0;
    // Index in split_memory_ of the split's states, one state per span.
    int64_t first_float = 0;
  };
  struct Output {
    const float* q;
    int64_t q_stride;
    std::byte* out;
    bool bf16;
  };

  void PlanRows(int64_t slice, int64_t first_token, int64_t tokens);
  KvHead KvOf(const Task& task, int64_t layer) const;
  void RunTask(const Task& task, const AttentionArgs& args, const Output& output, int worker);
  AttentionArgs ArgsOf(const Task& task, int64_t layer, const Output& output, int worker) const;
  void AttendSpans(const Task& task, AttentionArgs args, const Output& output, float* memory);
  void AttendOneSpan(const Task& task, AttentionArgs args, const Output& output);
  void Finish(const Task& task, const AttentionState& state, const Output& output) const;
  int64_t StateFloats(int64_t rows) const;
  AttentionState StateAt(float* memory, int64_t rows) const;

  const KernelTable& kernels_;
  ThreadPool& pool_;
  const KvLayout layout_;
  const int64_t group_;        // query heads per KV head
  const int64_t width_;        // head_dim rounded up to 16
  const int64_t most_tokens_;  // upper bound for a task

  std::vector<AttentionSlice> slices_;
  std::vector<Task> tasks_;  // longest first
  std::vector<Split> splits_;
  // [splits], the number of tasks of each split that have not ended.
  std::vector<std::atomic<int64_t>> unfinished_;
  Buffer<float> split_memory_;
  // [threads], the kernel's scratch memory and then two states.
  std::vector<Buffer<float>> worker_memory_;
};

}  // namespace baton
