// Ends a stream of text before the first stop string, however it is split over tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace baton {

// Text that may be the start of a stop string is held back until it is known. Of several stop strings the one that is
// complete first counts; of those complete at the same byte, the longest. Time is linear in the text, whatever the
// number of stop strings (Aho and Corasick 1975).
class StopMatcher {
 public:
  // None may be empty.
  explicit StopMatcher(std::span<const std::string> stops);

  // The text that may be shown now. Once a stop string is complete, everything from its first byte on is dropped.
  std::string Push(std::string_view text);
  // Ends the stream: what is still held back, which turned out to be no stop string.
  std::string Finish();
  bool stopped() const { return stopped_; }
  bool empty() const { return states_.size() == 1; }  // there are no stop strings

 private:
  using Node = int32_t;
  static constexpr Node kRoot = 0;
  static constexpr Node kNone = -1;

  void Insert(std::string_view stop);
  void LinkFailures();
  Node Child(Node node, char byte) const;
  Node Step(Node node, char byte) const;

  struct State {
    int32_t depth = 0;  // bytes from the root
    int32_t match = 0;  // length of the longest stop string that ends here, 0: none
    Node failure = kRoot;
  };
  std::vector<State> states_;  // the trie of the stop strings, root first
  absl::flat_hash_map<uint64_t, Node> children_;

  Node at_ = kRoot;
  std::string held_;  // states_[at_].depth bytes
  bool stopped_ = false;
};

}  // namespace baton
