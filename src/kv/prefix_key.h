// The name of a full block: SHA-256 over (prefill module digest, cache salt, parent key, token ids), chained.
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
  // The key is already uniform: its first bytes are its hash.
  template <typename H>
  friend H AbslHashValue(H h, const BlockKey& key) {
    uint64_t head;
    std::memcpy(&head, key.bytes.data(), sizeof head);
    return H::combine(std::move(h), head);
  }
};

// The parent key of a prompt's first block. The salt separates tenants.
BlockKey RootKey(std::span<const uint8_t, 32> module_digest, std::string_view salt);

// `tokens` are the block's 16 token ids.
BlockKey ChildKey(const BlockKey& parent, std::span<const TokenId> tokens);

// Keys of the full blocks of `tokens`; a partial last block has none.
std::vector<BlockKey> BlockKeys(const BlockKey& root, std::span<const TokenId> tokens);

}  // namespace baton
