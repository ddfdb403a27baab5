// Where one sequence's tokens are: position p lives in block p / 16 of its table.
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
  // Block `index` is from now on held as `block`, which has the same content.
  void Replace(size_t index, BlockRef block) {
    BATON_CHECK(index < ids_.size(), "replaced a block beyond the table");
    ids_[index] = block.id();
    refs_[index] = std::move(block);
  }
  // Takes the last block out. REQUIRES: size() > 0.
  BlockRef PopBack() {
    BATON_CHECK(!refs_.empty(), "popped an empty table");
    BlockRef block = std::move(refs_.back());
    refs_.pop_back();
    ids_.pop_back();
    return block;
  }
  // Releases blocks [size, ...), last first, so that the pool gives them out again in ascending order.
  void Truncate(size_t size) {
    while (refs_.size() > size) PopBack();
  }

 private:
  std::vector<BlockRef> refs_;
  std::vector<BlockId> ids_;  // of refs_, side by side for SequenceSlice
};

}  // namespace baton
