// What getters of metrics read of a worker: one snapshot for all series of a scrape.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/decode/engine.h"
#include "engine/prefill/engine.h"
#include "router/worker_state.h"

namespace baton {

struct WorkerSnapshot {
  WorkerLoad load;  // as routers see it
  int64_t blocks_total = 0;
  int64_t blocks_used() const { return blocks_total - load.blocks_free - load.blocks_cached; }
};

struct PrefillSnapshot : WorkerSnapshot {
  PrefillLoad engine;
  int64_t block_bytes = 0;
};

struct DecodeSnapshot : WorkerSnapshot {
  DecodeEngine::Load engine;
  // As vLLM counts: requests that have all they need and are in no step. Between two steps some of
  // the last batch may have ended.
  int64_t waiting() const { return std::max<int64_t>(engine.running - engine.batch, 0) + engine.committed; }
};

}  // namespace baton
