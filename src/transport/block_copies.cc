#include "transport/block_copies.h"

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

bool Within(int64_t offset, int64_t bytes, int64_t size) {
  return offset >= 0 && bytes <= size && offset <= size - bytes;
}

bool Continues(const BlockCopy& last, const BlockCopy& copy) {
  return copy.source_offset == last.source_offset + last.bytes && copy.target_offset == last.target_offset + last.bytes;
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
    if (!runs.empty() && Continues(runs.back(), copy)) {
      runs.back().bytes += copy.bytes;
    } else {
      runs.push_back(copy);
    }
  }
  return runs;
}

int64_t CountRuns(std::span<const BlockCopy> copies) {
  int64_t runs = copies.empty() ? 0 : 1;
  for (size_t i = 1; i < copies.size(); ++i) runs += !Continues(copies[i - 1], copies[i]);
  return runs;
}

}  // namespace baton
