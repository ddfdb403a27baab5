// Attention of prompt chunks over paged history: how a batch is cut into tiles, and the kernels that run them.
//
// A row's result depends on its query and on K and V of [0, position] alone, to the bit: tiles of keys begin at fixed
// positions, masked keys contribute exact zeros, and nothing is summed across tiles of queries. The two kernels differ
// from each other in the last bits.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/paged_kv.h"

namespace baton::cuda {

enum class PrefillKernel {
  kMma,    // sm_80 and later
  kWgmma,  // compute capability 9.0 and no other
};

// A tile is some queries of one slice with the `group` query heads of each that share a KV head: so many rows at most.
constexpr int32_t TileRows(PrefillKernel kernel, int32_t head_dim) {
  if (kernel == PrefillKernel::kMma) return 64;
  return head_dim == 128 ? 128 : 192;
}
constexpr int32_t QueriesPerTile(PrefillKernel kernel, int32_t head_dim, int32_t group) {
  return TileRows(kernel, head_dim) / group;
}

// Cuts slices into tiles: slices of at most `tile_queries` rows. Those with the most keys come first, so that none of
// them is left for the end.
std::vector<AttentionSlice> PlanQueryTiles(std::span<const AttentionSlice> slices, int32_t tile_queries);

// What the copy engine needs to know of a slab. Serves every layer; made once, on the host.
struct KvTensorMap {
  CUtensorMap map;
};
cudaError_t MakeKvTensorMap(const PagedKv& kv, KvTensorMap* map);

// args.slices: `tiles` tiles, made by PlanQueryTiles for this kernel. `map`: for kWgmma alone.
cudaError_t LaunchPrefillAttention(const AttentionArgs& args, int32_t tiles, PrefillKernel kernel,
                                   const KvTensorMap* map, cudaStream_t stream);

// LaunchPrefillAttention's parts: each expects arguments that it has checked.
cudaError_t LaunchPrefillMma(const AttentionArgs& args, int32_t tiles, cudaStream_t stream);
cudaError_t LaunchPrefillWgmma(const AttentionArgs& args, int32_t tiles, const KvTensorMap& map, cudaStream_t stream);

}  // namespace baton::cuda
