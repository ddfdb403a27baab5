#include "node/worker_parts.h"

#include <cstdint>
#include <random>

namespace baton {

Incarnation DrawIncarnation() {
  std::random_device random;
  return Incarnation((uint64_t{random()} << 32 | random()) | 1);  // never zero
}

WorkerInfo Describe(const NodeParts& parts, WorkerRole role, const WorkerAddress& address, Incarnation incarnation) {
  WorkerInfo info;
  info.role = role;
  info.address = address;
  info.incarnation = incarnation;
  info.model = parts.model_name;
  info.module_digest = info.weights_digest = parts.digest;
  info.numerics_id = parts.backend.numerics_id();
  info.layout = parts.backend.kv_layout();
  info.blocks_total = static_cast<int64_t>(parts.backend.kv_slab().size()) / info.layout.BlockBytes();
  info.context = static_cast<int32_t>(parts.config.context);
  info.max_batch = parts.options.max_batch;
  return info;
}

}  // namespace baton
