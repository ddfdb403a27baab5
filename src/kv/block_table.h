// The block table of one sequence. Position p of the sequence lies in block p / 16 of the table.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kv/block_pool.h"

namespace baton {

// Holds one reference to each of its blocks.
class BlockTable {
 public:
  BlockTable() = default;
  BlockTable(BlockTable&&) = default;
  BlockTable& operator=(BlockTable&& other) noexcept {
    if (this != &other) {
      Truncate(0);
      refs_ = std::exchange(other.refs_, {});
      ids_ = std::exchange(other.ids_, {});
    }
    return *this;
  }
  ~BlockTable() { Truncate(0); }

  size_t size() const { return ids_.size(); }
  // Valid until the table changes.
  std::span<const BlockId> ids() const { return ids_; }

  void Append(BlockRef block) {
    ids_.push_back(block.id());
    refs_.push_back(std::move(block));
  }
  // Replaces the block at `index` by `block`. REQUIRES: both have the same content.
  void Replace(size_t index, BlockRef block) {
    BATON_CHECK(index < ids_.size(), "replaced a block beyond the table");
    ids_[index] = block.id();
    refs_[index] = std::move(block);
  }
  // Removes and returns the last block. REQUIRES: size() > 0.
  BlockRef PopBack() {
    BATON_CHECK(!refs_.empty(), "popped an empty table");
    BlockRef block = std::move(refs_.back());
    refs_.pop_back();
    ids_.pop_back();
    return block;
  }
  // Releases the blocks from index `size` on. It releases the last block first, so that the pool
  // later returns them in ascending order.
  void Truncate(size_t size) {
    while (refs_.size() > size) PopBack();
  }

 private:
  std::vector<BlockRef> refs_;
  std::vector<BlockId> ids_;  // the ids of refs_, contiguous for SequenceSlice
};

}  // namespace baton
