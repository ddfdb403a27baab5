// The launchers of kernels that process rows or bytes one by one.
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "host_device/stream.h"
#include "kernels/block_copy.h"
#include "kernels/embedding.h"
#include "kernels/gemv.h"
#include "kernels/rank_sum.h"
#include "kernels/rms_norm.h"
#include "kernels/rope_store.h"
#include "kernels/swiglu.h"

namespace baton::cuda {
namespace {

using host_device::CheckOnDevice;
using host_device::Enqueue;

// Returns true if the kernels accept the shape. They process columns in vectors of 8.
bool Takes(int32_t rows, int32_t columns) { return rows >= 1 && columns % 8 == 0; }

float Wide(Bf16 value) { return __bfloat162float(value); }
Bf16 Narrow(float value) { return __float2bfloat16_rn(value); }

template <typename T>
cudaError_t Gather(const T* from, const int32_t* ids, int32_t rows, int32_t columns, T* to, cudaStream_t stream) {
  if (!Takes(rows, columns)) return cudaErrorInvalidValue;
  CheckOnDevice({from, ids, to});
  return Enqueue(stream, [=] {
    for (int64_t row = 0; row < rows; ++row) {
      std::memcpy(to + row * columns, from + int64_t{ids[row]} * columns, static_cast<size_t>(columns) * sizeof(T));
    }
  });
}

template <typename T>
float Scale(const T* x, int64_t columns, float epsilon) {
  double squares = 0;
  for (int64_t i = 0; i < columns; ++i) squares += double{static_cast<float>(x[i])} * double{static_cast<float>(x[i])};
  return static_cast<float>(1 / std::sqrt(squares / static_cast<double>(columns) + double{epsilon}));
}

float SiLu(float x) { return x / (1 + std::exp(-x)); }

// Applies the norm and the rotary embedding to one head of q or k.
void Turn(Bf16* head, const Bf16* norm, const float* rope, const RopeStoreArgs& args, Bf16* out) {
  const int32_t size = args.kv.head_dim, half = size / 2;
  const float scale = norm == nullptr ? 1 : Scale(head, size, args.epsilon);
  const auto at = [&](int32_t i) { return Wide(head[i]) * (norm == nullptr ? 1 : scale * Wide(norm[i])); };
  for (int32_t i = 0; i < half; ++i) {
    const float low = at(i), high = at(half + i), cosine = rope[i], sine = rope[half + i];
    out[i] = Narrow(low * cosine - high * sine);
    out[half + i] = Narrow(high * cosine + low * sine);
  }
}

void RopeStoreRow(const RopeStoreArgs& args, int64_t row) {
  const int32_t size = args.kv.head_dim, kv_heads = args.kv.kv_heads;
  Bf16* q = args.qkv + row * (args.heads + 2 * kv_heads) * size;
  Bf16* k = q + args.heads * size;
  const float* rope = args.rope + int64_t{args.positions[row]} * size;
  for (int32_t head = 0; head < args.heads; ++head) Turn(q + head * size, args.q_norm, rope, args, q + head * size);
  const int64_t slot = args.slots[row];
  if (slot < 0) return;
  const int64_t block = slot / kBlockTokens, token = slot % kBlockTokens;
  BATON_CHECK(block < args.kv.blocks, "a slot lies in the slab");
  for (int32_t head = 0; head < kv_heads; ++head) {
    Turn(k + head * size, args.k_norm, rope, args, args.kv.K<Bf16>(block, head) + token * size);
    std::memcpy(args.kv.V<Bf16>(block, head) + token * size, k + (kv_heads + head) * size,
                static_cast<size_t>(size) * sizeof(Bf16));
  }
}

float GemvAt(const GemvArgs& args, int64_t row, int64_t column) {
  double sum = args.bias == nullptr ? 0 : double{Wide(args.bias[column])};
  for (int64_t i = 0; i < args.k; ++i) {
    sum += double{Wide(args.x[row * args.k + i])} * double{Wide(args.w[column * args.k + i])};
  }
  return static_cast<float>(sum);
}

void GemvRow(const GemvArgs& args, int64_t row) {
  const int64_t half = args.n / 2;
  for (int64_t column = 0; column < (args.swiglu ? half : args.n); ++column) {
    const int64_t at = row * args.y_stride + column;
    const float sum =
        args.swiglu ? SiLu(GemvAt(args, row, column)) * GemvAt(args, row, half + column) : GemvAt(args, row, column);
    if (!args.fp32_output) {
      static_cast<Bf16*>(args.y)[at] = Narrow(sum);
    } else {
      float& y = static_cast<float*>(args.y)[at];
      y = args.add ? y + sum : sum;
    }
  }
}

}  // namespace

cudaError_t LaunchEmbedding(const Bf16* table, const int32_t* tokens, int32_t rows, int32_t columns, float* out,
                            cudaStream_t stream) {
  if (!Takes(rows, columns)) return cudaErrorInvalidValue;
  CheckOnDevice({table, tokens, out});
  return Enqueue(stream, [=] {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < columns; ++i) out[row * columns + i] = Wide(table[int64_t{tokens[row]} * columns + i]);
    }
  });
}

