// What a router counts, under the names by which vLLM counts the same. docs/operations.md says which those are.
#pragma once

#include <map>
#include <string>

#include "absl/time/time.h"
#include "metrics/metric_table.h"
#include "router/dispatcher.h"

namespace baton {

// Not thread-safe.
class VllmMetrics {
 public:
  // Series of these models are there from the start, of others from their first request on.
  VllmMetrics(Metrics& metrics, const std::vector<std::string>& models);
  void OnProgress(const RequestProgress& progress);
  void OnEnd(const RequestEnded& ended);

 private:
  struct OfModel {
    OfModel(Metrics& metrics, const std::string& model);
    prometheus::Counter &prompt_tokens, &cached_tokens, &prefix_queries, &prefix_hits, &generation_tokens;
    prometheus::Counter &stopped, &full, &aborted;
    prometheus::Histogram &first_token, &inter_token, &per_token, &whole, &queue, &prefill, &decode, &inference;
    prometheus::Histogram &prompt_length, &output_length;
  };
  OfModel& Of(const std::string& model);

  Metrics& metrics_;
  std::map<std::string, OfModel> models_;
};

}  // namespace baton
