// Reads the safetensors format: u64 header size (little endian), a JSON header, then the tensors' bytes.
// https://huggingface.co/docs/safetensors (format section); refuses what the reference reader refuses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mapped_file.h"

namespace baton {

// One tensor as the header states it.
struct SafetensorsEntry {
  std::string dtype;                 // "F32", "BF16", ...
  std::vector<int64_t> shape;        // each >= 0, row-major
  std::span<const std::byte> bytes;  // into the mapped file
};

class SafetensorsFile {
 public:
  // INVALID_ARGUMENT names the file, the tensor where one is to blame, what was expected and what was found. The header
  // is checked as it streams by, so memory is bounded by what a well-formed header of its size needs.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  const std::string& path() const { return path_; }
  // By name. Together they cover the file's data without gap or overlap.
  const std::map<std::string, SafetensorsEntry>& tensors() const { return tensors_; }

 private:
  SafetensorsFile(std::string path, MappedFile file) : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;
  MappedFile file_;
  std::map<std::string, SafetensorsEntry> tensors_;
};

}  // namespace baton
