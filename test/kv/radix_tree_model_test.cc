// Tests that compare the tree with a reference, which searches a plain list.
#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <vector>

#include "catch.h"
#include "kv/block_layout.h"
#include "kv/radix_tree.h"
#include "seeds.h"

namespace baton {
namespace {

using Prompt = std::vector<TokenId>;  // one token per block

std::vector<BlockKey> Keys(const Prompt& prompt) {
  std::vector<TokenId> tokens;
  for (TokenId token : prompt) tokens.insert(tokens.end(), kBlockTokens, token);
  return BlockKeys(RootKey(std::array<uint8_t, 32>{}, ""), tokens);
}

class Reference {
 public:
  explicit Reference(uint64_t pool_blocks) : pool_blocks_(pool_blocks) {}
  struct Node {
    Prompt path;
    BlockId block;
    bool ready = false;
    int64_t holders = 0;
    uint64_t used = 0;
    bool reused = false;
    std::set<int64_t> protections{};  // seconds of all jobs that protect a path through this node
  };

  Node* Find(const Prompt& path) {
    for (Node& node : nodes_) {
      if (node.path == path) return &node;
    }
    return nullptr;
  }
  int64_t ReadyPrefix(const Prompt& prompt) {
    for (size_t length = 1; length <= prompt.size(); ++length) {
      const Node* node = Find(Prompt(prompt.begin(), prompt.begin() + static_cast<ptrdiff_t>(length)));
      if (node == nullptr || !node->ready) return static_cast<int64_t>(length) - 1;
    }
    return static_cast<int64_t>(prompt.size());
  }
  void Add(const Prompt& path, BlockId block, bool ready) {
    nodes_.push_back({.path = path, .block = block, .ready = ready, .holders = 1, .used = ++uses_});
  }
  void Use(const Prompt& path) {
    Node& node = *Find(path);
    node.used = ++uses_;
    node.reused = true;
  }
  void Remove(const Prompt& path) {
    std::erase_if(nodes_, [&](const Node& node) { return node.path == path; });
  }
  // Returns the node that must be evicted next, or null.
  const Node* Victim() const {
    const Node* victim = nullptr;
    for (const Node& node : nodes_) {
      if (!node.ready || node.holders > 0 || HasChild(node)) continue;
      const auto order = [&](const Node& n) {
        return std::tuple(!n.protections.empty(), n.protections.empty() ? 0 : -*n.protections.begin(),
                          n.used + (n.reused ? pool_blocks_ : 0), n.used);
      };
      if (victim == nullptr || order(node) < order(*victim)) victim = &node;
    }
    return victim;
  }
  const std::vector<Node>& nodes() const { return nodes_; }
  std::vector<Node>& nodes() { return nodes_; }

 private:
  static bool StartsWith(const Prompt& whole, const Prompt& prefix) {
    return prefix.size() <= whole.size() && std::equal(prefix.begin(), prefix.end(), whole.begin());
  }
  bool HasChild(const Node& parent) const {
    return std::any_of(nodes_.begin(), nodes_.end(), [&](const Node& node) {
      return node.path.size() == parent.path.size() + 1 && StartsWith(node.path, parent.path);
    });
  }

  uint64_t pool_blocks_;
  std::vector<Node> nodes_;
  uint64_t uses_ = 0;
};

// A request with the blocks of its prompt that it holds.
struct Holder {
  Prompt prompt;
  std::vector<BlockRef> blocks;
  // Blocks [0, ready) are ready. The request itself has promised the other blocks.
  size_t ready = 0;

  Prompt Path(size_t length) const { return {prompt.begin(), prompt.begin() + static_cast<ptrdiff_t>(length)}; }
};

class Model {
 public:
  explicit Model(uint64_t seed) : random_(seed), pool_(kBlocks), tree_(pool_) {}

  void Step() {
    switch (random_() % 9) {
      case 0:
        Start();
        break;
      case 1:
      case 2:
        Promise();
        break;
      case 3:
        Insert();
        break;
      case 4:
        MakeReady();
        break;
      case 5:
        Break();
        break;
      case 6:
        End();
        break;
      case 7:
        Protect();
        break;
      case 8:
        Unprotect();
        break;
    }
    Compare();
  }

 private:
  static constexpr int64_t kBlocks = 14;

  Prompt RandomPrompt() {
    Prompt prompt(1 + random_() % 5);
    for (TokenId& token : prompt) token = static_cast<TokenId>(random_() % 2);
    return prompt;
  }
  Holder* RandomHolder() { return holders_.empty() ? nullptr : &holders_[random_() % holders_.size()]; }

  std::optional<BlockRef> Allocate() {
    const bool must_evict = pool_.counts().free == 0;
    const Reference::Node* victim = reference_.Victim();
    std::optional<BlockRef> block = tree_.Allocate();
    REQUIRE(block.has_value() == (!must_evict || victim != nullptr));
    if (must_evict && victim != nullptr) {
      REQUIRE(block->id() == victim->block);
      reference_.Remove(Prompt(victim->path));
    }
    return block;
  }

