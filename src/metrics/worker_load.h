// A worker's report of its load, made from the state of its engine. Workers and the simulator share
// it, so that simulated routers see the reports that real routers see.
#pragma once

#include <chrono>
#include <cstdint>

#include "engine/decode/engine.h"
#include "engine/prefill/engine.h"
#include "router/worker_state.h"

namespace baton {

// The time between two reports of a worker.
inline constexpr std::chrono::milliseconds kLoadPeriod(100);

inline WorkerLoad ToWorkerLoad(const PrefillLoad& load, bool draining) {
  return {.running_requests = static_cast<int32_t>(load.requests - load.queue.waiting),
          .queued_requests = static_cast<int32_t>(load.queue.waiting),
          .queued_tokens = load.queue.queued_tokens,
          .blocks_free = load.blocks.free,
          .blocks_cached = load.blocks.cached,
          .draining = draining,
          .steps = load.totals.steps,
          .step_time = load.step_time,
          .step_forecast = load.step_forecast,
          .longest_wait = load.longest_wait};
}

inline WorkerLoad ToWorkerLoad(const DecodeEngine::Load& load, bool draining) {
  return {.running_requests = static_cast<int32_t>(load.running),
          .queued_requests = static_cast<int32_t>(load.reserved + load.committed),
          .blocks_free = load.blocks.free,
          .blocks_cached = load.blocks.cached,
          .blocks_quarantined = load.blocks.quarantined,
          .draining = draining,
          .steps = load.steps,
          .step_time = load.step_time,
          .step_forecast = load.step_forecast,
          .longest_wait = load.longest_wait};
}

}  // namespace baton
