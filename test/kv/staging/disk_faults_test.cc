#include "kv/staging/disk_faults.h"

#include "catch.h"

namespace baton {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(10);
const absl::Time kStart = absl::UnixEpoch();
const absl::Status kBroken = absl::UnavailableError("Input/output error");
const absl::Status kFull = absl::ResourceExhaustedError("No space left on device");

// Reports one transfer that takes no time.
void Transfer(DiskFaults& faults, const absl::Status& status, bool was_write, absl::Time now) {
  faults.OnBegun(now);
  faults.OnEnded(status, was_write, /*more=*/false, now);
}

}  // namespace

TEST_CASE("DiskFaults turns the disk off for good at the first I/O error") {
  for (const bool was_write : {true, false}) {
    DiskFaults faults(kPatience);
    Transfer(faults, kBroken, was_write, kStart);
    CHECK(faults.is_off());
    CHECK_FALSE(faults.MayWrite());
    Transfer(faults, absl::UnavailableError("another"), was_write, kStart);
    Transfer(faults, absl::OkStatus(), was_write, kStart);
    faults.Tick(kStart + absl::Hours(24));
    CHECK(faults.is_off());
    CHECK(faults.status() == kBroken);
    CHECK(faults.NextTick() == absl::InfiniteFuture());
  }
}

TEST_CASE("DiskFaults turns off a disk that ends no transfer within 10 s") {
  DiskFaults faults(kPatience);
  faults.OnBegun(kStart);
  CHECK(faults.NextTick() == kStart + kPatience);
  faults.OnBegun(kStart + absl::Seconds(6));  // later work does not prolong the wait
  faults.Tick(kStart + kPatience - absl::Nanoseconds(1));
  CHECK_FALSE(faults.is_off());
  faults.Tick(kStart + kPatience);
  CHECK(faults.is_off());
  CHECK(faults.status() == absl::DeadlineExceededError("the disk completed no transfer for 10s"));
}

TEST_CASE("DiskFaults restarts its 10 s when a transfer ends and others still run") {
  DiskFaults faults(kPatience);
  faults.OnBegun(kStart);
  faults.OnBegun(kStart);
  faults.OnEnded(absl::OkStatus(), /*was_write=*/false, /*more=*/true, kStart + absl::Seconds(9));
  faults.Tick(kStart + absl::Seconds(18));
  CHECK_FALSE(faults.is_off());
  faults.OnEnded(absl::OkStatus(), /*was_write=*/false, /*more=*/false, kStart + absl::Seconds(18));
  CHECK(faults.NextTick() == absl::InfiniteFuture());
  faults.Tick(kStart + absl::Hours(24));
  CHECK_FALSE(faults.is_off());
}

TEST_CASE("DiskFaults stops writes to a full disk for 10 s and allows reads") {
  DiskFaults faults(kPatience);
  Transfer(faults, kFull, /*was_write=*/true, kStart);
  CHECK_FALSE(faults.is_off());
  CHECK_FALSE(faults.MayWrite());
  CHECK(faults.status() == kFull);
  CHECK(faults.NextTick() == kStart + absl::Seconds(10));
  Transfer(faults, absl::OkStatus(), /*was_write=*/false, kStart + absl::Seconds(1));
  // This write began before the disk was full.
  Transfer(faults, absl::OkStatus(), /*was_write=*/true, kStart + absl::Seconds(1));
  CHECK_FALSE(faults.MayWrite());
  CHECK(faults.status() == kFull);
  faults.Tick(kStart + absl::Seconds(10));
  CHECK(faults.MayWrite());
  CHECK(faults.status() == kFull);  // until a write shows that there is space
  Transfer(faults, absl::OkStatus(), /*was_write=*/true, kStart + absl::Seconds(11));
  CHECK(faults.status().ok());
}

TEST_CASE("DiskFaults keeps the disk on after wrong bytes") {
  DiskFaults faults(kPatience);
  // The transfer is a read.
  Transfer(faults, absl::DataLossError("the bytes do not fit their seal"), false, kStart);
  CHECK(faults.MayWrite());
  CHECK(faults.status().ok());
}

}  // namespace baton
