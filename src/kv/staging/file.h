// The file that KvStaging's disk slots are in.
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

// It has no name, so nobody else opens it and nothing is left of it when the process ends, however it ends. What was
// written is known by a tag in memory. Thread-safe for different slots.
class StagingFile {
 public:
  // In `directory`, which must exist: `slots` of `slot_bytes`, all of which are allocated now. NOT_FOUND,
  // PERMISSION_DENIED, ...: as open(2) says; RESOURCE_EXHAUSTED: no space, with what there is.
  static absl::StatusOr<std::unique_ptr<StagingFile>> Create(const std::string& directory, int64_t slots,
                                                             int64_t slot_bytes);
  ~StagingFile();
  StagingFile(const StagingFile&) = delete;
  StagingFile& operator=(const StagingFile&) = delete;

  // `bytes`: [slot_bytes].
  absl::Status Write(int64_t slot, std::span<const std::byte> bytes);
  // DATA_LOSS: they are not the bytes that were written.
  absl::Status Read(int64_t slot, std::span<std::byte> bytes);

  int descriptor() const { return file_; }  // for tests and measurements

 private:
  explicit StagingFile(int file) : file_(file) {}

  const int file_;
  StagingSeal seal_;
  std::vector<StagingSeal::Tag> tags_;  // of each slot's bytes
};

}  // namespace baton
