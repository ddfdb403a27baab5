#include "kv/kv_format.h"

#include <set>
#include <string>
#include <vector>

#include "catch.h"
#include "kv/block_layout.h"

namespace baton {
namespace {

TEST_CASE("RowOf finds the row of each KV format") {
  std::set<std::string> names;
  for (const KvFormatRow& row : kKvFormats) {
    CHECK(&RowOf(row.format) == &row);
    CHECK(names.insert(row.name).second);
    CHECK(row.element_bytes > 0);
  }
  CHECK(RowOf(KvFormat::kBf16).element_bytes == 2);
  CHECK(RowOf(KvFormat::kF32).element_bytes == 4);
}

TEST_CASE("KvFormatNamed finds the format of each name and no other") {
  CHECK(KvFormatNamed("bf16") == KvFormat::kBf16);
  CHECK(KvFormatNamed("f32") == KvFormat::kF32);
  for (const std::string_view name : {"", "bf1", "bf161", "BF16", "fp8_e4m3"}) {
    CHECK(!KvFormatNamed(name).has_value());
  }
}

TEST_CASE("KvLayout includes the elements and scales of every head in each format") {
  for (const KvFormatRow& row : kKvFormats) {
    INFO(row.name);
    const KvLayout layout{.layers = 5, .kv_heads = 3, .head_dim = 64, .format = row.format};
    const int64_t head = 16 * 64 * row.element_bytes + row.scale_bytes;
    CHECK(layout.HeadBytes() == head);
    CHECK(layout.BlockBytes() == 5 * 2 * 3 * head);
    CHECK(layout.KOffset(4, 2) == 4 * 2 * 3 * head + 2 * head);
    CHECK(layout.VOffset(4, 2) == layout.KOffset(4, 2) + 3 * head);
  }
}

TEST_CASE("KvLayout gives each element of a head its own index in each format and order") {
  for (const KvFormatRow& row : kKvFormats) {
    for (const KvOrder order : {KvOrder::kPairs, KvOrder::kRows}) {
      INFO(row.name << " order " << static_cast<int>(order));
      const KvLayout layout{.layers = 1, .kv_heads = 1, .head_dim = 8, .format = row.format, .order = order};
      std::vector<int> keys(16 * 8), values(16 * 8);
      for (int64_t slot = 0; slot < kBlockTokens; ++slot) {
        for (int64_t i = 0; i < layout.head_dim; ++i) {
          ++keys.at(static_cast<size_t>(layout.KIndex(slot, i)));
          ++values.at(static_cast<size_t>(layout.VIndex(slot, i)));
        }
      }
      CHECK(keys == std::vector<int>(16 * 8, 1));
      CHECK(values == std::vector<int>(16 * 8, 1));
    }
  }
}

}  // namespace
}  // namespace baton
