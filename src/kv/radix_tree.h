// The radix tree of the prefixes whose KV a worker holds or is computing. The persistent prefix
// cache and the work in flight share this one tree (design idea 4).
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

// A node is one full block. Its key is chained and thus names its whole path, so one hash table
// holds all nodes. A node has one of two states:
//
//   promised   a request is writing the block, and at least one BlockRef refers to it
//   ready      the block is written, and the pool retains it until it is evicted
//
// A request that refers to a node's block also refers to the blocks of all nodes above it. A node
// without references therefore has no referenced node below it, and every cached block can be
// evicted, leaf by leaf.
//
// Eviction removes the unreferenced leaf with the least EvictionRank. A node that was used again
// after its creation has a credit: a number of uses that equals the pool's number of blocks. Queued
// jobs and sessions protect their paths. docs/design/eviction.md has the reasons.
//
// In all methods, `path` lists the keys from a prompt's first block to the node in question, which
// is path.back(). Not thread-safe. The pool must outlive the tree.
class RadixTree {
 public:
  explicit RadixTree(BlockPool& pool) : pool_(pool) {}
  ~RadixTree();
  RadixTree(const RadixTree&) = delete;
  RadixTree& operator=(const RadixTree&) = delete;

  enum class State { kAbsent, kPromised, kReady };
  State Find(const BlockKey& key) const;
  // Returns the length of the longest ready prefix, in blocks. Does not mark the nodes as used.
  int64_t ReadyPrefix(std::span<const BlockKey> keys) const;
  // Returns the number of blocks in the longest ready prefix that have no reference. Match would
  // reduce Available() by this number.
  int64_t CachedInPrefix(std::span<const BlockKey> keys) const;
  // Returns how many of these blocks no protection of this prefix covers.
  int64_t UnprotectedInPrefix(std::span<const BlockKey> keys) const;

  // Returns references to the longest ready prefix, and marks its nodes as used.
  std::vector<BlockRef> Match(std::span<const BlockKey> keys);
  // Returns a reference to one node, and marks the node as used. REQUIRES: the node exists.
  BlockRef Acquire(const BlockKey& key);
  // Returns a reference to one node. Does not mark the node as used. REQUIRES: the node exists.
  BlockRef Share(const BlockKey& key) { return pool_.Share(Require(key).block); }

  // Adds a promised node for `block`, which the caller holds and will write. REQUIRES: the node
  // does not exist, and its parent exists.
  void Promise(std::span<const BlockKey> path, const BlockRef& block);
  // Makes a promised node ready. REQUIRES: the node is promised, and its parent is ready.
  void MakeReady(const BlockKey& key);
  // Removes a promised node whose block will not be written. A later step may promise the key
  // again. REQUIRES: the node is promised and has no children.
  void Break(const BlockKey& key);

  // Adds a ready node for a block that is already written, and returns `block`. If the node exists
  // already, releases `block` and returns a reference to the node's block. REQUIRES: the caller
  // holds the parent, and the node is not promised.
  BlockRef Insert(std::span<const BlockKey> path, BlockRef block);

  // Marks the nodes as used, in order. REQUIRES: all exist, and a parent comes before its child.
  void Refresh(std::span<const BlockKey> nodes);
  // Protects this node and the nodes above it until Unprotect. The strongest protection of a node
  // counts. If the node itself is evicted, the rest of its path stays protected. REQUIRES: the node
  // is ready, and no other path has this protection.
  void Protect(const BlockKey& node, const Protection& protection);
  // Does nothing if no path has this protection.
  void Unprotect(const Protection& protection);
  // Returns a free block. If no block is free, evicts an unreferenced leaf after it has called
  // `evicting` with that leaf. Returns nullopt if there is no such leaf.
  using Evicting = absl::FunctionRef<void(const BlockKey& key, BlockId block)>;
  std::optional<BlockRef> Allocate(Evicting evicting = [](const BlockKey&, BlockId) {});
  // Returns how many cached blocks Allocate would evict before it evicts a protected one, or `most`
  // if there are more.
  int64_t Unprotected(int64_t most) const;
  // Returns the number of blocks that Allocate can return.
  int64_t Available() const { return pool_.counts().free + pool_.counts().cached; }

  int64_t size() const { return static_cast<int64_t>(nodes_.size()); }  // nodes
  int64_t evictions() const { return evictions_; }                      // since the start
  // CHECKs the tree's shape and its agreement with the pool.
  void CheckInvariants() const;

 private:
  struct Node {
    BlockKey key;
    Node* parent = nullptr;  // null: a prompt's first block
    BlockId block;
    int64_t children = 0;
    bool ready = false;
    bool reused = false;    // used again after its creation
    int64_t last_used = 0;  // number of the last use, unique
    // The protections of paths that end at this node. They also cover the nodes above, which cannot
    // be evicted before this node.
    std::set<Protection> protections{};
  };

  Node* NodeOf(const BlockKey& key) const;  // null: absent
  Node& Require(const BlockKey& key) const;
  Node& Add(std::span<const BlockKey> path, BlockId block);
  void Remove(Node& node);
  void Touch(Node& node);
  EvictionRank RankOf(const Node& node) const;
  static bool IsLeaf(const Node& node) { return node.ready && node.children == 0; }
  // These two enclose every change of a node that affects IsLeaf or RankOf.
  void TakeFromLeaves(Node& node);
  void PutToLeaves(Node& node);
  bool EvictOne(Evicting evicting);
  void PassOnProtections(Node& node);

  BlockPool& pool_;
  absl::flat_hash_map<BlockKey, std::unique_ptr<Node>> nodes_;
  // The ready nodes without children. Eviction skips a leaf whose block is referenced. There is at
  // most one such leaf for each request, hand-off or lease.
  std::map<EvictionRank, Node*> leaves_;
  absl::flat_hash_map<Protection, Node*> protected_;  // the last nodes of the protected paths
  int64_t uses_ = 0;
  int64_t evictions_ = 0;
};

}  // namespace baton
