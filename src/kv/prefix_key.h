// The keys of full blocks. A block's key is a chained SHA-256 over the prefill module digest, the
// cache domain, the parent key and the token ids.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace baton {

struct BlockKey {
  std::array<uint8_t, 32> bytes{};
  friend bool operator==(const BlockKey&, const BlockKey&) = default;
  // The key is uniformly distributed, so its first bytes serve as its hash.
  template <typename H>
  friend H AbslHashValue(H h, const BlockKey& key) {
    uint64_t head;
    std::memcpy(&head, key.bytes.data(), sizeof head);
    return H::combine(std::move(h), head);
  }
};

// Returns the parent key of a prompt's first block. Only requests of the same cache domain share
// blocks.
BlockKey RootKey(std::span<const uint8_t, 32> module_digest, std::string_view cache_domain);

// Returns the key of a block. `tokens` are the block's 16 token ids.
BlockKey ChildKey(const BlockKey& parent, std::span<const TokenId> tokens);

// Returns the keys of the full blocks of `tokens`. A partial last block has no key.
std::vector<BlockKey> BlockKeys(const BlockKey& root, std::span<const TokenId> tokens);

}  // namespace baton
