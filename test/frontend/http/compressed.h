// Compressed bytes for tests of request bodies.
#pragma once

#include <zlib.h>

#include <string>

#include "catch.h"

namespace baton {

constexpr int kGzipBits = MAX_WBITS + 16;  // as in deflateInit2
constexpr int kZlibBits = MAX_WBITS;
constexpr int kRawBits = -MAX_WBITS;

inline std::string Compressed(const std::string& text, int bits) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, bits, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<const Bytef*>(text.data());
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

}  // namespace baton
