// The pool of a worker's KV blocks. It counts the references to each block.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/ids.h"

namespace baton {

class BlockPool;

// A move-only reference to one block. The destructor releases it. The pool must outlive it.
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

// Every block is in one of four states. The counts of the states always add up to the total:
//   free         nothing refers to the block
//   referenced   at least one BlockRef refers to it
//   cached       no BlockRef refers to it, and the prefix cache retains it; it may be evicted
//   quarantined  its owner has released it, and a remote worker may still write to it;
//                Allocate does not return it until EndQuarantine
//
// Not thread-safe. The pool must outlive its BlockRefs.
class BlockPool {
 public:
  // Makes a pool of the blocks [0, blocks) of the slab. All are free.
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

  // Returns the only reference to a free block, or nullopt if no block is free. A new pool returns
  // ascending ids, so that the blocks of one prompt are neighbours and coalesce into one transfer.
  std::optional<BlockRef> Allocate();
  // Returns another reference. REQUIRES: the block is referenced or cached.
  BlockRef Share(BlockId id);
  int64_t ReferencesOf(BlockId id) const { return At(id).references; }

  // Releases `block` and quarantines it. REQUIRES: `block` is the only reference, and the block is
  // not retained.
  void Quarantine(BlockRef block);
  // Frees a quarantined block, once the remote worker can no longer write to it. REQUIRES: the
  // block is quarantined.
  void EndQuarantine(BlockId id);

  // Keeps the block as cached after its last reference is gone, until Forget. The prefix cache
  // calls this. REQUIRES: the block is referenced and not retained.
  void Retain(BlockId id);
  // Ends Retain. The block is free as soon as it has no reference. REQUIRES: the block is retained.
  void Forget(BlockId id);
  bool IsRetained(BlockId id) const { return At(id).retained; }

  // CHECKs that the counts and the free list agree with the blocks' states.
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
  // Returns the count of the block's state.
  int64_t& CountOf(const Block& block);
  // Applies `change` to a block and updates the counts and the free list.
  template <typename Change>
  void Update(BlockId id, Change change);
  void Unref(BlockId id);

  std::vector<Block> blocks_;
  std::vector<BlockId> free_;  // a stack: Allocate returns the block that was freed last
  Counts counts_;
};

}  // namespace baton
