// The matcher of stop strings. It ends a stream of text before the first stop string, even if that
// string is split over several tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace baton {

// The state of one stream. It holds back text that may be the start of a stop string. If several
// stop strings occur, the one that is complete first counts. If several are complete at the same
// byte, the longest counts. The time is linear in the text and independent of the number of stop
// strings (Aho and Corasick 1975).
class StopMatcher {
 public:
  // REQUIRES: no stop string is empty.
  explicit StopMatcher(std::span<const std::string> stops);

  // Adds text. Returns the text that is now known to be before any stop string. Once a stop string
  // is complete, its text and all later text are dropped.
  std::string Push(std::string_view text);
  // Ends the stream. Returns the text that is still held back, which is not a stop string.
  std::string Finish();
  // Returns true once a stop string is complete.
  bool stopped() const { return stopped_; }
  // Returns true if there are no stop strings.
  bool empty() const { return states_.size() == 1; }

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
    int32_t match = 0;  // length of the longest stop string that ends here; 0 if there is none
    Node failure = kRoot;
  };
  std::vector<State> states_;  // the trie of the stop strings, root first
  absl::flat_hash_map<uint64_t, Node> children_;

  Node at_ = kRoot;
  std::string held_;  // states_[at_].depth bytes
  bool stopped_ = false;
};

}  // namespace baton
