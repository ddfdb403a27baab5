#include "frontend/http/body_decoder.h"

#include <algorithm>
#include <random>
#include <string>

#include "compressed.h"
#include "seeds.h"

namespace baton {
namespace {

constexpr size_t kMost = 1 << 20;

struct Decoded {
  absl::Status status;
  std::string text;
};

// Decodes `bytes` in parts of `size`.
Decoded Decode(const char* encoding, const std::string& bytes, size_t size = kMost, size_t most = kMost) {
  const auto decoder = BodyDecoder::Make(encoding);
  REQUIRE(decoder.ok());
  REQUIRE(*decoder != nullptr);
  Decoded decoded;
  for (size_t at = 0; at < bytes.size() && decoded.status.ok(); at += size) {
    decoded.status = (*decoder)->Decode(std::string_view(bytes).substr(at, size), most, decoded.text);
  }
  if (decoded.status.ok()) decoded.status = (*decoder)->Finish();
  return decoded;
}

std::string SomeText(size_t bytes) {
  std::mt19937 random(1);
  std::string text(bytes, '\0');
  std::ranges::generate(text, [&] { return static_cast<char>('a' + random() % 8); });
  return text;
}

TEST_CASE("BodyDecoder returns the text when the bytes are cut anywhere") {
  for (const std::string& text : {std::string(), std::string("a"), SomeText(100'000), std::string(300'000, 'x')}) {
    for (const size_t size : {size_t{1}, size_t{7}, kMost}) {
      for (const auto& [encoding, bits] :
           {std::pair{"gzip", kGzipBits}, {"X-Gzip", kGzipBits}, {"deflate", kZlibBits}}) {
        const Decoded decoded = Decode(encoding, Compressed(text, bits), size);
        CHECK(decoded.status.ok());
        CHECK(decoded.text == text);
      }
    }
  }
}

TEST_CASE("BodyDecoder reads all members of a gzip body") {
  const std::string bytes = Compressed("one", kGzipBits) + Compressed("", kGzipBits) + Compressed("two", kGzipBits);
  for (const size_t size : {size_t{1}, kMost}) {
    const Decoded decoded = Decode("gzip", bytes, size);
    CHECK(decoded.status.ok());
    CHECK(decoded.text == "onetwo");
  }
}

TEST_CASE("BodyDecoder accepts one known encoding, and refuses others by name") {
  for (const char* none : {"", ",", "identity", " , IDENTITY ,"}) {
    INFO(none);
    const auto decoder = BodyDecoder::Make(none);
    CHECK(decoder.ok());
    CHECK(*decoder == nullptr);
  }
  for (const char* known : {"gzip", "GZIP", "x-gzip", "deflate", "identity, gzip", ", gzip,"}) {
    INFO(known);
    const auto decoder = BodyDecoder::Make(known);
    CHECK(decoder.ok());
    CHECK(*decoder != nullptr);
  }
  for (const char* other : {"br", "zstd", "compress", "gzip, gzip", "deflate,gzip", "gzip;q=1", "gzip gzip", "*"}) {
    INFO(other);
    const absl::Status status = BodyDecoder::Make(other).status();
    CHECK(absl::IsUnimplemented(status));
    CHECK(std::string(status.message()).find(std::string("'") + other + "'") != std::string::npos);
  }
}

TEST_CASE("BodyDecoder stops at the limit of decoded bytes") {
  const std::string text = SomeText(1000);
  CHECK(Decode("gzip", Compressed(text, kGzipBits), kMost, 1000).text == text);
  CHECK(absl::IsOutOfRange(Decode("gzip", Compressed(text, kGzipBits), kMost, 999).status));
  // Decodes only a little more than the limit.
  const Decoded bomb = Decode("gzip", Compressed(std::string(100 << 20, '\0'), kGzipBits));
  CHECK(absl::IsOutOfRange(bomb.status));
  CHECK(bomb.text.size() < kMost + (64 << 10));
  // The members count together.
  const std::string members = Compressed(text, kGzipBits) + Compressed(text, kGzipBits);
  CHECK(absl::IsOutOfRange(Decode("gzip", members, 1, 1999).status));
}

TEST_CASE("BodyDecoder refuses bytes that are malformed or incomplete") {
  const std::string gzip = Compressed(SomeText(1000), kGzipBits), zlib = Compressed(SomeText(1000), kZlibBits);
  const auto is_refused = [](const char* encoding, const std::string& bytes) {
    return absl::IsInvalidArgument(Decode(encoding, bytes).status) &&
           absl::IsInvalidArgument(Decode(encoding, bytes, 1).status);
  };
  for (size_t size = 0; size < gzip.size(); ++size) CHECK(is_refused("gzip", gzip.substr(0, size)));
  for (size_t size = 0; size < zlib.size(); ++size) CHECK(is_refused("deflate", zlib.substr(0, size)));
  CHECK(is_refused("gzip", zlib));
  CHECK(is_refused("deflate", gzip));
  CHECK(is_refused("deflate", Compressed("text", kRawBits)));
  CHECK(is_refused("gzip", gzip + "more"));
  CHECK(is_refused("deflate", zlib + zlib));
  CHECK(is_refused("gzip", "{\"prompt\": \"not compressed\"}"));
  std::string wrong_sum = gzip;
  wrong_sum[wrong_sum.size() - 5] ^= 1;
  CHECK(is_refused("gzip", wrong_sum));
  // Bit 5 of the second byte announces a preset dictionary; 0x78 0xbb is such a header.
  CHECK(is_refused("deflate", std::string("\x78\xbb\0\0\0\1", 6) + zlib.substr(2)));
}

TEST_CASE("BodyDecoder returns an error or a text when bytes are changed at random") {
  ForEachSeed(1, [](uint64_t seed) {
    std::mt19937 random(static_cast<uint32_t>(seed));
    for (int i = 0; i < 2000; ++i) {
      const bool is_gzip = random() % 2 == 0;
      std::string bytes = Compressed(SomeText(random() % 3000), is_gzip ? kGzipBits : kZlibBits);
      for (size_t n = random() % 4; n > 0; --n) bytes[random() % bytes.size()] = static_cast<char>(random());
      bytes.resize(random() % 8 == 0 ? random() % bytes.size() : bytes.size());
      const Decoded decoded = Decode(is_gzip ? "gzip" : "deflate", bytes, 1 + random() % 64, 10'000);
      const bool is_error = absl::IsInvalidArgument(decoded.status) || absl::IsOutOfRange(decoded.status);
      CHECK((decoded.status.ok() || is_error));
      CHECK(decoded.text.size() < 10'000 + (32 << 10));
    }
  });
}

}  // namespace
}  // namespace baton
