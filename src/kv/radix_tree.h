// Which prompts' KV a worker holds: one tree for the persistent prefix cache and for work in flight (design idea 4).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "kv/block_pool.h"
#include "kv/eviction_rank.h"
#include "kv/prefix_key.h"

namespace baton {

// A node is one full block. Its key names it and, being chained, its whole path, so the nodes need
// only one hash table.
//
//   promised   a request is writing it, and at least one BlockRef holds it
//   ready      written; the pool retains its block until it is evicted
//
// A request that refers to a node's block refers to the blocks of all nodes above it, too. So a
// node without references has no referenced node below it, and every cached block can be evicted,
// leaf by leaf.
//
// The leaf of the least EvictionRank is evicted. A block that was used again after it was made
// counts as used one pool of uses later than it was. A session's path or a shared instruction
// therefore outlives prompts that come once, and a path that stops coming back is evicted in the
// end. (This is the idea of segmented LRU, Karedla et al. 1994, in one order.)
//
// Queued jobs and sessions protect their paths. Without that, more sessions than fit would find all
// of their KV gone when they run: the session that has waited for longest comes next, and its path
// was used least recently.
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
  // Protects this node and the nodes above it until Unprotect. The strongest protection of a node
  // counts. If the node itself is evicted, the rest of its path stays protected. REQUIRES: ready,
  // and no other path has this protection.
  void Protect(const BlockKey& node, const Protection& protection);
  void Unprotect(const Protection& protection);  // does nothing if no path has it
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
    bool reused = false;    // by another request than the one that made it
    int64_t last_used = 0;  // unique
    // Of the paths that end here. Nodes above cannot be evicted before this one.
    std::set<Protection> protections{};
  };

  Node* NodeOf(const BlockKey& key) const;  // null: absent
  Node& Require(const BlockKey& key) const;
  Node& Add(std::span<const BlockKey> path, BlockId block);
  void Remove(Node& node);
  void Touch(Node& node);
  EvictionRank RankOf(const Node& node) const;
  static bool IsLeaf(const Node& node) { return node.ready && node.children == 0; }
  // Every change to what IsLeaf or RankOf returns for a node stands between these two.
  void TakeFromLeaves(Node& node);
  void PutToLeaves(Node& node);
  bool EvictOne(Evicting evicting);
  void PassOnProtections(Node& node);

  BlockPool& pool_;
  absl::flat_hash_map<BlockKey, std::unique_ptr<Node>> nodes_;
  // The ready nodes without children. Those whose block is referenced are skipped when evicting: at most one for each
  // running request.
  std::map<EvictionRank, Node*> leaves_;
  absl::flat_hash_map<Protection, Node*> protected_;  // where the protected paths end
  int64_t uses_ = 0;
  int64_t evictions_ = 0;
};

}  // namespace baton
