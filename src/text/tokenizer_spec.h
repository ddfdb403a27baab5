// What a byte-level BPE tokenizer is made of, independent of how its files are written.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/sha256.h"

namespace baton {

struct MergeRule {
  TokenId left, right, merged;
};

// A token that is cut out of the text before anything else is looked at.
struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool special = false;     // gives no text
  bool normalized = false;  // searched for in normalised text, not in the text as given
};

struct TokenizerSpec {
  std::vector<std::string> tokens;  // raw bytes by id; empty where an id has no token
  std::vector<MergeRule> merges;    // the first is applied first
  bool ignore_merges = false;       // a pre-token that is a token is that token, whatever the merges say
  std::optional<TokenId> unknown;   // stands for a byte that is no token; none: such a byte is dropped
  std::vector<AddedToken> added;    // by ascending id; their contents are in `tokens` too
  bool nfc = false;                 // normalise to NFC first
  std::vector<std::string> split;   // patterns, each splitting the pieces of the one before
  std::vector<TokenId> prompt_prefix;
};

// SHA-256 over all that decides which ids a text becomes, and which text ids become.
Digest DigestOf(const TokenizerSpec& spec);

}  // namespace baton
