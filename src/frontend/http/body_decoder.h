// The decoder of a request's body that the client has compressed.
#pragma once

#include <zlib.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace baton {

// Not thread-safe.
class BodyDecoder {
 public:
  // Value of "accept-encoding" for a client whose encoding is refused.
  static constexpr char kAccepted[] = "gzip, deflate";
  // Upper bound on the memory of one decoder, without the decoded bytes.
  static constexpr size_t kMemoryBytes = 48 << 10;

  // `encodings` is the value of "content-encoding": names in any case of letters, separated by
  // commas. Returns null if it names none, or only "identity". Returns UNIMPLEMENTED for other
  // encodings than gzip and deflate, and for several.
  static absl::StatusOr<std::unique_ptr<BodyDecoder>> Make(std::string_view encodings);
  ~BodyDecoder();
  BodyDecoder(const BodyDecoder&) = delete;
  BodyDecoder& operator=(const BodyDecoder&) = delete;

  // Decodes the next bytes of the body, cut anywhere, and appends the result to `out`. Returns
  // OUT_OF_RANGE as soon as `out` has more than `most` bytes, and INVALID_ARGUMENT if the bytes are
  // malformed. No other call may follow an error. Throws std::bad_alloc.
  absl::Status Decode(std::string_view bytes, size_t most, std::string& out);
  // Returns INVALID_ARGUMENT if the body is incomplete after the decoded bytes.
  absl::Status Finish() const;

 private:
  enum class Format { kGzip, kDeflate };
  explicit BodyDecoder(Format format);
  absl::Status Malformed(std::string_view why) const;

  const Format format_;
  z_stream stream_{};
  bool ended_ = false;  // the last of the bytes ended a gzip member, or the deflate data
};

}  // namespace baton
