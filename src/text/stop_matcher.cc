#include "text/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace baton {
namespace {

uint64_t EdgeKey(int32_t node, char byte) {
  return uint64_t{static_cast<uint32_t>(node)} << 8 | static_cast<uint8_t>(byte);
}

}  // namespace

StopMatcher::StopMatcher(std::span<const std::string> stops) {
  const auto trie = std::make_shared<Trie>();
  trie_ = trie;
  trie->states.emplace_back();
  for (const std::string& stop : stops) Insert(stop, *trie);
  LinkFailures(*trie);
}

void StopMatcher::Insert(std::string_view stop, Trie& trie) {
  BATON_CHECK(!stop.empty(), "an empty stop string");
  Node node = kRoot;
  for (const char byte : stop) {
    const Node next = static_cast<Node>(trie.states.size());
    const auto [edge, added] = trie.children.try_emplace(EdgeKey(node, byte), next);
    if (added) trie.states.push_back({.depth = trie.states[node].depth + 1});
    node = edge->second;
  }
  trie.states[node].match = trie.states[node].depth;
}

// Computes the failure links in breadth-first order. The failure of a state is less deep than the
// state, so it is complete before it is used.
void StopMatcher::LinkFailures(Trie& trie) {
  std::vector<std::pair<uint64_t, Node>> edges(trie.children.begin(), trie.children.end());
  std::sort(edges.begin(), edges.end(), [&trie](const auto& a, const auto& b) {
    return std::pair(trie.states[a.second].depth, a.second) < std::pair(trie.states[b.second].depth, b.second);
  });
  for (const auto& [key, node] : edges) {
    const Node parent = static_cast<Node>(key >> 8);
    const char byte = static_cast<char>(key & 0xff);
    State& state = trie.states[node];
    if (parent != kRoot) state.failure = Step(trie.states[parent].failure, {&byte, 1});
    state.match = std::max(state.match, trie.states[state.failure].match);
  }
}

// Returns the state behind `bytes`, or kNone if no stop string continues with them.
StopMatcher::Node StopMatcher::Descend(Node node, std::string_view bytes) const {
  for (const char byte : bytes) {
    const auto edge = trie_->children.find(EdgeKey(node, byte));
    if (edge == trie_->children.end()) return kNone;
    node = edge->second;
  }
  return node;
}

StopMatcher::Node StopMatcher::Step(Node node, std::string_view bytes) const {
  while (true) {
    const Node next = Descend(node, bytes);
    if (next != kNone) return next;
    if (node == kRoot) return kRoot;
    node = trie_->states[node].failure;
  }
}

// As Step, but skips states whose text begins inside a name.
StopMatcher::Node StopMatcher::StepNamed(Node node, std::string_view bytes) const {
  while (true) {
    const Node next = NamedPlace(trie_->states[node].depth) ? Descend(node, bytes) : kNone;
    if (next != kNone) return next;
    if (node == kRoot) return kRoot;
    node = trie_->states[node].failure;
  }
}

// A name at the place itself is before it.
StopMatcher::Place StopMatcher::ShownPlace(int32_t bytes) const {
  const size_t at = held_.size() - static_cast<size_t>(bytes);
  const auto behind = std::ranges::upper_bound(names_, at, {}, &Name::at);
  return {at, static_cast<size_t>(names_.end() - behind)};
}

std::optional<StopMatcher::Place> StopMatcher::NamedPlace(int32_t bytes) const {
  auto rest = static_cast<size_t>(bytes);
  Place place{held_.size(), 0};
  for (; place.names < names_.size(); ++place.names) {
    const Name& name = names_[names_.size() - 1 - place.names];
    const size_t between = place.at - name.at;
    if (rest <= between) break;
    if (rest < between + name.size) return std::nullopt;
    rest -= between + name.size;
    place.at = name.at;
  }
  place.at -= rest;
  return place;
}

std::optional<StopMatcher::Place> StopMatcher::ShownMatch() const {
  if (paused_) return std::nullopt;
  const int32_t match = trie_->states[shown_].match;
  return match > 0 ? std::optional(ShownPlace(match)) : std::nullopt;
}

std::optional<StopMatcher::Place> StopMatcher::NamedMatch() const {
  if (paused_) return std::nullopt;
  for (Node node = named_; trie_->states[node].match > 0; node = trie_->states[node].failure) {
    const auto& [depth, match, failure] = trie_->states[node];
    if (match < depth) continue;  // the stop string is that of another state
    if (const std::optional<Place> begin = NamedPlace(depth)) return begin;
  }
  return std::nullopt;
}

std::string StopMatcher::Push(std::string_view text) {
  if (stopped_) return "";
  if (empty()) return std::string(text);
  for (const char byte : text) {
    const std::string_view one(&byte, 1);
    if (!names_.empty()) named_ = StepNamed(named_, one);
    shown_ = Step(shown_, one);
    if (names_.empty()) named_ = shown_;
    held_ += byte;
    const std::optional<Place> shown = ShownMatch(), named = names_.empty() ? std::nullopt : NamedMatch();
    if (shown && named) {
      Stop({std::min(shown->at, named->at), std::max(shown->names, named->names)});
    } else if (shown || named) {
      Stop(shown ? *shown : *named);
    }
    if (stopped_) return std::exchange(held_, "");
  }
  return Release();
}

std::string StopMatcher::PushName(std::string_view name) {
  if (stopped_ || empty()) return "";
  named_ = StepNamed(named_, name);
  names_.push_back({held_.size(), name.size()});
  if (const std::optional<Place> begin = NamedMatch()) {
    Stop(*begin);
    return std::exchange(held_, "");
  }
  return Release();
}

// Drops the text from `begin` on.
void StopMatcher::Stop(Place begin) {
  stopped_ = true;
  held_.resize(begin.at);
  names_.erase(names_.begin(), names_.end() - static_cast<std::ptrdiff_t>(begin.names));
}

// Returns the text that no stop string of either view can begin in.
std::string StopMatcher::Release() {
  const Place shown = ShownPlace(trie_->states[shown_].depth), named = *NamedPlace(trie_->states[named_].depth);
  const Place keep{std::min(shown.at, named.at), std::max(shown.names, named.names)};
  names_.erase(names_.begin(), names_.end() - static_cast<std::ptrdiff_t>(keep.names));
  if (keep.at > 0) {
    for (Name& name : names_) name.at -= keep.at;
  }
  std::string out = held_.substr(0, keep.at);
  held_.erase(0, keep.at);
  return out;
}

std::string StopMatcher::Finish() {
  if (stopped_) return "";
  shown_ = named_ = kRoot;
  names_.clear();
  return std::exchange(held_, "");
}

}  // namespace baton
