// The matcher of stop strings. It ends a stream of text before the first stop string, even if that
// string is split over several tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace baton {

// The state of one stream. The stream consists of shown text and of names of special tokens, which
// are not shown. A stop string may occur in two views: in the shown text, and in the text with the
// names. In the second view it contains a name as a whole or not at all.
//
// The matcher holds back text that may be the start of a stop string. If several stop strings
// occur, the one that is complete first counts. If several are complete at the same byte, the one
// that begins first counts. The time is linear in the text (Aho and Corasick 1975). A byte behind
// a held name may take the square of a stop string's length. Copies share one trie.
class StopMatcher {
 public:
  // REQUIRES: no stop string is empty.
  explicit StopMatcher(std::span<const std::string> stops);

  // Adds shown text. Returns the text that is now known to be before any stop string. Once a stop
  // string is complete, its text and all later text are dropped.
  std::string Push(std::string_view text);
  // Adds the name of a special token. Returns text as Push does.
  std::string PushName(std::string_view name);
  // While the matcher is paused, a complete stop string does not end the stream. A later one may
  // begin in text that was added during the pause.
  void set_paused(bool paused) { paused_ = paused; }
  // Ends the stream. Returns the text that is still held back, which is not a stop string.
  std::string Finish();
  // Returns true once a stop string is complete.
  bool stopped() const { return stopped_; }
  // Returns true if there are no stop strings.
  bool empty() const { return trie_->states.size() == 1; }
  // The number of the last names that are held back with the text, or that a stop string dropped.
  size_t held_names() const { return names_.size(); }

 private:
  using Node = int32_t;
  static constexpr Node kRoot = 0;
  static constexpr Node kNone = -1;

  Node Descend(Node node, std::string_view bytes) const;
  Node Step(Node node, std::string_view bytes) const;

  struct State {
    int32_t depth = 0;  // bytes from the root
    int32_t match = 0;  // length of the longest stop string that ends here; 0 if there is none
    Node failure = kRoot;
  };
  struct Trie {
    std::vector<State> states;  // root first
    absl::flat_hash_map<uint64_t, Node> children;
  };
  void Insert(std::string_view stop, Trie& trie);
  void LinkFailures(Trie& trie);

  // A name behind held_[0, at).
  struct Name {
    size_t at, size;
  };
  // A place in the stream: held_[at, end) and the last `names` names are behind it.
  struct Place {
    size_t at, names;
  };
  // Returns the place `bytes` before the end in the shown text.
  Place ShownPlace(int32_t bytes) const;
  // Returns the place `bytes` before the end in the text with names. Returns nullopt if it is
  // inside a name.
  std::optional<Place> NamedPlace(int32_t bytes) const;
  Node StepNamed(Node node, std::string_view bytes) const;
  // Returns where the stop string begins that is complete now.
  std::optional<Place> ShownMatch() const;
  std::optional<Place> NamedMatch() const;
  void Stop(Place begin);
  std::string Release();

  std::shared_ptr<const Trie> trie_;
  Node shown_ = kRoot;       // the state of the shown text
  Node named_ = kRoot;       // the state of the text with names; equal to shown_ without names_
  std::string held_;         // the shown text that is held back
  std::vector<Name> names_;  // the names that are held back
  bool paused_ = false;
  bool stopped_ = false;
};

}  // namespace baton
