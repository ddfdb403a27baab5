// The blocks of a decode worker that ended reservations may still write.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "kv/block_pool.h"

namespace baton {

// Blocks are in quarantine until their writer has released them, until its process has ended, or
// until a fixed time. Each method that ends quarantines returns the number of freed blocks. The
// pool must outlive this object. Not thread-safe.
class Quarantine {
 public:
  explicit Quarantine(BlockPool& pool) : pool_(pool) {}

  // Quarantines the blocks of a reservation. `process` is the process without which nothing can
  // write them, or empty if writes may arrive after the end of the writer's process. Does nothing
  // if there are no blocks. REQUIRES: the references are the only ones of their blocks.
  void Add(const ReservationRef& ref, std::vector<BlockRef> blocks, std::string process, absl::Time ends_at);

  int64_t Release(const ReservationRef& ref);
  int64_t OnProcessEnd(std::string_view process);
  int64_t Tick(absl::Time now);
  absl::Time NextTick() const;  // InfiniteFuture if there is no quarantine

  bool Contains(ReservationId id) const { return entries_.contains(id); }
  void CheckInvariants() const;

 private:
  struct Entry {
    Generation generation;
    std::vector<BlockId> blocks;
    std::string process;
    absl::Time ends_at;
  };
  int64_t EndIf(absl::FunctionRef<bool(ReservationId, const Entry&)> ends);

  BlockPool& pool_;
  std::map<ReservationId, Entry> entries_;
};

}  // namespace baton
