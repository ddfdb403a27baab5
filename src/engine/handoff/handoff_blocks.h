// The blocks of one hand-off, with the progress of each: ready, pushed, digested.
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

// A block of the prompt's block table of which layers [0, layers) are complete: they hold all
// tokens that the prompt has in this block. The layers must not change until the hand-off's result.
struct ReadyBlock {
  int32_t index = 0;  // in the prompt's block table
  BlockId source;     // in this worker's slab
  int64_t layers = 0;
};

// The block table of one hand-off, with the state of each block. Not thread-safe.
class HandoffBlocks {
 public:
  // REQUIRES: the prompt's KV fills `count` blocks.
  HandoffBlocks(int64_t count, const KvLayout& layout) : layout_(layout), blocks_(static_cast<size_t>(count)) {}

  // Sets the state of one block. REQUIRES: index < size(). `layers` of a block never shrinks, and
  // its `source` never changes.
  void SetReady(const ReadyBlock& ready);
  // Sets the blocks that the decode worker lacks, and their targets. Only these blocks are pushed.
  // A peer's answer is not trusted. Returns INTERNAL, and sets nothing, if an index is not in the
  // table or not ascending, or if a target occurs twice or is not below `slab_blocks`.
  absl::Status SetMissing(std::span<const MissingBlock> missing, int64_t slab_blocks, std::string_view peer);
  // Appends a copy of the ready layers of block `index` that are not pushed yet, and counts them as
  // pushed. Does nothing if there are none, or if the block is not missing.
  void TakeCopies(int32_t index, std::vector<BlockCopy>& copies);

  int32_t size() const { return static_cast<int32_t>(blocks_.size()); }
  int32_t missing() const { return missing_; }
  // Returns true if TakeCopies has taken all layers of all missing blocks. Also true before
  // SetMissing.
  bool posted() const { return unposted_ == 0; }
  BlockId source(int32_t index) const { return blocks_[static_cast<size_t>(index)].source; }

  // Returns the indices of the missing blocks whose last layer TakeCopies has taken since the last
  // call, in that order.
  std::vector<int32_t> TakePosted() { return std::exchange(newly_posted_, {}); }
  void SetDigests(std::span<const int32_t> indices, std::span<const BlockDigest> digests);
  // Returns the digests of the missing blocks, in the order of the table. REQUIRES: all are set.
  std::vector<BlockDigest> Digests() const;
  void CheckInvariants() const;

 private:
  struct Block {
    BlockId source;
    BlockId target;
    bool missing = false;
    int64_t layers_ready = 0;   // layers [0, layers_ready) are complete in `source`
    int64_t layers_posted = 0;  // layers [0, layers_posted) are pushed or being pushed
  };

  KvLayout layout_;
  std::vector<Block> blocks_;
  int32_t missing_ = 0;
  int32_t unposted_ = 0;  // missing blocks that are not posted in full
  std::vector<int32_t> newly_posted_;
  std::vector<BlockDigest> digests_;  // one for each of blocks_, or empty if none is set
};

}  // namespace baton
