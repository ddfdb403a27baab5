#pragma once

#include <cstdint>

#include "model/batch.h"
#include "model/config.h"

namespace baton {

// Aborts unless the batch is well formed: tokens < vocab, positions < context, block tables that reach far enough and
// name only blocks < block_count. The engine makes batches; whatever a client can cause is refused before it.
void CheckBatch(const Batch& batch, const ModelConfig& config, int64_t block_count);

}  // namespace baton