  void Start() {
    Holder holder{.prompt = RandomPrompt(), .blocks = {}};
    const int64_t expected = reference_.ReadyPrefix(holder.prompt);
    const bool is_use = random_() % 3 > 0;
    if (is_use) {
      holder.blocks = tree_.Match(Keys(holder.prompt));
    } else {
      const std::vector<BlockKey> keys = Keys(holder.prompt);
      for (const BlockKey& key : std::span(keys).first(static_cast<size_t>(expected))) {
        holder.blocks.push_back(tree_.Share(key));
      }
    }
    REQUIRE(static_cast<int64_t>(holder.blocks.size()) == expected);
    holder.ready = holder.blocks.size();
    for (size_t i = 1; i <= holder.ready; ++i) {
      if (is_use) reference_.Use(holder.Path(i));
      ++reference_.Find(holder.Path(i))->holders;
    }
    holders_.push_back(std::move(holder));
  }

  void Protect() {
    const Prompt prompt = RandomPrompt();
    const auto ready = static_cast<size_t>(reference_.ReadyPrefix(prompt));
    const int64_t job_time = RandomJobTime();
    const bool is_taken = std::ranges::any_of(
        reference_.nodes(), [&](const Reference::Node& node) { return node.protections.contains(job_time); });
    if (ready == 0 || is_taken) return;
    tree_.Protect(Keys(prompt)[ready - 1], JobAt(job_time));
    for (size_t i = 1; i <= ready; ++i) reference_.Find(First(prompt, i))->protections.insert(job_time);
  }
  void Unprotect() {
    const int64_t job_time = RandomJobTime();
    tree_.Unprotect(JobAt(job_time));
    for (Reference::Node& node : reference_.nodes()) node.protections.erase(job_time);
  }
  int64_t RandomJobTime() { return static_cast<int64_t>(random_() % 4); }  // seconds
  static Prompt First(const Prompt& prompt, size_t length) {
    return {prompt.begin(), prompt.begin() + static_cast<ptrdiff_t>(length)};
  }
  static Protection JobAt(int64_t seconds) { return Protection::OfQueuedJob(0, absl::FromUnixSeconds(seconds), 0); }

  // Returns a request that can take its next block, or null. With `nothing_promised`, the request
  // has promised no block.
  Holder* Extendable(bool nothing_promised) {
    Holder* holder = RandomHolder();
    if (holder == nullptr || holder->blocks.size() == holder->prompt.size()) return nullptr;
    if (nothing_promised && holder->ready < holder->blocks.size()) return nullptr;
    return holder;
  }
  void Promise() {
    Holder* holder = Extendable(false);
    if (holder == nullptr) return;
    const Prompt path = holder->Path(holder->blocks.size() + 1);
    if (reference_.Find(path) != nullptr) return;
    std::optional<BlockRef> block = Allocate();
    if (!block || reference_.Find(path) != nullptr) return;
    tree_.Promise(Keys(path), *block);
    reference_.Add(path, block->id(), false);
    holder->blocks.push_back(std::move(*block));
  }
  void Insert() {
    Holder* holder = Extendable(true);
    if (holder == nullptr) return;
    const Prompt path = holder->Path(holder->blocks.size() + 1);
    std::optional<BlockRef> block = Allocate();
    if (!block) return;
    Reference::Node* there = reference_.Find(path);
    if (there != nullptr && !there->ready) return;
    holder->blocks.push_back(tree_.Insert(Keys(path), std::move(*block)));
    if (there != nullptr) {
      REQUIRE(holder->blocks.back().id() == there->block);
      ++there->holders;
      reference_.Use(path);
    } else {
      reference_.Add(path, holder->blocks.back().id(), true);
    }
    ++holder->ready;
  }
  void MakeReady() {
    Holder* holder = RandomHolder();
    if (holder == nullptr || holder->ready == holder->blocks.size()) return;
    const Prompt path = holder->Path(++holder->ready);
    tree_.MakeReady(Keys(path).back());
    reference_.Find(path)->ready = true;
  }
  void Break() {
    Holder* holder = RandomHolder();
    if (holder == nullptr || holder->ready == holder->blocks.size()) return;
    const Prompt path = holder->Path(holder->blocks.size());
    tree_.Break(Keys(path).back());
    reference_.Remove(path);
    holder->blocks.pop_back();
  }
  void End() {
    Holder* holder = RandomHolder();
    if (holder == nullptr || holder->ready < holder->blocks.size()) return;
    for (size_t i = holder->blocks.size(); i > 0; --i) {
      --reference_.Find(holder->Path(i))->holders;
      holder->blocks.pop_back();
    }
    std::swap(*holder, holders_.back());
    holders_.pop_back();
  }
  void Compare() {
    tree_.CheckInvariants();
    REQUIRE(tree_.size() == static_cast<int64_t>(reference_.nodes().size()));
    int64_t cached = 0;
    for (const Reference::Node& node : reference_.nodes()) {
      const auto state = node.ready ? RadixTree::State::kReady : RadixTree::State::kPromised;
      REQUIRE(tree_.Find(Keys(node.path).back()) == state);
      REQUIRE(pool_.ReferencesOf(node.block) == node.holders);
      cached += node.ready && node.holders == 0;
    }
    REQUIRE(pool_.counts().cached == cached);
  }

  std::mt19937 random_;
  BlockPool pool_;
  RadixTree tree_;
  Reference reference_{kBlocks};
  std::vector<Holder> holders_;
};

TEST_CASE("RadixTree agrees with a naive reference under random use") {
  ForEachSeed(10, [](uint64_t seed) {
    Model model(seed);
    for (int step = 0; step < 1000; ++step) model.Step();
  });
}

}  // namespace
}  // namespace baton
