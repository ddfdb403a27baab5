#include "agent/refusal_table.h"

#include "absl/strings/str_cat.h"
#include "agent/scoped_id.h"
#include "catch.h"

namespace baton {
namespace {

constexpr absl::Time kNow = absl::UnixEpoch();

Refusal Why(const std::string& why) {
  return {absl::InvalidArgumentError(why), "writer", kNow, kNow + absl::Minutes(2)};
}

TEST_CASE("A table of refusals has a refusal until it expires") {
  RefusalTable table(2);
  table.Put("a", Why("first"));
  table.Put("a", Why("second"));
  REQUIRE(table.Find("a", kNow) != nullptr);
  CHECK(table.Find("a", kNow)->status.message() == "second");
  CHECK(table.Find("a", kNow + absl::Minutes(2)) == nullptr);
  table.Erase("a");
  table.Erase("b");
  CHECK(table.Find("a", kNow) == nullptr);
  table.CheckInvariants();
}

TEST_CASE("A flood of refused requests drops the reasons of its own owner only") {
  RefusalTable table(100);
  const std::string other = GENERATE("", "salt", "tenant\nsalt");
  for (int i = 0; i < 20; ++i) table.Put(ScopedId(other, absl::StrCat("r", i)), Why("other"));
  // A tenant's salts share its entries.
  for (int i = 0; i < 1000; ++i) {
    table.Put(ScopedId(absl::StrCat("flood\n", i % 7), absl::StrCat("f", i)), Why("flood"));
    table.CheckInvariants();
  }
  for (int i = 0; i < 20; ++i) CHECK(table.Find(ScopedId(other, absl::StrCat("r", i)), kNow) != nullptr);
  CHECK(table.Find(ScopedId("flood\n5", "f999"), kNow) != nullptr);
  CHECK(table.Find(ScopedId("flood\n2", "f919"), kNow) == nullptr);
}

TEST_CASE("Two owners with many refused requests have half of the table each") {
  RefusalTable table(10);
  for (int i = 0; i < 20; ++i) {
    table.Put(ScopedId("a", absl::StrCat(i)), Why("a"));
    table.Put(ScopedId("b", absl::StrCat(i)), Why("b"));
  }
  for (const char* owner : {"a", "b"}) {
    CHECK(table.Find(ScopedId(owner, "14"), kNow) == nullptr);
    CHECK(table.Find(ScopedId(owner, "15"), kNow) != nullptr);
  }
}

}  // namespace
}  // namespace baton
