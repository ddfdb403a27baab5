// The form of descriptors: integers in little endian, strings with their length before them, SHA-256 over all of it at
// the end.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace baton {

void PutField(std::string& out, uint64_t value);
void PutField(std::string& out, const std::string& value);  // at most kLongestField bytes
std::string Sealed(std::string fields);

inline constexpr uint64_t kLongestField = 64 << 10;

// Takes fields off the front of what a peer sent. Errors are INVALID_ARGUMENT and begin with `kind`.
class DescriptorReader {
 public:
  // Fails unless the digest is right: it finds damage, not malice.
  static absl::StatusOr<DescriptorReader> Open(std::string_view kind, std::string_view bytes);

  absl::Status Get(uint64_t& value);
  absl::Status Get(std::string& value, uint64_t shortest);
  absl::Status End() const;  // nothing is left
  absl::Status Malformed(std::string_view what) const;

 private:
  DescriptorReader(std::string_view kind, std::string_view left) : kind_(kind), left_(left) {}

  std::string_view kind_;
  std::string_view left_;
};

}  // namespace baton
