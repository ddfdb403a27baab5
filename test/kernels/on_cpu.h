// What the CPU backend makes of a kernel's inputs: by its own parts, with its portable kernels. These are the same on
// every machine and compute in fp32 all along (those for AVX-512 BF16 round queries and softmax weights), so that the
// bounds for float64 hold for them too; cpu_test compares the others.
//
// Arguments are those of the launchers, in memory of the host.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/gemv.h"
#include "kernels/paged_kv.h"
#include "kernels/rope_store.h"

namespace baton::cuda {

// [tokens, columns]
std::vector<double> EmbedOnCpu(const std::vector<Bf16>& table, const std::vector<int32_t>& tokens, int64_t columns);
std::vector<double> NormaliseOnCpu(const std::vector<float>& x, const std::vector<Bf16>& weight, double epsilon);
// [rows, columns] of gates and ups, [rows, 2 columns].
std::vector<double> SwiGluOnCpu(const std::vector<Bf16>& gate_up, int64_t rows);

// As LaunchGemv, of any number of rows. y is fp32 whatever `fp32_output` says; a bias goes without `swiglu`.
void ProjectOnCpu(const GemvArgs& args);

struct TurnedRows {
  std::vector<double> q;     // [rows, heads, head_dim]
  std::vector<double> k, v;  // [rows, kv_heads, head_dim], as they are stored
};
TurnedRows TurnOnCpu(const RopeStoreArgs& args);

// [rows, heads, head_dim] of all slices' rows.
std::vector<double> AttendOnCpu(const AttentionArgs& args, int64_t slices);

// The sum of all ranks' parts.
std::vector<double> SumOnCpu(const std::vector<std::vector<float>>& parts);

}  // namespace baton::cuda
