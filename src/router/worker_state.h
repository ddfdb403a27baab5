// What a router knows of a worker: who it is, once, and how loaded it is, again and again.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/ids.h"
#include "kv/block_layout.h"

namespace baton {

enum class WorkerRole { kPrefill, kDecode };

struct WorkerInfo {
  WorkerRole role = WorkerRole::kPrefill;
  WorkerAddress address{};  // under which other workers reach it; pins hash it, so all routers must see the same
  Incarnation incarnation{};
  std::string model{};
  std::array<uint8_t, 32> module_digest{};   // KV may pass between equal ones only
  std::array<uint8_t, 32> weights_digest{};  // of its own weights; decode workers of one model have both equal
  std::string numerics_id{};
  KvLayout layout{};
  int64_t blocks_total = 0;
  int64_t staging_blocks = 0;  // that host memory and disk hold besides
  int64_t host_blocks = 0;     // of these, in host memory; 0 also from a worker of an older release
  int32_t context = 0;         // tokens
  int32_t max_batch = 0;       // requests in one step
};

struct WorkerLoad {
  int32_t running_requests = 0;
  int32_t queued_requests = 0;
  int64_t queued_tokens = 0;  // prompt tokens accepted and not yet computed
  int64_t blocks_free = 0;
  int64_t blocks_cached = 0;
  bool draining = false;  // it shuts down: it finishes what it has and takes nothing new
};

}  // namespace baton
