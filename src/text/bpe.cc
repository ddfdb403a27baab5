#include "text/bpe.h"

#include <algorithm>
#include <functional>
#include <queue>

namespace baton {
namespace {

// Up to this many bytes, a scan over all neighbours is faster than a priority queue of them.
constexpr size_t kShortWord = 48;

uint64_t PairKey(TokenId left, TokenId right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

Bpe::Bpe(const TokenizerSpec& spec)
    : ignore_merges_(spec.ignore_merges), reachable_(new std::atomic<Reachable>[spec.tokens.size()]()) {
  std::vector<bool> special(spec.tokens.size());
  for (const AddedToken& token : spec.added) special[token.id] = token.special;
  byte_token_.fill(spec.unknown.value_or(kNoToken));
  whole_.reserve(spec.tokens.size());
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    const std::string& token = spec.tokens[i];
    // Text that looks like a special token must not become that token.
    if (token.empty() || special[i]) continue;
    whole_.emplace(token, static_cast<TokenId>(i));
    if (token.size() != 1) continue;
    byte_token_[static_cast<uint8_t>(token[0])] = static_cast<TokenId>(i);
    has_byte_[static_cast<uint8_t>(token[0])] = true;
  }
  rules_.reserve(spec.merges.size());
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const MergeRule& merge = spec.merges[rank];
    rules_.insert_or_assign(PairKey(merge.left, merge.right), Rule{static_cast<uint32_t>(rank), merge.merged});
  }
}

Bpe::Rule Bpe::FindRule(TokenId left, TokenId right) const {
  const auto found = rules_.find(PairKey(left, right));
  return found == rules_.end() ? Rule{} : found->second;
}

std::vector<TokenId> Bpe::Bytes(std::string_view word) const {
  std::vector<TokenId> tokens;
  tokens.reserve(word.size());
  for (const char byte : word) {
    const TokenId token = byte_token_[static_cast<uint8_t>(byte)];
    if (token != kNoToken) tokens.push_back(token);
  }
  return tokens;
}

void Bpe::Encode(std::string_view word, std::vector<TokenId>& out) const {
  const auto whole = whole_.find(word);
  if (whole != whole_.end() && (ignore_merges_ || MergesToItself(whole->second, word))) {
    out.push_back(whole->second);
  } else {
    Merge(word, out);
  }
}

bool Bpe::HasByte(uint8_t byte) const { return has_byte_[byte]; }

bool Bpe::KeepsAllBytes() const {
  return std::find(byte_token_.begin(), byte_token_.end(), kNoToken) == byte_token_.end();
}

bool Bpe::MergesToItself(TokenId id, std::string_view word) const {
  std::atomic<Reachable>& cached = reachable_[id];
  Reachable reachable = cached.load(std::memory_order_relaxed);
  if (reachable == Reachable::kUnknown) {
    std::vector<TokenId> tokens;
    Merge(word, tokens);
    reachable = tokens == std::vector<TokenId>{id} ? Reachable::kYes : Reachable::kNo;
    cached.store(reachable, std::memory_order_relaxed);
  }
  return reachable == Reachable::kYes;
}

void Bpe::Merge(std::string_view word, std::vector<TokenId>& out) const {
  word.size() <= kShortWord ? MergeShort(word, out) : MergeLong(word, out);
}

void Bpe::MergeShort(std::string_view word, std::vector<TokenId>& out) const {
  std::array<TokenId, kShortWord> tokens;
  std::array<Rule, kShortWord> rules;  // rules[i] merges tokens[i] and tokens[i + 1]
  size_t count = 0;
  for (const char byte : word) {
    const TokenId token = byte_token_[static_cast<uint8_t>(byte)];
    if (token != kNoToken) tokens[count++] = token;
  }
  for (size_t i = 0; i + 1 < count; ++i) rules[i] = FindRule(tokens[i], tokens[i + 1]);
  while (count > 1) {
    const auto first = std::min_element(rules.begin(), rules.begin() + (count - 1),
                                        [](const Rule& a, const Rule& b) { return a.rank < b.rank; });
    if (first->rank == kNoRule) break;
    const size_t at = first - rules.begin();
    tokens[at] = first->merged;
    std::copy(tokens.begin() + at + 2, tokens.begin() + count, tokens.begin() + at + 1);
    std::copy(rules.begin() + at + 1, rules.begin() + (count - 1), rules.begin() + at);
    --count;
    if (at > 0) rules[at - 1] = FindRule(tokens[at - 1], tokens[at]);
    if (at + 1 < count) rules[at] = FindRule(tokens[at], tokens[at + 1]);
  }
  out.insert(out.end(), tokens.begin(), tokens.begin() + count);
}

// Merges with a linked list of tokens and a priority queue. The queue has all possible merges, and
// also merges that have become impossible since they were pushed.
void Bpe::MergeLong(std::string_view word, std::vector<TokenId>& out) const {
  struct Node {
    TokenId token;
    uint32_t previous, next;
    Rule rule;  // merges this token and the next
  };
  const std::vector<TokenId> bytes = Bytes(word);
  const auto end = static_cast<uint32_t>(bytes.size());
  std::vector<Node> nodes(end);
  for (uint32_t i = 0; i < end; ++i) {
    nodes[i] = {bytes[i], i - 1, i + 1, i + 1 < end ? FindRule(bytes[i], bytes[i + 1]) : Rule{}};
  }
  // An entry is merge index << 32 | node, so that the earliest rule comes first, and then the
  // leftmost node.
  std::vector<uint64_t> possible;
  for (uint32_t i = 0; i < end; ++i) {
    if (nodes[i].rule.rank != kNoRule) possible.push_back(uint64_t{nodes[i].rule.rank} << 32 | i);
  }
  std::priority_queue queue(std::greater<uint64_t>{}, std::move(possible));
  const auto update_rule = [&](uint32_t at) {
    Node& node = nodes[at];
    node.rule = node.next < end ? FindRule(node.token, nodes[node.next].token) : Rule{};
    if (node.rule.rank != kNoRule) queue.push(uint64_t{node.rule.rank} << 32 | at);
  };
  while (!queue.empty()) {
    const auto rank = static_cast<uint32_t>(queue.top() >> 32);
    const auto at = static_cast<uint32_t>(queue.top());
    queue.pop();
    Node& node = nodes[at];
    if (node.rule.rank != rank) continue;  // One of the two tokens has merged with another token.
    Node& right = nodes[node.next];
    node.token = node.rule.merged;
    node.next = right.next;
    right.rule = Rule{};
    if (node.next < end) nodes[node.next].previous = at;
    update_rule(at);
    if (at > 0) update_rule(node.previous);
  }
  for (uint32_t i = 0; i < end; i = nodes[i].next) out.push_back(nodes[i].token);
}

}  // namespace baton
