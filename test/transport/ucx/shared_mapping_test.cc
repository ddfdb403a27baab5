#include "transport/ucx/shared_mapping.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <vector>

#include "catch.h"

namespace baton {
namespace {

constexpr size_t kPage = 4096;

TEST_CASE("CheckSharedMapping accepts only a range that its mapping fully holds") {
  const int file = memfd_create("test", 0);
  REQUIRE(file >= 0);
  REQUIRE(ftruncate(file, 4 * kPage) == 0);
  // The last page is inaccessible, whatever else the process maps.
  auto* area = static_cast<std::byte*>(mmap(nullptr, 7 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(mmap(area, 6 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == area);

  CHECK(CheckSharedMapping({area, 4 * kPage}).ok());
  CHECK(CheckSharedMapping({area + 5, kPage}).ok());
  const auto refused = [](const std::byte* at, size_t bytes) {
    return CheckSharedMapping({at, bytes}).code() == absl::StatusCode::kInvalidArgument;
  };
  CHECK(refused(area, 5 * kPage));  // mapped, but the file is shorter
  CHECK(refused(area, 4 * kPage + 1));
  CHECK(refused(area, 6 * kPage + 1));  // beyond the mapping
  CHECK(refused(area + 5 * kPage, kPage));
  CHECK(refused(area, SIZE_MAX));
  CHECK(refused(area, 0));
  const std::vector<std::byte> ours(kPage);
  CHECK(refused(ours.data(), ours.size()));
  munmap(area, 7 * kPage);
  CHECK(refused(area, kPage));
  close(file);
}

}  // namespace
}  // namespace baton
