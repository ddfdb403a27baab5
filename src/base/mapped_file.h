// A regular file mapped read-only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace baton {

class MappedFile {
 public:
  // Maps the file. Returns NOT_FOUND if the file does not exist. Returns INVALID_ARGUMENT if the
  // path is not a regular file, because a pipe or a device could block or never end. Returns
  // INVALID_ARGUMENT too for a pointer of Git LFS in place of a file. REQUIRES: the file does not
  // shrink while it is mapped. Access to a truncated range raises SIGBUS.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::span<const std::byte> bytes_;
};

}  // namespace baton
