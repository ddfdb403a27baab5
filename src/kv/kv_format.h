// The number formats of K and V in a block. A new format is a row of kKvFormats and a row in the
// kernel table of each backend that computes with it. A format with scales also needs a change of
// PagedKv::HeadStride of the CUDA kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace baton {

enum class KvFormat : uint8_t {
  kBf16,
  kF32,  // for f32 checkpoints
};

struct KvFormatRow {
  KvFormat format;
  // The name on the wire. Releases may have equal protocol versions and different rows, so a name
  // never gets another meaning.
  const char* name;
  int64_t element_bytes;
  // Bytes of the scales of one head's K or V in a block, or 0 if the format has no scales. The
  // scales lie behind the elements (KvLayout), so that heads, planes and layers stay contiguous for
  // stripes and pushes.
  int64_t scale_bytes;
};

inline constexpr KvFormatRow kKvFormats[] = {
    {KvFormat::kBf16, "bf16", 2, 0},
    {KvFormat::kF32, "f32", 4, 0},
};

static_assert(
    [] {
      size_t index = 0;
      for (const KvFormatRow& row : kKvFormats) {
        if (static_cast<size_t>(row.format) != index++) return false;
      }
      return true;
    }(),
    "the rows are in the order of KvFormat");

constexpr const KvFormatRow& RowOf(KvFormat format) { return kKvFormats[static_cast<size_t>(format)]; }

// Returns the format of this name, or nullopt.
constexpr std::optional<KvFormat> KvFormatNamed(std::string_view name) {
  for (const KvFormatRow& row : kKvFormats) {
    if (row.name == name) return row.format;
  }
  return std::nullopt;
}

}  // namespace baton
