// The check that a batch is well formed, which backends run before a step.
#pragma once

#include <cstdint>

#include "model/batch.h"
#include "model/config.h"

namespace baton {

// Aborts the process unless the batch is well formed:
//
// - every token is below the vocabulary size
// - every position is below the context length
// - every block table covers its slice and names only blocks below `block_count`
//
// The engine composes batches and refuses malformed input of clients earlier.
void CheckBatch(const Batch& batch, const ModelConfig& config, int64_t block_count);

}  // namespace baton
