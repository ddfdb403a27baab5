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

void StripedSlab::Split(const MemoryCopy& copy, std::vector<std::vector<MemoryCopy>>& by_stripe) const {
  const bool reads = Contains(copy.from);
  BATON_CHECK(reads != Contains(copy.to), "exactly one side of a copy is in the slab");
  const int64_t offset = static_cast<const std::byte*>(reads ? copy.from : copy.to) - addresses_.data();
  const int64_t planes = static_cast<int64_t>(copy.bytes) / plane_bytes_;
  BATON_CHECK(offset % plane_bytes_ == 0 && planes * plane_bytes_ == static_cast<int64_t>(copy.bytes),
              "whole planes are copied");
  BATON_CHECK(offset + static_cast<int64_t>(copy.bytes) <= std::ssize(addresses_), "a copy ends within the slab");
  size_t done = 0;  // bytes of the host memory
  for (size_t i = 0; i < stripes_.size(); ++i) {
    const Stripe& stripe = stripes_[i];
    std::byte* stripe_memory = stripe.memory.data() + offset / plane_bytes_ * stripe.range.width();
    const auto part = static_cast<size_t>(planes * stripe.range.width());
    if (reads) {
      by_stripe[i].push_back({static_cast<std::byte*>(copy.to) + done, stripe_memory, part});
    } else {
      by_stripe[i].push_back({stripe_memory, static_cast<const std::byte*>(copy.from) + done, part});
    }
    done += part;
  }
}

absl::Status StripedSlab::Copy(std::span<const MemoryCopy> copies) const {
  std::vector<std::vector<MemoryCopy>> by_stripe(stripes_.size());
  for (const MemoryCopy& copy : copies) Split(copy, by_stripe);
  for (size_t i = 0; i < stripes_.size(); ++i) RETURN_IF_ERROR(stripes_[i].memory.Copy(by_stripe[i]));
  return absl::OkStatus();
}

absl::StatusOr<HostMemory> StripedSlab::AllocateHost(size_t bytes) const {
  // Host memory from any of the devices serves all of them.
  return stripes_[0].memory.AllocateHost(bytes);
}

}  // namespace baton
