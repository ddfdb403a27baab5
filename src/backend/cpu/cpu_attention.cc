#include "backend/cpu/cpu_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

namespace baton {
namespace {

// Rows that share the loading of a tile. The number is large enough to hide the loading and small
// enough for the rows' state to stay in cache.
constexpr int64_t kTaskRows = 192;

// Shares per thread. The number is large enough to balance tasks of unequal length and small enough
// for most tasks to have a next task to prefetch.
constexpr int64_t kSharesPerThread = 8;

int64_t MostTokens(int64_t group) { return std::max(kBlockKeys, kTaskRows / group / kBlockKeys * kBlockKeys); }

}  // namespace

CpuAttention::CpuAttention(const ModelConfig& config, const KernelTable& kernels, ThreadPool& pool,
                           const KvLayout& layout)
    : kernels_(kernels),
      pool_(pool),
      layout_(layout),
      group_(config.heads / config.kv_heads),
      width_((config.head_dim + kLanes - 1) / kLanes * kLanes),
      most_tokens_(MostTokens(group_)),
      worker_memory_(pool.threads()) {
  static_assert(kBlockKeys == kBlockTokens);
  const int64_t rows = most_tokens_ * group_;
  const int64_t scratch = AttentionScratchBytes(rows, config.head_dim) / static_cast<int64_t>(sizeof(float));
  for (Buffer<float>& memory : worker_memory_) memory.Reserve(scratch + 2 * StateFloats(rows));
}

int64_t CpuAttention::StateFloats(int64_t rows) const {
  return rows * (width_ + 16) + (rows + 15) / 16 * 16;  // a multiple of a cache line
}

AttentionState CpuAttention::StateAt(float* memory, int64_t rows) const {
  float* sums = memory + rows * width_;
  return {.max = sums + rows * 16, .sums = sums, .values = memory};
}

void CpuAttention::Plan(std::span<const AttentionSlice> slices) {
  slices_.assign(slices.begin(), slices.end());
  tasks_.clear();
  splits_.clear();
  for (size_t i = 0; i < slices_.size(); ++i) {
    const AttentionSlice& slice = slices_[i];
    for (int64_t token = 0; token < slice.rows;) {
      const int64_t to_boundary = most_tokens_ - (slice.first_position + token) % most_tokens_;
      const int64_t tokens = std::min(to_boundary, slice.rows - token);
      PlanRows(static_cast<int64_t>(i), token, tokens);
      token += tokens;
    }
  }
  const auto work = [&](const Task& task) {
    const int64_t past_last = slices_[task.slice].first_position + task.first_token + task.tokens;
    return task.tokens *
           (std::min(past_last, task.span_end * kAttentionSpanKeys) - task.span_begin * kAttentionSpanKeys);
  };
  std::stable_sort(tasks_.begin(), tasks_.end(), [&](const Task& a, const Task& b) { return work(a) > work(b); });

  int64_t floats = 0;
  unfinished_ = std::vector<std::atomic<int64_t>>(splits_.size());
  for (size_t i = 0; i < splits_.size(); ++i) {
    splits_[i].first_float = floats;
    floats += splits_[i].spans * StateFloats(splits_[i].rows);
    unfinished_[i].store(splits_[i].spans, std::memory_order_relaxed);
  }
  split_memory_.Reserve(floats);
}

void CpuAttention::PlanRows(int64_t slice, int64_t first_token, int64_t tokens) {
  const int64_t last_position = slices_[slice].first_position + first_token + tokens - 1;
  const int64_t spans = last_position / kAttentionSpanKeys + 1;
  const bool split = spans > 1 && pool_.threads() > 1 && tokens == slices_[slice].rows;
  for (int64_t kv_head = 0; kv_head < layout_.kv_heads; ++kv_head) {
    Task task{.slice = slice, .kv_head = kv_head, .first_token = first_token, .tokens = tokens, .span_end = spans};
    if (!split) {
      tasks_.push_back(task);
      continue;
    }
    task.split = static_cast<int64_t>(splits_.size());
    splits_.push_back({.spans = spans, .rows = tokens * group_});
    for (int64_t span = 0; span < spans; ++span) {
      task.span_begin = span;
      task.span_end = span + 1;
      tasks_.push_back(task);
    }
  }
}

void CpuAttention::Run(int64_t layer, const float* q, int64_t q_stride, std::byte* out, bool out_is_bf16) {
  const Output output{q, q_stride, out, out_is_bf16};
  const int64_t tasks = static_cast<int64_t>(tasks_.size());
  const int64_t grain = std::max<int64_t>(1, tasks / (pool_.threads() * kSharesPerThread));
  pool_.ParallelFor(tasks, grain, [&](Share share) {
    for (int64_t i = share.begin; i < share.end; ++i) {
      AttentionArgs args = ArgsOf(tasks_[i], layer, output, share.worker);
      if (i + 1 < share.end) {
        args.next = KvOf(tasks_[i + 1], layer);
        args.next_span = tasks_[i + 1].span_begin;
      }
      RunTask(tasks_[i], args, output, share.worker);
    }
  });
}

KvHead CpuAttention::KvOf(const Task& task, int64_t layer) const {
  const AttentionSlice& slice = slices_[task.slice];
  return {.blocks = slice.blocks,
          .k_offset = layout_.KOffset(layer, task.kv_head),
          .v_offset = layout_.VOffset(layer, task.kv_head),
          .written = slice.first_position + slice.rows};
}

AttentionArgs CpuAttention::ArgsOf(const Task& task, int64_t layer, const Output& output, int worker) const {
  const AttentionSlice& slice = slices_[task.slice];
  const int64_t row = slice.first_row + task.first_token;
  AttentionArgs args;
  args.q = output.q + row * output.q_stride + task.kv_head * group_ * layout_.head_dim;
  args.q_stride = output.q_stride;
  args.tokens = task.tokens;
  args.group = group_;
  args.head_dim = layout_.head_dim;
  args.scale = static_cast<float>(std::numbers::log2e / std::sqrt(static_cast<double>(layout_.head_dim)));
  args.first_position = slice.first_position + task.first_token;
  args.kv = KvOf(task, layer);
  args.scratch = reinterpret_cast<std::byte*>(worker_memory_[worker].data());
  return args;
}

void CpuAttention::RunTask(const Task& task, const AttentionArgs& args, const Output& output, int worker) {
  if (task.split >= 0) {
    AttendOneSpan(task, args, output);
  } else {
    const int64_t scratch = AttentionScratchBytes(most_tokens_ * group_, layout_.head_dim);
    AttendSpans(task, args, output, worker_memory_[worker].data() + scratch / static_cast<int64_t>(sizeof(float)));
  }
}

// `memory` has space for two states.
void CpuAttention::AttendSpans(const Task& task, AttentionArgs args, const Output& output, float* memory) {
  const auto attend = kernels_.Kv(layout_.format).attend;
  const int64_t rows = task.tokens * group_;
  const AttentionState total = StateAt(memory, rows);
  for (int64_t span = task.span_begin; span < task.span_end; ++span) {
    args.span = span;
    args.state = span == task.span_begin ? total : StateAt(memory + StateFloats(rows), rows);
    attend(args);
    if (span > task.span_begin) kernels_.merge_attention(total, args.state, rows, width_);
  }
  Finish(task, total, output);
}

void CpuAttention::AttendOneSpan(const Task& task, AttentionArgs args, const Output& output) {
  const auto attend = kernels_.Kv(layout_.format).attend;
  const Split& split = splits_[task.split];
  const auto state = [&](int64_t span) {
    return StateAt(split_memory_.data() + split.first_float + span * StateFloats(split.rows), split.rows);
  };
  args.span = task.span_begin;
  args.state = state(task.span_begin);
  attend(args);
  if (unfinished_[task.split].fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  unfinished_[task.split].store(split.spans, std::memory_order_relaxed);  // for the next layer
  for (int64_t span = 1; span < split.spans; ++span) {
    kernels_.merge_attention(state(0), state(span), split.rows, width_);
  }
  Finish(task, state(0), output);
}

void CpuAttention::Finish(const Task& task, const AttentionState& state, const Output& output) const {
  const int64_t rows = task.tokens * group_;
  const int64_t head_dim = layout_.head_dim;
  kernels_.finish_attention(state, rows, width_);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t token = slices_[task.slice].first_row + task.first_token + row / group_;
    const int64_t head = task.kv_head * group_ + row % group_;
    const int64_t at = (token * layout_.kv_heads * group_ + head) * head_dim;  // in elements
    const float* values = state.values + row * width_;
    if (output.bf16) {
      kernels_.round_to_bf16(values, head_dim, reinterpret_cast<Bf16*>(output.out) + at);
    } else {
      std::memcpy(reinterpret_cast<float*>(output.out) + at, values, head_dim * sizeof(float));
    }
  }
}

}  // namespace baton
