// The parts of a byte-level BPE tokenizer, independent of the format of its files.
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

// A token that is cut out of the text before the pre-tokenizer and the merges run.
struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool special = false;     // decodes to no text
  bool normalized = false;  // true: found in the normalised text; false: found in the raw text
};

struct TokenizerSpec {
  std::vector<std::string> tokens;  // raw bytes by id; empty if an id has no token
  std::vector<MergeRule> merges;    // the first has the highest precedence
  bool ignore_merges = false;       // a pre-token that equals a token becomes it without merges
  std::optional<TokenId> unknown;   // replaces a byte without token; nullopt: the byte is dropped
  std::vector<AddedToken> added;    // by ascending id; their contents are in `tokens` as well
  bool nfc = false;                 // normalise text to NFC
  std::vector<std::string> split;   // patterns; each splits the pieces of the previous pattern
  std::vector<TokenId> prompt_prefix;
};

// Returns the SHA-256 of all fields that determine the ids of a text and the text of ids.
// prompt_prefix is not included.
Digest DigestOf(const TokenizerSpec& spec);

}  // namespace baton
