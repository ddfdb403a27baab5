#include "engine/handoff/handoff_blocks.h"

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace baton {

void HandoffBlocks::SetReady(const ReadyBlock& ready) {
  BATON_CHECK(ready.index >= 0 && static_cast<size_t>(ready.index) < blocks_.size(), "no such block");
  Block& block = blocks_[static_cast<size_t>(ready.index)];
  BATON_CHECK(ready.layers >= block.layers_ready && ready.layers <= layout_.layers,
              "the number of ready layers shrank");
  BATON_CHECK(block.layers_ready == 0 || block.source == ready.source, "a block's source changed");
  block.source = ready.source;
  block.layers_ready = ready.layers;
}

absl::Status HandoffBlocks::SetMissing(std::span<const MissingBlock> missing, int64_t slab_blocks,
                                       std::string_view peer) {
  absl::flat_hash_set<BlockId> targets;
  int64_t last = -1;
  for (const MissingBlock& block : missing) {
    if (block.index <= last || static_cast<size_t>(block.index) >= blocks_.size()) {
      return absl::InternalError(absl::StrCat("decode worker ", std::string(peer), " lists block ", block.index,
                                              " as missing after block ", last, ", expected ascending indices below ",
                                              blocks_.size()));
    }
    if (block.target.value() >= slab_blocks || !targets.insert(block.target).second) {
      return absl::InternalError(absl::StrCat("decode worker ", std::string(peer), " names target block ",
                                              block.target.value(), " twice or beyond its slab of ", slab_blocks,
                                              " blocks"));
    }
    last = block.index;
  }
  for (const MissingBlock& block : missing) {
    blocks_[static_cast<size_t>(block.index)].missing = true;
    blocks_[static_cast<size_t>(block.index)].target = block.target;
  }
  missing_ = unposted_ = static_cast<int32_t>(missing.size());
  return absl::OkStatus();
}

void HandoffBlocks::TakeCopies(int32_t index, std::vector<BlockCopy>& copies) {
  Block& block = blocks_[static_cast<size_t>(index)];
  if (!block.missing || block.layers_posted == block.layers_ready) return;
  const int64_t skip = block.layers_posted * layout_.LayerBytes();
  copies.push_back({.source_offset = block.source.value() * layout_.BlockBytes() + skip,
                    .target_offset = block.target.value() * layout_.BlockBytes() + skip,
                    .bytes = (block.layers_ready - block.layers_posted) * layout_.LayerBytes()});
  block.layers_posted = block.layers_ready;
  if (block.layers_posted < layout_.layers) return;
  --unposted_;
  newly_posted_.push_back(index);
}

void HandoffBlocks::SetDigests(std::span<const int32_t> indices, std::span<const BlockDigest> digests) {
  BATON_CHECK(digests.size() == indices.size(), "the number of digests differs from the number of blocks");
  digests_.resize(blocks_.size());
  for (size_t i = 0; i < indices.size(); ++i) digests_[static_cast<size_t>(indices[i])] = digests[i];
}

std::vector<BlockDigest> HandoffBlocks::Digests() const {
  std::vector<BlockDigest> digests;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (blocks_[i].missing) digests.push_back(digests_[i]);
  }
  return digests;
}

void HandoffBlocks::CheckInvariants() const {
  int32_t unposted = 0;
  for (const Block& block : blocks_) {
    BATON_CHECK(block.layers_posted <= block.layers_ready, "pushed layers that are not ready");
    BATON_CHECK(block.missing || block.layers_posted == 0, "pushed a block that is not missing");
    if (block.missing && block.layers_posted < layout_.layers) ++unposted;
  }
  BATON_CHECK(unposted == unposted_, "unposted blocks miscounted");
}

}  // namespace baton
