// The state of a worker that metrics' getters read. One snapshot serves all series of a scrape.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/decode/engine.h"
#include "engine/prefill/engine.h"
#include "router/worker_state.h"

namespace baton {

struct WorkerSnapshot {
  // The load that routers see.
  WorkerLoad load;
  int64_t blocks_total = 0;
  int64_t blocks_used() const { return blocks_total - load.blocks_free - load.blocks_cached - load.blocks_quarantined; }
};

struct PrefillSnapshot : WorkerSnapshot {
  PrefillLoad engine;
  int64_t block_bytes = 0;
};

struct DecodeSnapshot : WorkerSnapshot {
  DecodeEngine::Load engine;
  // Requests that are ready to decode and are in no step, like vLLM's number of waiting requests.
  // Not negative: between two steps, requests of the last batch may have ended already.
  int64_t waiting() const { return std::max<int64_t>(engine.running - engine.batch, 0) + engine.committed; }
};

}  // namespace baton
