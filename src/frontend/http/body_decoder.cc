#include "frontend/http/body_decoder.h"

#include <array>
#include <new>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/strings.h"

namespace baton {
namespace {

constexpr size_t kStep = 16 << 10;  // bytes decoded at once
constexpr int kGzipWrapper = 16;    // zlib adds this number to the window's bits for gzip

}  // namespace

absl::StatusOr<std::unique_ptr<BodyDecoder>> BodyDecoder::Make(std::string_view encodings) {
  std::vector<absl::string_view> names;
  for (absl::string_view name : absl::StrSplit(ToAbsl(encodings), ',')) {
    name = absl::StripAsciiWhitespace(name);
    if (!name.empty() && !absl::EqualsIgnoreCase(name, "identity")) names.push_back(name);
  }
  if (names.empty()) return nullptr;
  const auto is_one_of = [&](const auto&... known) { return (absl::EqualsIgnoreCase(names[0], known) || ...); };
  if (names.size() == 1 && is_one_of("gzip", "x-gzip")) {
    return std::unique_ptr<BodyDecoder>(new BodyDecoder(Format::kGzip));
  }
  if (names.size() == 1 && is_one_of("deflate")) {
    return std::unique_ptr<BodyDecoder>(new BodyDecoder(Format::kDeflate));
  }
  return absl::UnimplementedError(StrCat("Content-Encoding: expected gzip, deflate or none, got '",
                                         absl::CHexEscape(ToAbsl(encodings.substr(0, 64))), "'"));
}

BodyDecoder::BodyDecoder(Format format) : format_(format) {
  const int bits = MAX_WBITS + (format == Format::kGzip ? kGzipWrapper : 0);
  const int code = inflateInit2(&stream_, bits);
  if (code == Z_MEM_ERROR) throw std::bad_alloc();
  BATON_CHECK(code == Z_OK, "zlib refuses its own version or the window");
}

BodyDecoder::~BodyDecoder() { inflateEnd(&stream_); }

absl::Status BodyDecoder::Malformed(std::string_view why) const {
  const char* name = format_ == Format::kGzip ? "gzip" : "deflate (RFC 1950)";
  return absl::InvalidArgumentError(StrCat("body: not valid ", name, ": ", why));
}

absl::Status BodyDecoder::Decode(std::string_view bytes, size_t most, std::string& out) {
  stream_.next_in = reinterpret_cast<const Bytef*>(bytes.data());
  stream_.avail_in = static_cast<uInt>(bytes.size());
  std::array<char, kStep> step;
  do {
    if (ended_ && stream_.avail_in > 0) {
      if (format_ == Format::kDeflate) return Malformed("bytes follow its end");
      // A gzip file may have several members (RFC 1952, 2.2).
      BATON_CHECK(inflateReset(&stream_) == Z_OK, "zlib loses its state");
      ended_ = false;
    }
    stream_.next_out = reinterpret_cast<Bytef*>(step.data());
    stream_.avail_out = kStep;
    const int code = inflate(&stream_, Z_NO_FLUSH);
    out.append(step.data(), kStep - stream_.avail_out);
    if (out.size() > most) return absl::OutOfRangeError(StrCat("body: longer than ", most, " bytes after decoding"));
    if (code == Z_BUF_ERROR) break;  // zlib needs more input
    if (code == Z_MEM_ERROR) throw std::bad_alloc();
    if (code != Z_OK && code != Z_STREAM_END) {
      return Malformed(stream_.msg != nullptr ? stream_.msg : "it needs a dictionary");
    }
    ended_ = code == Z_STREAM_END;
  } while (stream_.avail_in > 0 || stream_.avail_out == 0);
  return absl::OkStatus();
}

absl::Status BodyDecoder::Finish() const { return ended_ ? absl::OkStatus() : Malformed("its end is missing"); }

}  // namespace baton
