// Which prompts' KV a worker holds: one tree for the persistent prefix cache and for work in flight (design idea 4).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "kv/block_pool.h"
#include "kv/prefix_key.h"

namespace baton {

// A node is one full block. Its key names it and, being chained, its whole path, so the nodes need only one hash table.
//
//   promised   somebody has taken it up and is writing it; held by at least one BlockRef
//   ready      written; the pool retains its block until it is evicted
//
// Whoever refers to a node's block refers to the blocks of all nodes above it too. So a node without references has no
// referenced node below it, and every cached block can be evicted, leaf by leaf.
// Evicted is the least recently used leaf. A block that was used again after it was made counts as used one pool of
// uses later than it was: so a session's path, a shared instruction, whatever comes back, outlives the prompts that
// come once, and nothing that has stopped coming back stays for ever. No one need say what belongs to a session.
// (The idea of segmented LRU, Karedla et al. 1994, in one order.)
// What somebody waits for is spared, and before that what somebody will probably ask for soon (SessionLeases). Without
// that, more sessions than fit find all of their KV gone when it is their turn, for what has waited for longest, and so
// comes next, is what was used least recently.
//
// `path` is always the keys from a prompt's first block to the node meant, which is path.back().
// Not thread-safe. The pool must outlive it.
class RadixTree {
 public:
  explicit RadixTree(BlockPool& pool) : pool_(pool) {}
  ~RadixTree();
  RadixTree(const RadixTree&) = delete;
  RadixTree& operator=(const RadixTree&) = delete;

  enum class State { kAbsent, kPromised, kReady };
  State Find(const BlockKey& key) const;
  // Length of the longest ready prefix. Counts as no use.
  int64_t ReadyPrefix(std::span<const BlockKey> keys) const;
  // Of the longest ready prefix, the blocks that nobody refers to: what matching it would take from Available().
  int64_t CachedInPrefix(std::span<const BlockKey> keys) const;

  // References to the longest ready prefix, which is now the most recently used.
  std::vector<BlockRef> Match(std::span<const BlockKey> keys);
  // A reference to one node, which is now the most recently used. REQUIRES: the node is there.
  BlockRef Acquire(const BlockKey& key);
  // The same, but it counts as no use. REQUIRES: the node is there.
  BlockRef Share(const BlockKey& key) { return pool_.Share(Require(key).block); }

  // Adds a promised node for `block`, which the caller holds and will write. REQUIRES: the node is absent, its parent
  // is not.
  void Promise(std::span<const BlockKey> path, const BlockRef& block);
  // The promise is kept. REQUIRES: promised, and the parent is ready.
  void MakeReady(const BlockKey& key);
  // The promise is broken: the node is gone, and whoever waits for it may promise it anew. REQUIRES: promised, no
  // children.
  void Break(const BlockKey& key);

  // Adds a ready node for a block that is written already. Where another request was first, its block is returned and
  // `block` released; otherwise `block` itself. REQUIRES: the caller holds the parent, and nobody promised the node.
  BlockRef Insert(std::span<const BlockKey> path, BlockRef block);

  // Nodes that are there, from the path's first to its last, are now used.
  void Refresh(std::span<const BlockKey> nodes);
  // Somebody waits to use this node and those above it, or will: until SpareNoMore they are evicted after what nobody
  // waits for, and of those first what is needed last. Where several wait for a node, the first counts. Where the node
  // itself is evicted, what is left of its path goes on being spared. REQUIRES: ready, and the place is nobody else's.
  using Place = std::tuple<int64_t, absl::Time, uint64_t>;  // the lower, the sooner
  void Spare(const BlockKey& node, const Place& place);
  void SpareNoMore(const Place& place);  // harmless where nothing is spared
  // A free block, evicting an unreferenced leaf when there is none: `evicting` is told first which.
  using Evicting = absl::FunctionRef<void(const BlockKey& key, BlockId block)>;
  std::optional<BlockRef> Allocate(Evicting evicting = [](const BlockKey&, BlockId) {});
  // How many blocks Allocate can give.
  int64_t Available() const { return pool_.counts().free + pool_.counts().cached; }

  int64_t size() const { return static_cast<int64_t>(nodes_.size()); }
  int64_t evictions() const { return evictions_; }  // since the start
  // CHECKs the tree's shape and that it agrees with the pool.
  void CheckInvariants() const;

 private:
  struct Node {
    BlockKey key;
    Node* parent = nullptr;  // null: a prompt's first block
    BlockId block;
    int64_t children = 0;
    bool ready = false;
    bool reused = false;      // by another than who made it
    uint64_t last_used = 0;   // unique
    std::set<Place> waits{};  // of whoever's path ends here: nodes above it cannot be evicted before it
  };
  // The order in which leaves are evicted.
  struct EvictionOrder {
    std::optional<Place> waits{};
    uint64_t counts_as = 0, last_used = 0;
    bool operator<(const EvictionOrder& other) const {
      if (waits.has_value() != other.waits.has_value()) return !waits.has_value();
      if (waits != other.waits) return *waits > *other.waits;
      return std::pair(counts_as, last_used) < std::pair(other.counts_as, other.last_used);
    }
  };

  Node* NodeOf(const BlockKey& key) const;  // null: absent
  Node& Require(const BlockKey& key) const;
  Node& Add(std::span<const BlockKey> path, BlockId block);
  void Remove(Node& node);
  void Touch(Node& node);
  EvictionOrder OrderOf(const Node& node) const;
  static bool IsLeaf(const Node& node) { return node.ready && node.children == 0; }
  // Every change to what IsLeaf or OrderOf says about a node stands between these two.
  void TakeFromLeaves(Node& node);
  void PutToLeaves(Node& node);
  bool EvictOne(Evicting evicting);
  void PassOnWaits(Node& node);

  BlockPool& pool_;
  absl::flat_hash_map<BlockKey, std::unique_ptr<Node>> nodes_;
  // The ready nodes without children. Those whose block is referenced are skipped when evicting: at most one for each
  // running request.
  std::map<EvictionOrder, Node*> leaves_;
  absl::flat_hash_map<Place, Node*> spared_;  // where the paths that somebody waits for end
  uint64_t uses_ = 0;
  int64_t evictions_ = 0;
};

}  // namespace baton
