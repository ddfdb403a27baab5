// Attention of prompt chunks over a paged history: the plan that cuts a batch into tiles, and the
// kernels that run the tiles.
//
// The bits of a row's result depend only on its query and on K and V of [0, position]. Tiles of
// keys begin at fixed positions, masked keys contribute exact zeros, and tiles of queries share no
// sums. The two kernels differ from each other in the last bits.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/paged_kv.h"

namespace baton::cuda {

// The kernels of prefill attention, with the devices that can run them.
enum class PrefillKernel {
  kMma,    // sm_80 and later
  kWgmma,  // compute capability 9.0 only
};

// Returns the largest number of rows of a tile. A tile has some queries of one slice. Each query
// contributes one row for each of the `group` query heads that share a KV head.
constexpr int32_t TileRows(PrefillKernel kernel, int32_t head_dim) {
  if (kernel == PrefillKernel::kMma) return 64;
  return head_dim == 128 ? 128 : 192;
}
// Returns the largest number of queries of a tile.
constexpr int32_t QueriesPerTile(PrefillKernel kernel, int32_t head_dim, int32_t group) {
  return TileRows(kernel, head_dim) / group;
}

// Cuts slices into tiles, which are slices of at most `tile_queries` rows. Tiles with more keys
// come first, so that no long tile runs last.
std::vector<AttentionSlice> PlanQueryTiles(std::span<const AttentionSlice> slices, int32_t tile_queries);

// The description of a slab for the copy engine. It serves every layer and is made once, on the
// host.
struct KvTensorMap {
  CUtensorMap map;
};
// Returns cudaErrorInvalidValue for a layout that the kernel does not support, and
// cudaErrorNotSupported if the driver is too old.
cudaError_t MakeKvTensorMap(const PagedKv& kv, KvTensorMap* map);

// Enqueues the attention of `tiles` tiles, which are args.slices. REQUIRES: PlanQueryTiles has made
// them for this kernel. `map` is needed only for kWgmma.
cudaError_t LaunchPrefillAttention(const AttentionArgs& args, int32_t tiles, PrefillKernel kernel,
                                   const KvTensorMap* map, cudaStream_t stream);

// The parts of LaunchPrefillAttention. REQUIRES: LaunchPrefillAttention has checked the arguments.
cudaError_t LaunchPrefillMma(const AttentionArgs& args, int32_t tiles, cudaStream_t stream);
cudaError_t LaunchPrefillWgmma(const AttentionArgs& args, int32_t tiles, const KvTensorMap& map, cudaStream_t stream);

}  // namespace baton::cuda
