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
  states_.emplace_back();
  for (const std::string& stop : stops) Insert(stop);
  LinkFailures();
}

void StopMatcher::Insert(std::string_view stop) {
  BATON_CHECK(!stop.empty(), "an empty stop string");
  Node node = kRoot;
  for (const char byte : stop) {
    const Node next = static_cast<Node>(states_.size());
    const auto [edge, added] = children_.try_emplace(EdgeKey(node, byte), next);
    if (added) states_.push_back({.depth = states_[node].depth + 1});
    node = edge->second;
  }
  states_[node].match = states_[node].depth;
}

// Computes the failure links in breadth-first order. The failure of a state is less deep than the
// state, so it is complete before it is used.
void StopMatcher::LinkFailures() {
  std::vector<std::pair<uint64_t, Node>> edges(children_.begin(), children_.end());
  std::sort(edges.begin(), edges.end(), [this](const auto& a, const auto& b) {
    return std::pair(states_[a.second].depth, a.second) < std::pair(states_[b.second].depth, b.second);
  });
  for (const auto& [key, node] : edges) {
    const Node parent = static_cast<Node>(key >> 8);
    const char byte = static_cast<char>(key & 0xff);
    State& state = states_[node];
    if (parent != kRoot) state.failure = Step(states_[parent].failure, byte);
    state.match = std::max(state.match, states_[state.failure].match);
  }
}

StopMatcher::Node StopMatcher::Child(Node node, char byte) const {
  const auto edge = children_.find(EdgeKey(node, byte));
  return edge == children_.end() ? kNone : edge->second;
}

StopMatcher::Node StopMatcher::Step(Node node, char byte) const {
  while (true) {
    const Node next = Child(node, byte);
    if (next != kNone) return next;
    if (node == kRoot) return kRoot;
    node = states_[node].failure;
  }
}

std::string StopMatcher::Push(std::string_view text) {
  if (stopped_) return "";
  if (empty()) return std::string(text);
  held_ += text;
  size_t end = held_.size() - text.size();
  for (const char byte : text) {
    ++end;
    at_ = Step(at_, byte);
    if (const int32_t match = states_[at_].match; match > 0) {
      stopped_ = true;
      held_.resize(end - match);
      return std::exchange(held_, "");
    }
  }
  const size_t shown = held_.size() - states_[at_].depth;
  std::string out = held_.substr(0, shown);
  held_.erase(0, shown);
  return out;
}

std::string StopMatcher::Finish() {
  at_ = kRoot;
  return std::exchange(held_, "");
}

}  // namespace baton
