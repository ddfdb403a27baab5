// Splits a batch's attention over threads.
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

// Some adjacent rows of a batch, of one sequence.
struct AttentionSlice {
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t first_position = 0;                // of first_row; positions [0, first_position + rows) are written
  const std::byte* const* blocks = nullptr;  // blocks[p / 16] holds position p
};

class CpuAttention {
 public:
  CpuAttention(const ModelConfig& config, const KernelTable& kernels, ThreadPool& pool, const KvLayout& layout);

  // Cuts the slices into tasks; once per batch, for all layers. The slices' blocks must live until the last Run.
  void Plan(std::span<const AttentionSlice> slices);

  // q: [rows, q_stride], the query heads first in each row. out: [rows, heads * head_dim], Bf16 or float.
  void Run(int64_t layer, const float* q, int64_t q_stride, std::byte* out, bool out_is_bf16);

 private:
  // Rows of one slice and kv head that one thread attends at a time, over some spans of their history.
  struct Task {
    int64_t slice = 0;
    int64_t kv_head = 0;
    int64_t first_token = 0;  // within the slice
    int64_t tokens = 0;
    int64_t span_begin = 0;
    int64_t span_end = 0;
    int64_t split = -1;  // index of the Split that this task is one span of; -1: it has all spans
  };
  // A history long enough for several threads: one task per span, and whoever ends last merges them in order.
  struct Split {
    int64_t spans = 0;
    int64_t rows = 0;
    int64_t first_float = 0;  // of its states, one per span, in split_memory_
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
  const int64_t group_;        // query heads per kv head
  const int64_t width_;        // head_dim rounded up to 16
  const int64_t most_tokens_;  // of a task

  std::vector<AttentionSlice> slices_;
  std::vector<Task> tasks_;  // longest first
  std::vector<Split> splits_;
  std::vector<std::atomic<int64_t>> unfinished_;  // [splits], their tasks that are not done
  Buffer<float> split_memory_;
  std::vector<Buffer<float>> worker_memory_;  // [threads]: the kernel's scratch, then two states
};

}  // namespace baton
