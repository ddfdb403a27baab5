// The encoding of descriptors: integers in little endian, strings with their length in front, and a
// SHA-256 of all fields at the end.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace baton {

void PutField(std::string& out, uint64_t value);
// REQUIRES: `value` has at most kLongestField bytes.
void PutField(std::string& out, const std::string& value);
// Returns the fields with their digest at the end.
std::string Sealed(std::string fields);

inline constexpr uint64_t kLongestField = 64 << 10;  // bytes

// A reader of the fields of a peer's descriptor, in order. Its errors are INVALID_ARGUMENT, and
// their messages begin with `kind`.
class DescriptorReader {
 public:
  // Fails unless the digest fits. The digest detects damage. It does not detect forgery. `kind` and
  // `bytes` must outlive the reader.
  static absl::StatusOr<DescriptorReader> Open(std::string_view kind, std::string_view bytes);

  absl::Status Get(uint64_t& value);
  // Fails if the string has fewer than `shortest` or more than kLongestField bytes.
  absl::Status Get(std::string& value, uint64_t shortest);
  // Fails if there are further bytes.
  absl::Status End() const;
  // Returns the error "KIND descriptor: WHAT".
  absl::Status Malformed(std::string_view what) const;

 private:
  DescriptorReader(std::string_view kind, std::string_view left) : kind_(kind), left_(left) {}

  std::string_view kind_;
  std::string_view left_;
};

}  // namespace baton
