// The file that contains the disk slots of KvStaging.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/staging/seal.h"

namespace baton {

// A nameless file of slots. Other processes cannot open it, and the kernel removes it when the
// process ends. A tag in memory authenticates the bytes of each slot. Thread-safe for different
// slots.
class StagingFile {
 public:
  // Creates a file of `slots` * `slot_bytes` bytes in `directory` and allocates all of its space.
  // Fails with NOT_FOUND, PERMISSION_DENIED and so on as open(2) does. Fails with
  // RESOURCE_EXHAUSTED if there is too little space, and the message states the free space
  // or the limit.
  // REQUIRES: the directory exists.
  static absl::StatusOr<std::unique_ptr<StagingFile>> Create(const std::string& directory, int64_t slots,
                                                             int64_t slot_bytes);
  ~StagingFile();
  StagingFile(const StagingFile&) = delete;
  StagingFile& operator=(const StagingFile&) = delete;

  // Writes one slot. REQUIRES: `bytes` has slot_bytes bytes.
  absl::Status Write(int64_t slot, std::span<const std::byte> bytes);
  // Reads one slot. Fails with DATA_LOSS if the bytes are not those that were written. REQUIRES: as
  // Write.
  absl::Status Read(int64_t slot, std::span<std::byte> bytes);

  int descriptor() const { return file_; }  // for tests and measurements

 private:
  explicit StagingFile(int file) : file_(file) {}

  const int file_;
  StagingSeal seal_;
  std::vector<StagingSeal::Tag> tags_;  // [slots]
};

}  // namespace baton
