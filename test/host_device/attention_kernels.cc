// The launchers of attention. They store partial results at the plan's indexes, and they check
// every part of a plan.
#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "base/check.h"
#include "host_device/stream.h"
#include "kernels/decode_attention.h"
#include "kernels/prefill_attention.h"

namespace baton::cuda {
namespace {

using host_device::CheckOnDevice;
using host_device::Enqueue;

// Largest number of query heads per KV head, as in kernels/decode_attention.h.
constexpr int32_t kMaxGroup = 16;

// The attention of one query head over some keys, before the division by the sum of its weights.
struct Partial {
  float max = -INFINITY, sum = 0;
  std::vector<float> weighted;  // [head_dim]
};

// Floats of one Partial in a workspace. The first is 1 from the store of the Partial until it is
// taken, and 0 otherwise.
int64_t PartialSize(int32_t head_dim) { return head_dim + 3; }

std::vector<float> Widen(const Bf16* values, int32_t count) {
  std::vector<float> wide(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) wide[static_cast<size_t>(i)] = __bfloat162float(values[i]);
  return wide;
}

void Add(Partial& to, const Partial& part) {
  const float max = std::max(to.max, part.max);
  const float mine = std::exp(to.max - max), theirs = std::exp(part.max - max);
  to.sum = to.sum * mine + part.sum * theirs;
  for (size_t i = 0; i < to.weighted.size(); ++i) to.weighted[i] = to.weighted[i] * mine + part.weighted[i] * theirs;
  to.max = max;
}

// Attends to the keys [begin, end) in their order.
Partial Attend(const AttentionArgs& args, const AttentionSlice& slice, int64_t row, int32_t head, int32_t begin,
               int32_t end) {
  const int32_t size = args.kv.head_dim, kv_head = head / (args.heads / args.kv.kv_heads);
  const Bf16* q = args.q + row * args.q_stride + head * size;
  const auto at = [&](int32_t key) {
    const int64_t block = args.block_tables[slice.table + key / kBlockTokens];
    BATON_CHECK(block >= 0 && block < args.kv.blocks, "a block table names blocks of the slab");
    return args.kv.K<Bf16>(block, kv_head) + key % kBlockTokens * size;
  };
  const std::vector<float> query = Widen(q, size);
  Partial whole{.weighted = std::vector<float>(static_cast<size_t>(size))};
  std::vector<float> scores;
  for (int32_t key = begin; key < end; ++key) {
    const Bf16* k = at(key);
    float score = 0;
    for (int32_t i = 0; i < size; ++i) score += query[static_cast<size_t>(i)] * __bfloat162float(k[i]);
    scores.push_back(score / std::sqrt(static_cast<float>(size)));
    whole.max = std::max(whole.max, scores.back());
  }
  for (int32_t key = begin; key < end; ++key) {
    const Bf16* v = at(key) + args.kv.kv_heads * args.kv.HeadStride();
    const float weight = std::exp(scores[static_cast<size_t>(key - begin)] - whole.max);
    whole.sum += weight;
    for (int32_t i = 0; i < size; ++i) whole.weighted[static_cast<size_t>(i)] += weight * __bfloat162float(v[i]);
  }
  return whole;
}

void Store(const Partial& whole, const AttentionArgs& args, int64_t row, int32_t head) {
  Bf16* out = args.out + (row * args.heads + head) * args.kv.head_dim;
  for (size_t i = 0; i < whole.weighted.size(); ++i) out[i] = __float2bfloat16_rn(whole.weighted[i] / whole.sum);
}

// The splits of one slice, by index.
using Parts = std::map<int32_t, HistorySplit>;

// Returns the location in the workspace of one split's result for one head.
float* PlaceOf(void* workspace, const HistorySplit& part, const AttentionArgs& args, int32_t head) {
  return static_cast<float*>(workspace) + (int64_t{part.partial} * args.heads + head) * PartialSize(args.kv.head_dim);
}

void CheckParts(const AttentionSlice& slice, const Parts& parts) {
  BATON_CHECK(slice.rows == 1, "decode attention receives slices of one row");
  int32_t next = 0;
  for (const auto& [place, part] : parts) {
    BATON_CHECK(part.begin == next && part.end > part.begin, "parts of a history follow one another");
    BATON_CHECK(part.splits == std::ssize(parts), "a part has the wrong number of parts");
    BATON_CHECK((part.partial < 0) == (part.splits == 1), "a whole history needs no workspace for its result");
    next = part.end;
  }
  BATON_CHECK(next == slice.start + 1, "the parts are the whole history");
}

void Keep(const Partial& part, float* place) {
  BATON_CHECK(place[0] == 0, "a result is stored over another result");
  place[0] = 1;
  place[1] = part.max;
  place[2] = part.sum;
  std::copy(part.weighted.begin(), part.weighted.end(), place + 3);
}
Partial Take(float* place, int32_t head_dim) {
  BATON_CHECK(place[0] == 1, "a result is taken that was not stored");
  place[0] = 0;
  return {.max = place[1], .sum = place[2], .weighted = {place + 3, place + 3 + head_dim}};
}

// Stores all parts of all slices before it takes the first, because parts run in parallel on a
// device.
void AttendParts(const AttentionArgs& args, const std::map<int32_t, Parts>& by_slice, void* workspace) {
  const auto each = [&](auto work) {
    for (const auto& [slice, parts] : by_slice) {
      for (int32_t head = 0; head < args.heads; ++head) work(args.slices[slice], parts, head);
    }
  };
  each([&](const AttentionSlice& slice, const Parts& parts, int32_t head) {
    for (const auto& [place, part] : parts) {
      const Partial own = Attend(args, slice, slice.first_row, head, part.begin, part.end);
      part.splits == 1 ? Store(own, args, slice.first_row, head) : Keep(own, PlaceOf(workspace, part, args, head));
    }
  });
  each([&](const AttentionSlice& slice, const Parts& parts, int32_t head) {
    if (parts.size() == 1) return;
    const int32_t size = args.kv.head_dim;
    Partial whole{.weighted = std::vector<float>(static_cast<size_t>(size))};
    for (const auto& [place, part] : parts) Add(whole, Take(PlaceOf(workspace, part, args, head), size));
    Store(whole, args, slice.first_row, head);
  });
}

void CheckArgs(const AttentionArgs& args) {
  CheckOnDevice({args.q, args.kv.slab, args.slices, args.block_tables, args.out});
  BATON_CHECK(args.q_stride % 8 == 0, "rows of q are aligned");
}

}  // namespace

cudaError_t MakeDecodeGrid(int32_t kv_heads, int32_t, DecodeGrid* grid) {
  *grid = {.kv_heads = kv_heads, .ctas = 16};
  return cudaSuccess;
}

int64_t DecodeWorkspaceBytes(int32_t heads, int32_t, int32_t head_dim, int64_t partials) {
  return partials * heads * PartialSize(head_dim) * static_cast<int64_t>(sizeof(float));
}

cudaError_t LaunchDecodeAttention(const AttentionArgs& args, const HistorySplit* splits, int32_t count, void* workspace,
                                  cudaStream_t stream) {
  if (args.heads / args.kv.kv_heads > kMaxGroup) return cudaErrorInvalidValue;
  CheckArgs(args);
  CheckOnDevice({splits, workspace});
  return Enqueue(stream, [=] {
    std::map<int32_t, Parts> by_slice;
    for (int32_t i = 0; i < count; ++i) {
      if (splits[i].slice < 0) continue;  // padding
      const bool added = by_slice[splits[i].slice].emplace(splits[i].place, splits[i]).second;
      BATON_CHECK(added, "each part is planned once");
    }
    for (const auto& [slice, parts] : by_slice) CheckParts(args.slices[slice], parts);
    AttendParts(args, by_slice, workspace);
  });
}

cudaError_t MakeKvTensorMap(const PagedKv&, KvTensorMap*) { return cudaSuccess; }

cudaError_t LaunchPrefillAttention(const AttentionArgs& args, int32_t tiles, PrefillKernel kernel, const KvTensorMap*,
                                   cudaStream_t stream) {
  CheckArgs(args);
  const int32_t queries = QueriesPerTile(kernel, args.kv.head_dim, args.heads / args.kv.kv_heads);
  return Enqueue(stream, [=] {
    for (int32_t i = 0; i < tiles; ++i) {
      const AttentionSlice& tile = args.slices[i];
      BATON_CHECK(tile.rows >= 1 && tile.rows <= queries, "a tile has as many queries as the kernel takes");
      for (int32_t row = 0; row < tile.rows; ++row) {
        for (int32_t head = 0; head < args.heads; ++head) {
          Store(Attend(args, tile, tile.first_row + row, head, 0, tile.start + row + 1), args, tile.first_row + row,
                head);
        }
      }
    }
  });
}

}  // namespace baton::cuda