cudaError_t LaunchGatherRows(const float* from, const int32_t* ids, int32_t rows, int32_t columns, float* to,
                             cudaStream_t stream) {
  return Gather(from, ids, rows, columns, to, stream);
}
cudaError_t LaunchGatherRows(const Bf16* from, const int32_t* ids, int32_t rows, int32_t columns, Bf16* to,
                             cudaStream_t stream) {
  return Gather(from, ids, rows, columns, to, stream);
}

cudaError_t LaunchRmsNorm(const float* x, const Bf16* weight, float epsilon, int32_t rows, int32_t columns, Bf16* out,
                          cudaStream_t stream) {
  if (!Takes(rows, columns)) return cudaErrorInvalidValue;
  CheckOnDevice({x, weight, out});
  return Enqueue(stream, [=] {
    for (int64_t row = 0; row < rows; ++row) {
      const float* from = x + row * columns;
      const float scale = Scale(from, columns, epsilon);
      for (int64_t i = 0; i < columns; ++i) out[row * columns + i] = Narrow(from[i] * scale * Wide(weight[i]));
    }
  });
}

cudaError_t LaunchRopeStore(const RopeStoreArgs& args, cudaStream_t stream) {
  if (args.rows < 1 || (args.kv.head_dim != 64 && args.kv.head_dim != 128)) return cudaErrorInvalidValue;
  CheckOnDevice({args.qkv, args.positions, args.slots, args.rope, args.q_norm, args.k_norm, args.kv.slab});
  return Enqueue(stream, [args] {
    for (int64_t row = 0; row < args.rows; ++row) RopeStoreRow(args, row);
  });
}

cudaError_t LaunchSwiGlu(const Bf16* gate_up, int32_t rows, int32_t columns, Bf16* out, cudaStream_t stream) {
  if (!Takes(rows, columns)) return cudaErrorInvalidValue;
  CheckOnDevice({gate_up, out});
  return Enqueue(stream, [=] {
    for (int64_t row = 0; row < rows; ++row) {
      const Bf16 *gate = gate_up + 2 * row * columns, *up = gate + columns;
      for (int64_t i = 0; i < columns; ++i) out[row * columns + i] = Narrow(SiLu(Wide(gate[i])) * Wide(up[i]));
    }
  });
}

int32_t GemvRowsThatFit(int32_t) { return kMaxGemvRows; }

cudaError_t LaunchGemv(const GemvArgs& args, cudaStream_t stream) {
  if (args.rows < 1 || args.rows > kMaxGemvRows || args.k % 8 != 0) return cudaErrorInvalidValue;
  CheckOnDevice({args.x, args.w, args.bias, args.y});
  return Enqueue(stream, [args] {
    for (int64_t row = 0; row < args.rows; ++row) GemvRow(args, row);
  });
}

cudaError_t LaunchRankSum(const RankParts& parts, int64_t count, float* out, cudaStream_t stream) {
  if (count < 4 || count % 4 != 0) return cudaErrorInvalidValue;
  CheckOnDevice({out});
  for (int rank = 0; rank < parts.ranks; ++rank) CheckOnDevice({parts.parts[rank]});
  return Enqueue(stream, [=] {
    for (int64_t i = 0; i < count; ++i) {
      float sum = parts.parts[0][i];
      for (int rank = 1; rank < parts.ranks; ++rank) sum += parts.parts[rank][i];
      out[i] = sum;
    }
  });
}

cudaError_t LaunchCopyRuns(const void* from, const CopyRun* runs, int32_t count, int64_t pieces, void* to,
                           cudaStream_t stream) {
  if (pieces < count) return cudaErrorInvalidValue;
  CheckOnDevice({runs});
  return Enqueue(stream, [=] {
    int64_t piece = 0;
    for (int32_t i = 0; i < count; ++i) {
      const CopyRun& run = runs[i];
      BATON_CHECK(run.first_piece == piece, "runs follow one another");
      piece += CopyPieces(run.bytes);
      std::memcpy(static_cast<char*>(to) + run.to, static_cast<const char*>(from) + run.from,
                  static_cast<size_t>(run.bytes));
    }
    BATON_CHECK(piece == pieces, "the launch has a block of threads for each piece");
  });
}

}  // namespace baton::cuda
