// A disk for staged KV, in the memory of the simulator.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kv/staging/staging.h"

namespace baton {

// Makes the transfers of a prefill worker, and fails as StagingFile does.
class SimulatedDisk {
 public:
  // Time of one transfer. Transfers run one after the other.
  static constexpr absl::Duration kTransferTime = absl::Microseconds(200);

  // Writes find no space until this time.
  void FillUntil(absl::Time until) { full_until_ = std::max(full_until_, until); }
  // Lets the next transfer fail.
  void FailNext() { fails_next_ = true; }
  // Returns the time at which a transfer that is begun now ends.
  absl::Time Begin(absl::Time now) { return free_ = std::max(free_, now) + kTransferTime; }
  // Makes the transfer with this slot of host memory, at its end.
  absl::Status Transfer(const DiskTransfer& transfer, std::span<std::byte> host, absl::Time now) {
    if (std::exchange(fails_next_, false)) return absl::InternalError("an I/O error of the simulated disk");
    if (transfer.read) {
      std::ranges::copy(slots_.at(transfer.disk_slot), host.begin());
    } else if (now < full_until_) {
      return absl::ResourceExhaustedError("the simulated disk is full");
    } else {
      slots_[transfer.disk_slot].assign(host.begin(), host.end());
    }
    return absl::OkStatus();
  }

 private:
  absl::Time full_until_ = absl::InfinitePast();
  bool fails_next_ = false;
  absl::Time free_ = absl::InfinitePast();
  std::map<int64_t, std::vector<std::byte>> slots_;
};

}  // namespace baton
