// The parts from which the node of a worker is made, and its description for routers.
#pragma once

#include <string>

#include "backend/backend.h"
#include "base/clock.h"
#include "base/ids.h"
#include "metrics/metrics.h"
#include "model/config.h"
#include "model/weights.h"
#include "node/options.h"
#include "router/worker_state.h"
#include "transport/transport.h"

namespace baton {

// What a worker is made from; all must outlive it.
struct NodeParts {
  const WorkerOptions& options;
  const std::string& model_name;
  const ModelConfig& config;
  const Digest& digest;  // of the prefill module
  Backend& backend;
  Connector& connector;  // to and from its slab
  const Clock& clock;
  Metrics& metrics;
};

// Random, so that no two process starts share one.
Incarnation DrawIncarnation();

WorkerInfo Describe(const NodeParts& parts, WorkerRole role, const WorkerAddress& address, Incarnation incarnation);

}  // namespace baton
