#include "kv/striped_slab.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace baton {

absl::StatusOr<std::unique_ptr<StripedSlab>> StripedSlab::Make(int64_t plane_bytes, std::vector<Stripe> stripes) {
  BATON_CHECK(!stripes.empty(), "a slab has at least one stripe");
  BATON_CHECK(stripes[0].range.width() > 0, "stripes follow each other");
  const int64_t planes = static_cast<int64_t>(stripes[0].memory.size()) / stripes[0].range.width();
  int64_t covered = 0;
  for (const Stripe& stripe : stripes) {
    BATON_CHECK(stripe.range.begin == covered && stripe.range.width() > 0, "stripes follow each other");
    BATON_CHECK(static_cast<int64_t>(stripe.memory.size()) == planes * stripe.range.width(),
                "stripes are of one length");
    covered = stripe.range.end;
  }
  BATON_CHECK(covered == plane_bytes, "stripes make up a plane");
  const auto bytes = static_cast<size_t>(planes * plane_bytes);
  void* addresses = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (addresses == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("reserving addresses for ", bytes, " bytes of KV blocks: ", std::strerror(errno)));
  }
  return std::unique_ptr<StripedSlab>(
      new StripedSlab(plane_bytes, std::move(stripes), {static_cast<std::byte*>(addresses), bytes}));
}

StripedSlab::~StripedSlab() { munmap(addresses_.data(), addresses_.size()); }

bool StripedSlab::Contains(const void* pointer) const {
  const auto* byte = static_cast<const std::byte*>(pointer);
  return !std::less<>()(byte, addresses_.data()) && std::less<>()(byte, addresses_.data() + addresses_.size());
}

absl::Status StripedSlab::Copy(void* to, const void* from, size_t bytes) const {
  const bool reads = Contains(from);
  BATON_CHECK(reads != Contains(to), "one side is in the slab, the other the host's");
  const int64_t offset = static_cast<const std::byte*>(reads ? from : to) - addresses_.data();
  const int64_t planes = static_cast<int64_t>(bytes) / plane_bytes_;
  BATON_CHECK(offset % plane_bytes_ == 0 && planes * plane_bytes_ == static_cast<int64_t>(bytes),
              "whole planes are copied");
  BATON_CHECK(offset + static_cast<int64_t>(bytes) <= std::ssize(addresses_), "a copy ends within the slab");
  for (const Stripe& stripe : stripes_) {
    std::byte* mine = stripe.memory.data() + offset / plane_bytes_ * stripe.range.width();
    const auto part = static_cast<size_t>(planes * stripe.range.width());
    if (reads) {
      RETURN_IF_ERROR(stripe.memory.Copy(to, mine, part));
      to = static_cast<std::byte*>(to) + part;
    } else {
      RETURN_IF_ERROR(stripe.memory.Copy(mine, from, part));
      from = static_cast<const std::byte*>(from) + part;
    }
  }
  return absl::OkStatus();
}

}  // namespace baton
