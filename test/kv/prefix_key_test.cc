#include "kv/prefix_key.h"

#include <numeric>
#include <vector>

#include "absl/strings/escaping.h"
#include "catch.h"
#include "kv/block_layout.h"

namespace baton {
namespace {

std::string Hex(const BlockKey& key) {
  return absl::BytesToHexString({reinterpret_cast<const char*>(key.bytes.data()), key.bytes.size()});
}

std::array<uint8_t, 32> SomeDigest() {
  std::array<uint8_t, 32> digest;
  std::iota(digest.begin(), digest.end(), uint8_t{0});
  return digest;
}

std::vector<TokenId> Tokens(int count) {
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

// Python computed the expected values. The root is sha256(b"baton kv root 1" + bytes(range(32)) +
// b"tenant-a"), and each key is sha256(parent + struct.pack("<16i", *tokens)).
TEST_CASE("RootKey and BlockKeys compute the chained SHA-256 that Python computes") {
  const BlockKey root = RootKey(SomeDigest(), "tenant-a");
  CHECK(Hex(root) == "512b6118b06ac26329a646d438b9bbb43d82b6bb2916aefa932d83fd225aa759");
  const auto keys = BlockKeys(root, Tokens(32));
  REQUIRE(keys.size() == 2);
  CHECK(Hex(keys[0]) == "6e3bc14eefc93a2d292ee26bc005bdddc79a192b6bd918cd76564bbd8764b6a1");
  CHECK(Hex(keys[1]) == "07eea64c7cc11e1bc1214403b9e2c34fa73115a18b80eced87823e2ef2a43059");
}

TEST_CASE("BlockKeys gives no key to a partial last block") {
  const BlockKey root = RootKey(SomeDigest(), "");
  CHECK(BlockKeys(root, Tokens(0)).empty());
  CHECK(BlockKeys(root, Tokens(15)).empty());
  CHECK(BlockKeys(root, Tokens(16)).size() == 1);
  CHECK(BlockKeys(root, Tokens(47)).size() == 2);
}

TEST_CASE("A block key depends on module, cache domain and all tokens up to its end") {
  const BlockKey root = RootKey(SomeDigest(), "a");
  auto other_digest = SomeDigest();
  other_digest[31] ^= 1;
  CHECK_FALSE(root == RootKey(other_digest, "a"));
  CHECK_FALSE(root == RootKey(SomeDigest(), "b"));

  const auto keys = BlockKeys(root, Tokens(32));
  for (size_t changed = 0; changed < 32; ++changed) {
    auto tokens = Tokens(32);
    tokens[changed] += 1000;
    const auto others = BlockKeys(root, tokens);
    CHECK((keys[0] == others[0]) == (changed >= kBlockTokens));
    CHECK_FALSE(keys[1] == others[1]);
  }
  auto swapped = Tokens(16);
  std::swap(swapped[3], swapped[4]);
  CHECK_FALSE(BlockKeys(root, swapped)[0] == keys[0]);
}

}  // namespace
}  // namespace baton
