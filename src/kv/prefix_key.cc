#include "kv/prefix_key.h"

#include <bit>

#include "base/check.h"
#include "base/sha256.h"
#include "kv/block_layout.h"

namespace baton {
namespace {

static_assert(std::endian::native == std::endian::little, "keys hash token ids as little-endian bytes");

constexpr std::string_view kRootDomain = "baton kv root 1";

}  // namespace

BlockKey RootKey(std::span<const uint8_t, 32> module_digest, std::string_view cache_domain) {
  std::string input(kRootDomain);
  input.append(reinterpret_cast<const char*>(module_digest.data()), module_digest.size());
  input.append(cache_domain);
  return {Sha256(input.data(), input.size())};
}

BlockKey ChildKey(const BlockKey& parent, std::span<const TokenId> tokens) {
  BATON_CHECK(tokens.size() == kBlockTokens, "only full blocks have keys");
  std::array<uint8_t, sizeof(BlockKey) + kBlockTokens * sizeof(TokenId)> input;
  std::memcpy(input.data(), parent.bytes.data(), parent.bytes.size());
  std::memcpy(input.data() + parent.bytes.size(), tokens.data(), tokens.size_bytes());
  return {Sha256(input.data(), input.size())};
}

std::vector<BlockKey> BlockKeys(const BlockKey& root, std::span<const TokenId> tokens) {
  std::vector<BlockKey> keys;
  keys.reserve(tokens.size() / kBlockTokens);
  BlockKey parent = root;
  for (size_t begin = 0; begin + kBlockTokens <= tokens.size(); begin += kBlockTokens) {
    parent = ChildKey(parent, tokens.subspan(begin, kBlockTokens));
    keys.push_back(parent);
  }
  return keys;
}

}  // namespace baton
