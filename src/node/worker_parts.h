// The parts of a worker's node, and the worker's description for routers.
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

// The parts of a worker's node. All must outlive the node.
struct NodeParts {
  const WorkerOptions& options;
  const std::string& model_name;
  const ModelConfig& config;
  const Digest& digest;  // of the prefill module
  Backend& backend;
  Connector& connector;  // connects the slab to peers
  const Clock& clock;
  Metrics& metrics;
};

// Generates a random incarnation, which differs for each start of a process.
Incarnation DrawIncarnation();

WorkerInfo Describe(const NodeParts& parts, WorkerRole role, const WorkerAddress& address, Incarnation incarnation);

}  // namespace baton
