// Which blocks of one worker's slab are in use, and by how many.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/ids.h"

namespace baton {

class BlockPool;

// One reference to one block; gives it back when destroyed. The pool must outlive it.
class BlockRef {
 public:
  BlockRef(BlockRef&& other) noexcept : pool_(std::exchange(other.pool_, nullptr)), id_(other.id_) {}
  BlockRef& operator=(BlockRef&& other) noexcept;
  ~BlockRef() { Reset(); }

  BlockId id() const { return id_; }

 private:
  friend class BlockPool;
  BlockRef(BlockPool* pool, BlockId id) : pool_(pool), id_(id) {}
  void Reset();

  BlockPool* pool_;  // null: moved from
  BlockId id_;
};

// Every block is in one of four states, and the counts always add up to the total:
//   free         nobody needs it
//   referenced   at least one BlockRef
//   cached       no BlockRef, but the prefix cache retains it: may be evicted
//   quarantined  given up by its owner, but a remote may still write it: not given out until EndQuarantine
// Not thread-safe. Must outlive its BlockRefs.
class BlockPool {
 public:
  // Blocks [0, blocks) of the slab.
  explicit BlockPool(int64_t blocks);
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  struct Counts {
    int64_t free = 0;
    int64_t referenced = 0;
    int64_t cached = 0;
    int64_t quarantined = 0;
    int64_t total = 0;
    friend bool operator==(const Counts&, const Counts&) = default;
  };
  const Counts& counts() const { return counts_; }

  // A free block, now referenced once; none when no block is free. A new pool gives ascending ids, so that the blocks
  // of one prompt are neighbours and coalesce into one transfer.
  std::optional<BlockRef> Allocate();
  // One more reference. REQUIRES: the block is referenced or cached.
  BlockRef Share(BlockId id);
  int64_t ReferencesOf(BlockId id) const { return At(id).references; }

  // REQUIRES: `block` is the only reference and the cache does not retain it.
  void Quarantine(BlockRef block);
  // The remote will not write any more: the block is free. REQUIRES: quarantined.
  void EndQuarantine(BlockId id);

  // For the prefix cache: keep the block when its last reference goes, until Forget. REQUIRES: referenced, and not yet
  // retained.
  void Retain(BlockId id);
  // REQUIRES: retained. The block is free once it has no reference.
  void Forget(BlockId id);
  bool IsRetained(BlockId id) const { return At(id).retained; }

  // Counts everything again and CHECKs that it agrees.
  void CheckInvariants() const;

 private:
  friend class BlockRef;
  struct Block {
    int64_t references = 0;
    bool retained = false;
    bool quarantined = false;
  };

  const Block& At(BlockId id) const;
  Block& At(BlockId id);
  int64_t& CountOf(const Block& block);
  // Moves the block's count from its state before `change` to its state after it.
  template <typename Change>
  void Update(BlockId id, Change change);
  void Unref(BlockId id);

  std::vector<Block> blocks_;
  std::vector<BlockId> free_;  // a stack; the block freed last is given out first
  Counts counts_;
};

}  // namespace baton
