// Settings that the metrics of prefill and decode workers share.
#pragma once

#include <string>

#include "metrics/metrics.h"
#include "router/worker_state.h"

namespace baton {

// Labels of a worker's metrics. `model` distinguishes several decoders of one process. `vllm` adds
// vLLM's labels, model_name and engine. vLLM numbers its engines by `engine`. Here `engine` is the
// role, because several workers may serve one model at one address.
inline MetricLabels WorkerLabels(WorkerRole role, const std::string& model, bool vllm) {
  const std::string name = role == WorkerRole::kPrefill ? "prefill" : "decode";
  MetricLabels labels{{"role", name}, {"stage", name}, {"model", model}};
  if (vllm) labels.insert({{"model_name", model}, {"engine", name}});
  return labels;
}

}  // namespace baton
