#include "kv/block_pool.h"

#include <limits>

namespace baton {

BlockRef& BlockRef::operator=(BlockRef&& other) noexcept {
  if (this != &other) {
    Reset();
    pool_ = std::exchange(other.pool_, nullptr);
    id_ = other.id_;
  }
  return *this;
}

void BlockRef::Reset() {
  if (BlockPool* pool = std::exchange(pool_, nullptr)) pool->Unref(id_);
}

BlockPool::BlockPool(int64_t blocks) {
  BATON_CHECK(blocks >= 0 && blocks <= std::numeric_limits<uint32_t>::max(), "block ids are 32 bits");
  blocks_.resize(static_cast<size_t>(blocks));
  free_.reserve(blocks_.size());
  for (int64_t i = blocks - 1; i >= 0; --i) free_.push_back(BlockId(static_cast<uint32_t>(i)));
  counts_.free = counts_.total = blocks;
}

const BlockPool::Block& BlockPool::At(BlockId id) const {
  BATON_CHECK(id.value() < blocks_.size(), "no such block");
  return blocks_[id.value()];
}

BlockPool::Block& BlockPool::At(BlockId id) { return const_cast<Block&>(std::as_const(*this).At(id)); }

int64_t& BlockPool::CountOf(const Block& block) {
  if (block.quarantined) return counts_.quarantined;
  if (block.references > 0) return counts_.referenced;
  return block.retained ? counts_.cached : counts_.free;
}

template <typename Change>
void BlockPool::Update(BlockId id, Change change) {
  Block& block = At(id);
  --CountOf(block);
  change(block);
  int64_t& count = CountOf(block);
  ++count;
  if (&count == &counts_.free) free_.push_back(id);
}

std::optional<BlockRef> BlockPool::Allocate() {
  if (free_.empty()) return std::nullopt;
  const BlockId id = free_.back();
  free_.pop_back();
  Update(id, [](Block& block) { block.references = 1; });
  return BlockRef(this, id);
}

BlockRef BlockPool::Share(BlockId id) {
  Update(id, [](Block& block) {
    BATON_CHECK(!block.quarantined && (block.references > 0 || block.retained), "shared a block without KV");
    ++block.references;
  });
  return BlockRef(this, id);
}

void BlockPool::Unref(BlockId id) {
  Update(id, [](Block& block) {
    BATON_CHECK(block.references > 0, "released a block twice");
    --block.references;
  });
}

void BlockPool::Quarantine(BlockRef block) {
  BATON_CHECK(block.pool_ == this, "a block of another pool");
  block.pool_ = nullptr;  // The destructor must not release the reference again.
  Update(block.id_, [](Block& b) {
    BATON_CHECK(b.references == 1 && !b.retained, "quarantined a block with other references");
    b.references = 0;
    b.quarantined = true;
  });
}

void BlockPool::EndQuarantine(BlockId id) {
  Update(id, [](Block& block) {
    BATON_CHECK(block.quarantined, "ended the quarantine of a block that is not quarantined");
    block.quarantined = false;
  });
}

void BlockPool::Retain(BlockId id) {
  Block& block = At(id);
  BATON_CHECK(block.references > 0 && !block.retained, "retained a block that is not held, or twice");
  block.retained = true;
}

void BlockPool::Forget(BlockId id) {
  BATON_CHECK(At(id).retained, "forgot a block that was not retained");
  if (At(id).references > 0) {
    At(id).retained = false;
  } else {
    Update(id, [](Block& block) { block.retained = false; });
  }
}

void BlockPool::CheckInvariants() const {
  Counts recount;
  recount.total = static_cast<int64_t>(blocks_.size());
  for (const Block& block : blocks_) {
    BATON_CHECK(block.references >= 0, "negative references");
    BATON_CHECK(!block.quarantined || (block.references == 0 && !block.retained), "a quarantined block is in use");
    if (block.quarantined) {
      ++recount.quarantined;
    } else if (block.references > 0) {
      ++recount.referenced;
    } else {
      ++(block.retained ? recount.cached : recount.free);
    }
  }
  BATON_CHECK(recount == counts_, "the counts disagree with the blocks");
  std::vector<bool> listed(blocks_.size());
  for (BlockId id : free_) {
    const Block& block = At(id);
    BATON_CHECK(!listed[id.value()], "a free block is listed twice");
    BATON_CHECK(block.references == 0 && !block.retained && !block.quarantined, "a block in use is listed as free");
    listed[id.value()] = true;
  }
  BATON_CHECK(static_cast<int64_t>(free_.size()) == counts_.free, "a free block is not listed");
}

}  // namespace baton
