#include "server/options.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <set>

#include "base/status.h"

namespace baton {
namespace {

int64_t PhysicalBytes() { return int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE); }

}  // namespace

absl::StatusOr<int64_t> KvBlocks(const WorkerOptions& options, int64_t block_bytes) {
  const int64_t memory = PhysicalBytes();
  const int64_t blocks =
      options.kv_blocks > 0 ? options.kv_blocks : options.kv_memory_mb * (int64_t{1} << 20) / block_bytes;
  if (blocks < 2) {
    return absl::InvalidArgumentError(absl::StrCat("kv-memory-mb: ", options.kv_memory_mb, " MiB hold ", blocks,
                                                   " blocks of ", block_bytes, " bytes, expected at least 2"));
  }
  // Blocks are numbered with 32 bits.
  if (blocks > memory / block_bytes || blocks > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat("kv blocks: ", blocks, " of ", block_bytes,
                                                   " bytes do not fit into this machine's ", memory >> 20, " MiB"));
  }
  return blocks;
}

int Threads(const WorkerOptions& options) {
  if (options.threads > 0) return options.threads;
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof cores, &cores) == 0 ? std::max(CPU_COUNT(&cores), 1) : 1;
}

absl::StatusOr<WorkerAddress> AdvertisedAddress(const WorkerOptions& options, const std::string& listening) {
  if (!options.advertise.empty()) return options.advertise;
  if (listening.starts_with("0.0.0.0:") || listening.starts_with("[::]:")) {
    return absl::InvalidArgumentError(
        absl::StrCat("advertise: must say how peers reach this worker, since it listens on '", listening, "'"));
  }
  return listening;
}

absl::Status Validate(const RouterOptions& options) {
  if (options.models.empty()) return absl::InvalidArgumentError("model: at least one directory is required");
  if (options.prefill_workers.empty()) return absl::InvalidArgumentError("prefill-workers: at least one is required");
  if (options.decode_workers.empty()) return absl::InvalidArgumentError("decode-workers: at least one is required");
  std::set<WorkerAddress> seen;
  for (const auto* list : {&options.prefill_workers, &options.decode_workers}) {
    for (const WorkerAddress& address : *list) {
      if (!seen.insert(address).second) {
        return absl::InvalidArgumentError(absl::StrCat("workers: '", address, "' is named twice"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Validate(const WorkerOptions& options) {
  if (options.model.empty()) return absl::InvalidArgumentError("model: a directory is required");
  return absl::OkStatus();
}

}  // namespace baton
