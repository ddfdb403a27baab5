#include "kv/radix_tree.h"

#include "absl/container/flat_hash_set.h"
#include "base/check.h"

namespace baton {

RadixTree::~RadixTree() {
  for (const auto& [key, node] : nodes_) {
    if (node->ready) pool_.Forget(node->block);
  }
}

RadixTree::Node* RadixTree::NodeOf(const BlockKey& key) const {
  const auto found = nodes_.find(key);
  return found == nodes_.end() ? nullptr : found->second.get();
}

RadixTree::Node& RadixTree::Require(const BlockKey& key) const {
  Node* node = NodeOf(key);
  BATON_CHECK(node != nullptr, "no node has this key");
  return *node;
}

RadixTree::State RadixTree::Find(const BlockKey& key) const {
  const Node* node = NodeOf(key);
  if (node == nullptr) return State::kAbsent;
  return node->ready ? State::kReady : State::kPromised;
}

int64_t RadixTree::ReadyPrefix(std::span<const BlockKey> keys) const {
  int64_t length = 0;
  for (const BlockKey& key : keys) {
    if (Find(key) != State::kReady) break;
    ++length;
  }
  return length;
}

int64_t RadixTree::CachedInPrefix(std::span<const BlockKey> keys) const {
  int64_t cached = 0;
  for (const BlockKey& key : keys) {
    const Node* node = NodeOf(key);
    if (node == nullptr || !node->ready) break;
    if (pool_.ReferencesOf(node->block) == 0) ++cached;
  }
  return cached;
}

int64_t RadixTree::UnprotectedInPrefix(std::span<const BlockKey> keys) const {
  int64_t unprotected = 0;
  for (const BlockKey& key : keys) {
    const Node* node = NodeOf(key);
    if (node == nullptr || !node->ready) break;
    if (!node->protections.empty()) {
      unprotected = 0;  // The protection covers the nodes above, too.
    } else if (pool_.ReferencesOf(node->block) == 0) {
      ++unprotected;
    }
  }
  return unprotected;
}

std::vector<BlockRef> RadixTree::Match(std::span<const BlockKey> keys) {
  std::vector<BlockRef> blocks;
  const int64_t length = ReadyPrefix(keys);
  blocks.reserve(static_cast<size_t>(length));
  for (const BlockKey& key : keys.first(static_cast<size_t>(length))) blocks.push_back(Acquire(key));
  return blocks;
}

BlockRef RadixTree::Acquire(const BlockKey& key) {
  Touch(Require(key));
  return Share(key);
}

void RadixTree::Promise(std::span<const BlockKey> path, const BlockRef& block) { Add(path, block.id()); }

void RadixTree::MakeReady(const BlockKey& key) {
  Node& node = Require(key);
  BATON_CHECK(!node.ready, "made ready twice");
  BATON_CHECK(node.parent == nullptr || node.parent->ready, "ready before its parent");
  pool_.Retain(node.block);
  node.ready = true;
  PutToLeaves(node);
}

void RadixTree::Break(const BlockKey& key) {
  Node& node = Require(key);
  BATON_CHECK(!node.ready, "only a promised node can be broken");
  Remove(node);
}

BlockRef RadixTree::Insert(std::span<const BlockKey> path, BlockRef block) {
  BATON_CHECK(!path.empty(), "a node has a path");
  if (const Node* node = NodeOf(path.back())) {
    BATON_CHECK(node->ready, "inserted a node that another request promised");
    return Acquire(path.back());
  }
  Node& node = Add(path, block.id());
  BATON_CHECK(node.parent == nullptr || pool_.ReferencesOf(node.parent->block) > 0, "inserted below a block not held");
  MakeReady(path.back());
  return block;
}

RadixTree::Node& RadixTree::Add(std::span<const BlockKey> path, BlockId block) {
  BATON_CHECK(!path.empty(), "a node has a path");
  BATON_CHECK(pool_.ReferencesOf(block) > 0, "a new node's block must be held");
  auto& slot = nodes_[path.back()];
  BATON_CHECK(slot == nullptr, "the node is there already");
  slot = std::make_unique<Node>();
  Node& node = *slot;
  node.key = path.back();
  node.block = block;
  node.last_used = ++uses_;
  if (path.size() > 1) {
    node.parent = &Require(path[path.size() - 2]);
    TakeFromLeaves(*node.parent);
    ++node.parent->children;
  }
  return node;
}

void RadixTree::Remove(Node& node) {
  BATON_CHECK(node.children == 0, "only leaves are removed");
  TakeFromLeaves(node);
  if (node.ready) pool_.Forget(node.block);
  if (Node* parent = node.parent) {
    --parent->children;
    PutToLeaves(*parent);
  }
  const BlockKey key = node.key;  // erase destroys the node
  nodes_.erase(key);
}

void RadixTree::Touch(Node& node) {
  TakeFromLeaves(node);
  node.last_used = ++uses_;
  node.reused = true;
  PutToLeaves(node);
}

EvictionRank RadixTree::RankOf(const Node& node) const {
  EvictionFacts facts{.last_use = node.last_used, .credit = node.reused ? pool_.counts().total : 0};
  if (!node.protections.empty()) facts.protection = *node.protections.rbegin();
  return EvictionRank(facts);
}

void RadixTree::TakeFromLeaves(Node& node) {
  if (IsLeaf(node)) leaves_.erase(RankOf(node));
}

void RadixTree::PutToLeaves(Node& node) {
  if (IsLeaf(node)) leaves_[RankOf(node)] = &node;
}

bool RadixTree::EvictOne(Evicting evicting) {
  for (const auto& [rank, leaf] : leaves_) {
    if (pool_.ReferencesOf(leaf->block) > 0) continue;
    Node& node = *leaf;  // The map entry is erased before the node is.
    evicting(node.key, node.block);
    PassOnProtections(node);
    Remove(node);
    ++evictions_;
    return true;
  }
  return false;
}

int64_t RadixTree::Unprotected(int64_t most) const {
  int64_t blocks = 0;
  absl::flat_hash_map<const Node*, int64_t> counted_children;
  for (const auto& [rank, leaf] : leaves_) {
    if (blocks >= most || !leaf->protections.empty()) break;  // leaves with protections come last
    for (const Node* node = leaf; node != nullptr && blocks < most; node = node->parent) {
      if (pool_.ReferencesOf(node->block) > 0 || !node->protections.empty()) break;
      if (node != leaf && ++counted_children[node] < node->children) break;
      ++blocks;
    }
  }
  return blocks;
}

void RadixTree::Refresh(std::span<const BlockKey> nodes) {
  for (const BlockKey& key : nodes) Touch(Require(key));
}

void RadixTree::Protect(const BlockKey& key, const Protection& protection) {
  Node& node = Require(key);
  BATON_CHECK(node.ready, "protected before it is written");
  BATON_CHECK(protected_.try_emplace(protection, &node).second, "two paths have one protection");
  TakeFromLeaves(node);
  node.protections.insert(protection);
  PutToLeaves(node);
}

void RadixTree::Unprotect(const Protection& protection) {
  const auto found = protected_.find(protection);
  if (found == protected_.end()) return;
  Node& node = *found->second;
  TakeFromLeaves(node);
  node.protections.erase(protection);
  PutToLeaves(node);
  protected_.erase(found);
}

// Moves the protections of a leaf that is about to be evicted to its parent. The parent is not a
// leaf yet, so its rank is not in leaves_ and needs no update.
void RadixTree::PassOnProtections(Node& node) {
  TakeFromLeaves(node);
  for (const Protection& protection : node.protections) {
    if (node.parent == nullptr) {
      protected_.erase(protection);
    } else {
      protected_.at(protection) = node.parent;
    }
  }
  if (node.parent != nullptr && node.parent->protections.empty()) {
    node.parent->protections.swap(node.protections);
  } else if (node.parent != nullptr) {
    node.parent->protections.merge(node.protections);
  }
  node.protections.clear();
}

std::optional<BlockRef> RadixTree::Allocate(Evicting evicting) {
  if (pool_.counts().free == 0 && !EvictOne(evicting)) return std::nullopt;
  return pool_.Allocate();
}

void RadixTree::CheckInvariants() const {
  pool_.CheckInvariants();
  absl::flat_hash_map<const Node*, int64_t> children;
  absl::flat_hash_set<BlockId> blocks;
  size_t leaves = 0, protections = 0;
  for (const auto& [key, owned] : nodes_) {
    const Node& node = *owned;
    BATON_CHECK(node.key == key, "a node is listed under a wrong key");
    BATON_CHECK(blocks.insert(node.block).second, "two nodes share a block");
    BATON_CHECK(pool_.IsRetained(node.block) == node.ready, "the pool retains exactly the ready nodes");
    BATON_CHECK(node.ready || pool_.ReferencesOf(node.block) > 0, "a promised node has no reference");
    if (node.parent != nullptr) {
      ++children[node.parent];
      BATON_CHECK(NodeOf(node.parent->key) == node.parent, "a node outlived its parent");
      BATON_CHECK(!node.ready || node.parent->ready, "ready before its parent");
      BATON_CHECK(pool_.ReferencesOf(node.block) == 0 || pool_.ReferencesOf(node.parent->block) > 0,
                  "a node is held without its parent");
    }
    for (const Protection& protection : node.protections) {
      BATON_CHECK(protected_.at(protection) == &node, "a protection of another node");
    }
    protections += node.protections.size();
    if (!IsLeaf(node)) continue;
    ++leaves;
    const auto leaf = leaves_.find(RankOf(node));
    BATON_CHECK(leaf != leaves_.end() && leaf->second == &node, "a leaf is missing from the eviction order");
  }
  for (const auto& [key, node] : nodes_) {
    const auto counted = children.find(node.get());
    BATON_CHECK(node->children == (counted == children.end() ? 0 : counted->second), "children miscounted");
  }
  BATON_CHECK(leaves == leaves_.size(), "the eviction order has a node that is not a leaf");
  BATON_CHECK(protections == protected_.size(), "a protection of no node");
}

}  // namespace baton
