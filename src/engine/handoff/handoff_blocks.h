// How far the blocks of one hand-off are: ready here, pushed, digested.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "engine/handoff/messages.h"
#include "kv/block_digest.h"
#include "kv/block_layout.h"
#include "transport/transport.h"

namespace baton {

// Layers [0, layers) of block `index` of the prompt's block table hold all the tokens that this prompt has there, and
// lie in block `source` of our slab. They must stay untouched until the hand-off's result.
struct ReadyBlock {
  int32_t index = 0;
  BlockId source;
  int64_t layers = 0;
};

// The block table of one hand-off, with what is known of each block. Not thread-safe.
class HandoffBlocks {
 public:
  // Of a prompt whose KV fills `count` blocks.
  HandoffBlocks(int64_t count, const KvLayout& layout) : layout_(layout), blocks_(static_cast<size_t>(count)) {}

  // REQUIRES: index < size(); layers of a block never shrink, and its source never changes.
  void SetReady(const ReadyBlock& ready);
  // What the decode worker lacks, and where it goes: the only blocks that are pushed. A peer's answer is not trusted.
  // INTERNAL: an index that is not ours or not ascending, a target twice or beyond `slab_blocks`. Then nothing is set.
  absl::Status SetMissing(std::span<const MissingBlock> missing, int64_t slab_blocks, std::string_view peer);
  // Appends what of block `index` is ready, missing and not pushed yet, and counts it as pushed.
  void TakeCopies(int32_t index, std::vector<BlockCopy>& copies);

  int32_t size() const { return static_cast<int32_t>(blocks_.size()); }
  int32_t missing() const { return missing_; }
  // All that is missing was taken to be pushed. True before SetMissing, too.
  bool posted() const { return unposted_ == 0; }
  BlockId source(int32_t index) const { return blocks_[static_cast<size_t>(index)].source; }

  // The indices of missing blocks that were taken in full since the last call, in the order of taking.
  std::vector<int32_t> TakePosted() { return std::exchange(newly_posted_, {}); }
  void SetDigests(std::span<const int32_t> indices, std::span<const BlockDigest> digests);
  // Of the missing blocks, in their order. REQUIRES: all are set.
  std::vector<BlockDigest> Digests() const;
  void CheckInvariants() const;

 private:
  struct Block {
    BlockId source;
    BlockId target;
    bool missing = false;
    int64_t layers_ready = 0;   // [0, layers_ready) are in `source`
    int64_t layers_posted = 0;  // [0, layers_posted) are pushed or being pushed
  };

  KvLayout layout_;
  std::vector<Block> blocks_;
  int32_t missing_ = 0;
  int32_t unposted_ = 0;  // of those, not posted in full
  std::vector<int32_t> newly_posted_;
  std::vector<BlockDigest> digests_;  // like blocks_; empty unless some were set
};

}  // namespace baton
