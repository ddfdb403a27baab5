// Prompts for tests of the parts of the prefill scheduler.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/prefill/prompt.h"
#include "kv/prefix_key.h"
#include "kv/radix_tree.h"

namespace baton {

// Returns a prompt of `blocks` whole blocks. Prompts with different `first` tokens share no block.
inline std::unique_ptr<PrefillPrompt> MakePrompt(const std::string& id, TokenId first, int64_t blocks) {
  auto prompt = std::make_unique<PrefillPrompt>();
  prompt->id = id;
  prompt->spec.tokens = std::vector<TokenId>(static_cast<size_t>(blocks * kBlockTokens), first);
  prompt->keys = BlockKeys(RootKey(std::array<uint8_t, 32>{}, ""), prompt->spec.tokens);
  prompt->kv_tokens = prompt->wanted = blocks * kBlockTokens;
  prompt->arrival = static_cast<uint64_t>(first);
  return prompt;
}

// Puts all blocks of a prompt into the tree, ready and without references.
inline void Cache(RadixTree& tree, const PrefillPrompt& prompt) {
  std::vector<BlockRef> blocks;
  const std::span<const BlockKey> keys(prompt.keys);
  for (size_t i = 0; i < keys.size(); ++i) {
    blocks.push_back(*tree.Allocate());
    tree.Promise(keys.first(i + 1), blocks.back());
    tree.MakeReady(keys[i]);
  }
}

}  // namespace baton
