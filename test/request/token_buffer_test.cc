#include "request/token_buffer.h"

#include <random>

#include "catch.h"
#include "seeds.h"

namespace baton {
namespace {

using Tokens = std::vector<TokenId>;

TEST_CASE("TokenBuffer takes a vector's memory, and copies and suffixes share it") {
  Tokens tokens{1, 2, 3, 4};
  const TokenId* memory = tokens.data();
  const TokenBuffer buffer = std::move(tokens), copy = buffer;
  CHECK(buffer.data() == memory);
  CHECK(copy.data() == memory);
  CHECK(buffer.Suffix(1).data() == memory + 1);
  CHECK(buffer.Suffix(1) == Tokens{2, 3, 4});
  CHECK(buffer.Suffix(4).empty());
  CHECK(TokenBuffer().Suffix(0).empty());
}

TEST_CASE("TokenBuffer appends in place while there is room and changes no other buffer") {
  Tokens tokens{1, 2};
  tokens.reserve(8);
  TokenBuffer buffer = std::move(tokens);
  const TokenBuffer before = buffer;
  buffer.Append(Tokens{3, 4});
  CHECK(buffer.data() == before.data());
  CHECK(buffer == Tokens{1, 2, 3, 4});
  CHECK(before == Tokens{1, 2});
  SECTION("when a second copy appends") {
    TokenBuffer other = before;
    other.Append(Tokens{5});
    CHECK(other == Tokens{1, 2, 5});
    CHECK(buffer == Tokens{1, 2, 3, 4});
  }
  SECTION("when there is no room and the tokens move") {
    const std::span<const TokenId> span = before;
    buffer.Append(Tokens(100, 7));
    CHECK(buffer.size() == 104);
    CHECK(buffer.data() != before.data());
    CHECK(std::ranges::equal(span, Tokens{1, 2}));
  }
  SECTION("when a suffix appends") {
    TokenBuffer suffix = buffer.Suffix(3);
    suffix.Append(Tokens{5, 6});
    CHECK(suffix == Tokens{4, 5, 6});
    CHECK(buffer == Tokens{1, 2, 3, 4});
  }
}

TEST_CASE("TokenBuffers of one size are equal only when their tokens are") {
  CHECK(TokenBuffer(Tokens{1, 2}) == TokenBuffer(Tokens{1, 2}));
  CHECK_FALSE(TokenBuffer(Tokens{1, 2}) == TokenBuffer(Tokens{1, 3}));
}

TEST_CASE("TokenBuffer doubles its memory when it grows token by token") {
  TokenBuffer buffer;
  int moves = 0;
  for (TokenId token = 0; token < 1024; ++token) {
    const TokenId* before = buffer.data();
    buffer.Append(Tokens{token});
    moves += buffer.data() != before;
  }
  CHECK(moves <= 11);  // the storage doubles
  CHECK(buffer.size() == 1024);
}

TEST_CASE("Random copies of a TokenBuffer each keep their own tokens") {
  ForEachSeed(20, [](uint64_t seed) {
    std::mt19937 rng(static_cast<uint32_t>(seed));
    std::vector<std::pair<TokenBuffer, Tokens>> holders(1);
    for (int i = 0; i < 200; ++i) {
      auto [buffer, expected] = holders[rng() % holders.size()];
      if (rng() % 3 == 0) {
        const size_t begin = rng() % (expected.size() + 1);
        buffer = buffer.Suffix(begin);
        expected.erase(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(begin));
      }
      const Tokens more(rng() % 9, i);
      buffer.Append(more);
      expected.insert(expected.end(), more.begin(), more.end());
      if (rng() % 2 == 0) holders[rng() % holders.size()] = {buffer, expected};
      if (rng() % 2 == 0) holders.emplace_back(buffer, expected);
      for (const auto& [held, tokens] : holders) REQUIRE(held == tokens);
    }
  });
}

}  // namespace
}  // namespace baton
