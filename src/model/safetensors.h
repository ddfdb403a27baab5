// A reader of the safetensors format: a u64 header size (little endian), a JSON header, then the
// bytes of the tensors. It refuses every file that the reference reader refuses. The format section
// of https://huggingface.co/docs/safetensors is the specification.
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

// One tensor of a file.
struct SafetensorsEntry {
  std::string dtype;                 // "F32", "BF16", ...
  std::vector<int64_t> shape;        // each >= 0, row-major
  std::span<const std::byte> bytes;  // into the mapped file
};

// A file that is mapped into memory and whose header is checked.
class SafetensorsFile {
 public:
  // Maps the file at `path` and checks its header. An INVALID_ARGUMENT error names the file, the
  // tensor if the error concerns one, the expected value and the actual value. A streaming parser
  // checks the header, so the memory for a hostile header is bounded by that for a well-formed
  // header of the same size.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  const std::string& path() const { return path_; }
  // The tensors by name. They cover the data of the file without gap or overlap.
  const std::map<std::string, SafetensorsEntry>& tensors() const { return tensors_; }

 private:
  SafetensorsFile(std::string path, MappedFile file) : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;
  MappedFile file_;
  std::map<std::string, SafetensorsEntry> tensors_;
};

}  // namespace baton
