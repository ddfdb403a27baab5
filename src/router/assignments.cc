#include "router/assignments.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"
#include "request/priority.h"

namespace baton {

void Assignments::ToPrefill(Request& request, const AttachedWorker& worker) {
  Placement& placement = request.placement;
  BATON_CHECK(placement.prefill.empty(), request.id);
  placement.prefill = worker.link;
  placement.queued_tokens = IsLowPriority(request.asked.spec.priority) ? 0 : UncachedTokens(worker, request);
  AttachedWorker& at = workers_.At(worker.link);
  at.requests.insert(&request);
  at.prompt_tokens += placement.queued_tokens;
  at.prefix_memory->BeginPrompt(placement.route.keys);
}

void Assignments::ToDecode(Request& request, const AttachedWorker& worker) {
  BATON_CHECK(request.placement.decode.empty(), request.id);
  request.placement.decode = worker.link;
  workers_.At(worker.link).requests.insert(&request);
}

void Assignments::Expect(Request& request, const AttachedWorker* decode) {
  WorkerAddress& expected_at = request.placement.expected_at;
  if (!expected_at.empty()) workers_.At(expected_at).expected.erase(&request);
  expected_at = decode == nullptr ? "" : decode->link;
  if (decode != nullptr) workers_.At(decode->link).expected.insert(&request);
}

void Assignments::NotePromptTokens(Request& request) {
  Placement& placement = request.placement;
  const auto tokens = static_cast<int32_t>(request.asked.spec.tokens.size());
  if (!placement.prefill.empty() && !IsLowPriority(request.asked.spec.priority)) {
    const int64_t queued = std::max<int64_t>(placement.queued_tokens + tokens - placement.prompt_tokens, 0);
    workers_.At(placement.prefill).prompt_tokens += queued - placement.queued_tokens;
    placement.queued_tokens = queued;
  }
  placement.prompt_tokens = tokens;
}

void Assignments::LeavePrefill(Request& request) {
  Placement& placement = request.placement;
  if (placement.prefill.empty()) return;
  Expect(request, nullptr);
  AttachedWorker& worker = workers_.At(std::exchange(placement.prefill, {}));
  worker.requests.erase(&request);
  worker.prompt_tokens -= placement.queued_tokens;
  worker.prefix_memory->EndPrompt(placement.route.keys);
}

void Assignments::LeaveDecode(Request& request) {
  if (request.placement.decode.empty()) return;
  workers_.At(std::exchange(request.placement.decode, {})).requests.erase(&request);
}

std::vector<Request*> Assignments::LeaveWorker(const AttachedWorker& worker) {
  const std::vector<Request*> expected(worker.expected.begin(), worker.expected.end());
  for (Request* request : expected) Expect(*request, nullptr);
  std::vector<Request*> requests(worker.requests.begin(), worker.requests.end());
  std::ranges::sort(requests, {}, &Request::id);
  for (Request* request : requests) {
    if (request->placement.prefill == worker.link) LeavePrefill(*request);
    if (request->placement.decode == worker.link) LeaveDecode(*request);
  }
  return requests;
}

void Assignments::CheckInvariants(const absl::flat_hash_set<Request*>& live) const {
  absl::flat_hash_map<WorkerAddress, int64_t> requests, expected, prompt_tokens, blocks;
  const auto& workers = workers_.workers();
  for (Request* request : live) {
    const Placement& placement = request->placement;
    for (const WorkerAddress& link : {placement.prefill, placement.decode}) {
      if (link.empty()) continue;
      BATON_CHECK(workers.contains(link) && workers.at(link).requests.contains(request), request->id);
      ++requests[link];
    }
    if (!placement.prefill.empty()) {
      prompt_tokens[placement.prefill] += placement.queued_tokens;
      blocks[placement.prefill] += std::ssize(placement.route.keys);
    }
    if (placement.expected_at.empty()) continue;
    BATON_CHECK(workers.at(placement.expected_at).expected.contains(request), request->id);
    ++expected[placement.expected_at];
  }
  for (const auto& [link, worker] : workers) {
    BATON_CHECK(std::ssize(worker.requests) == requests[link], link);
    BATON_CHECK(std::ssize(worker.expected) == expected[link], link);
    BATON_CHECK(worker.prompt_tokens == prompt_tokens[link], link);
    BATON_CHECK(!worker.prefix_memory || worker.prefix_memory->under_way() == blocks[link], link);
  }
}

}  // namespace baton
