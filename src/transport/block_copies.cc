#include "transport/block_copies.h"

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

bool Within(int64_t offset, int64_t bytes, int64_t size) {
  return offset >= 0 && bytes <= size && offset <= size - bytes;
}

}  // namespace

absl::Status CheckCopies(std::span<const BlockCopy> copies, int64_t source_bytes, int64_t target_bytes) {
  for (const BlockCopy& copy : copies) {
    if (copy.bytes > 0 && Within(copy.source_offset, copy.bytes, source_bytes) &&
        Within(copy.target_offset, copy.bytes, target_bytes)) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat("push of ", copy.bytes, " bytes from ", copy.source_offset, " to ",
                                                   copy.target_offset, ": the source slab has ", source_bytes,
                                                   " bytes, the target slab ", target_bytes));
  }
  return absl::OkStatus();
}

std::vector<BlockCopy> Coalesce(std::span<const BlockCopy> copies) {
  std::vector<BlockCopy> runs;
  for (const BlockCopy& copy : copies) {
    if (!runs.empty()) {
      BlockCopy& last = runs.back();
      if (copy.source_offset == last.source_offset + last.bytes &&
          copy.target_offset == last.target_offset + last.bytes) {
        last.bytes += copy.bytes;
        continue;
      }
    }
    runs.push_back(copy);
  }
  return runs;
}

}  // namespace baton
