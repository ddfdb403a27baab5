// Requests with only the properties that placement and the core need.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "router/placement.h"
#include "router/request.h"

namespace baton {

struct RouteRequest {
  RequestId id{};
  std::string tenant{};
  std::string model{};
  std::string session{};
  std::vector<BlockKey> keys{};
  int32_t prompt_tokens = 0;
  int32_t max_new_tokens = 0;
  bool has_max_tokens = false;
  int32_t expected_tokens = 0;  // 0: max_new_tokens
  bool streaming = false;
  RequestId upstream{};
  int32_t priority = 0;
  absl::Time queue_order{};
  bool prefill_only = false;
  WorkerAddress holder{};
  int32_t held_tokens = 0;
  bool at_holder = false;
  absl::Time deadline = absl::InfiniteFuture();
  bool held = false;
  bool scores = false;
};

inline const ServedModel* ServedNamed(const std::string& name) {
  static std::map<std::string, ServedModel> models;
  ServedModel& model = models[name];
  model.name = name;
  return &model;
}

inline TokenBuffer PromptOf(int32_t tokens) { return std::vector<TokenId>(static_cast<size_t>(tokens), 1); }

// Gives `record` the properties of `route`. REQUIRES: no core has the record.
inline void Fill(Request& record, RouteRequest route) {
  record.id = std::move(route.id);
  record.asked.served = ServedNamed(route.model);
  record.asked.spec.tenant = std::move(route.tenant);
  record.asked.spec.tokens = PromptOf(route.prompt_tokens);
  record.asked.spec.sampling.max_tokens = route.max_new_tokens;
  record.asked.has_max_tokens = route.has_max_tokens;
  record.asked.spec.expected_tokens = route.expected_tokens > 0 ? route.expected_tokens : route.max_new_tokens;
  record.asked.spec.priority = route.priority;
  if (route.scores) record.asked.spec.sampling.prompt_logprobs = 0;
  record.asked.prefill_only = route.prefill_only;
  record.asked.context.holder = std::move(route.holder);
  record.asked.context.tokens = route.held_tokens;
  record.asked.deadline = route.deadline;
  record.SetRoute({.session = std::move(route.session),
                   .keys = std::move(route.keys),
                   .streaming = route.streaming,
                   .upstream = std::move(route.upstream),
                   .at_holder = route.at_holder,
                   .held = route.held,
                   .queue_order = route.queue_order});
}

inline std::unique_ptr<Request> MakeRecord(RouteRequest route) {
  auto record = std::make_unique<Request>();
  Fill(*record, std::move(route));
  return record;
}

using Workers = std::span<const AttachedWorker* const>;
inline const AttachedWorker* ChoosePrefill(Workers workers, const RouteRequest& request,
                                           const PlacementOptions& options) {
  return ChoosePrefill(workers, *MakeRecord(request), options);
}
inline const AttachedWorker* ChooseDecode(Workers workers, const RouteRequest& request, const AttachedWorker* ahead,
                                          const PlacementOptions& options) {
  return ChooseDecode(workers, *MakeRecord(request), ahead, options);
}
inline int64_t PrefillCost(const AttachedWorker& worker, const RouteRequest& request) {
  return PrefillCost(worker, *MakeRecord(request));
}

}  // namespace baton
