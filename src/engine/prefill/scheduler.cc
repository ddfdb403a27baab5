#include "engine/prefill/scheduler.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "kv/block_layout.h"

namespace baton {

PrefillScheduler::PrefillScheduler(BlockPool& pool, RadixTree& tree, int64_t step_tokens, StreamingLimits streaming,
                                   KeptPrompts kept)
    : tree_(tree),
      leases_(pool, tree, kept.leased),
      session_protections_(tree),
      staging_(tree, kept.staging, pool.counts().total),
      streaming_(streaming),
      admission_(pool, tree, prompts_, queue_, leases_),
      planner_({tree, queue_, admission_, staging_, streaming_, progress_}, step_tokens) {}

const PrefillPrompt* PrefillScheduler::Find(const RequestId& id) const {
  const auto found = prompts_.find(id);
  return found == prompts_.end() ? nullptr : found->second.get();
}

PrefillPrompt::EnginePart* PrefillScheduler::FindEngine(const RequestId& id) {
  const auto found = prompts_.find(id);
  return found == prompts_.end() ? nullptr : &found->second->engine;
}

const PrefillPrompt& PrefillScheduler::Get(const RequestId& id) const {
  const PrefillPrompt* const prompt = Find(id);
  BATON_CHECK(prompt != nullptr, "no such request");
  return *prompt;
}

PrefillPrompt& PrefillScheduler::Get(const RequestId& id) {
  const auto found = prompts_.find(id);
  BATON_CHECK(found != prompts_.end(), "no such request");
  return *found->second;
}

absl::Status PrefillScheduler::Add(PrefillPrompt prompt) {
  BATON_CHECK(!prompts_.contains(prompt.id), "added twice");
  const int64_t tokens = prompt.kv_tokens;
  BATON_CHECK(tokens <= std::ssize(prompt.spec.tokens), "KV for tokens that are not there");
  BATON_CHECK(static_cast<int64_t>(prompt.keys.size()) == tokens / kBlockTokens, "one key for each full block");
  BATON_CHECK(!prompt.streaming || tokens % kBlockTokens == 0, "a streaming prompt has whole blocks");
  RETURN_IF_ERROR(admission_.CheckFits(tokens));
  auto request = std::make_unique<PrefillPrompt>(std::move(prompt));
  request->arrival = ++arrivals_;
  request->wanted = tokens;
  request->progress_reported = !request->streaming;
  request->ready_at_add = staging_.Expect(*request, 0);
  if (tokens > 0) queue_.Insert(request.get());
  Protect(*request);
  prompts_[request->id] = std::move(request);
  return absl::OkStatus();
}

absl::Status PrefillScheduler::Extend(const RequestId& id, TokenBuffer tokens, int64_t kv_tokens,
                                      std::span<const BlockKey> keys, bool last) {
  PrefillPrompt& request = Get(id);
  BATON_CHECK(request.streaming && !request.stopped, "extended after its end");
  RETURN_IF_ERROR(admission_.CheckFits(kv_tokens));
  queue_.Erase(&request);
  planner_.Retain(std::move(request.spec.tokens));
  request.spec.tokens = std::move(tokens);
  request.kv_tokens = kv_tokens;
  request.keys.insert(request.keys.end(), keys.begin(), keys.end());
  BATON_CHECK(std::ssize(request.keys) == kv_tokens / kBlockTokens, "one key for each full block");
  BATON_CHECK(last || kv_tokens % kBlockTokens == 0, "a streaming prompt has whole blocks");
  if (request.ready_at_add == request.wanted) request.ready_at_add = staging_.Expect(request, request.wanted);
  request.wanted = kv_tokens;
  request.looked_again = false;
  request.streaming = !last;
  request.admitted = false;  // it needs more room
  request.extended = true;
  if (request.planned < request.wanted) queue_.Insert(&request);
  if (last) Protect(request);
  if (last && request.done >= request.wanted) progress_.ReportAll(request);
  return absl::OkStatus();
}

void PrefillScheduler::SetQueueOrder(const RequestId& id, absl::Time queue_order) {
  PrefillPrompt& request = Get(id);
  const bool waits = queue_.Erase(&request);
  request.queue_order = queue_order;
  if (waits) queue_.Insert(&request);
  if (request.protection) Protect(request);
}

void PrefillScheduler::Limit(const RequestId& id, int64_t tokens) {
  PrefillPrompt& request = Get(id);
  if (tokens >= request.wanted) return;
  BATON_CHECK(tokens >= 0 && tokens % kBlockTokens == 0, "limited to whole blocks");
  request.wanted = tokens;
  if (request.planned >= request.wanted) {
    queue_.Erase(&request);
    staging_.Unprotect(request);
  }
  if (request.done >= request.wanted) progress_.ReportAll(request);
}

void PrefillScheduler::Stop(const RequestId& id) {
  PrefillPrompt& request = Get(id);
  request.stopped = true;
  staging_.Release(request);
  staging_.Unprotect(request);
  queue_.Erase(&request);
}

void PrefillScheduler::Remove(const RequestId& id) {
  Stop(id);
  planner_.Retain(std::move(prompts_.extract(id).mapped()));
}

// Protects the cached blocks of a queued prompt. Ends the protection of any other prompt.
void PrefillScheduler::Protect(PrefillPrompt& prompt) {
  if (queue_.contains(&prompt)) {
    staging_.Protect(prompt);
  } else {
    staging_.Unprotect(prompt);
  }
}

std::vector<RequestId> PrefillScheduler::FinishStep(bool ok) {
  std::vector<RequestId> failed = planner_.FinishStep(ok);
  leases_.Grant(admission_.Unpromised());
  return failed;
}

void PrefillScheduler::LeaseOrProtect(const RequestId& id, const KvLease& lease, LeaseHolder holder, absl::Time now) {
  const std::span<const BlockKey> keys(Get(id).keys);
  const auto path = keys.first(std::min(keys.size(), static_cast<size_t>(lease.tokens / kBlockTokens)));
  if (lease.only_protects) return session_protections_.Add(path, now + lease.duration);
  leases_.Ask(holder, path, now + lease.duration);
  if (!step_running()) leases_.Grant(admission_.Unpromised());
}

bool PrefillScheduler::IsComplete(const RequestId& id) const {
  const PrefillPrompt* const prompt = Find(id);
  return prompt != nullptr && prompt->done >= prompt->wanted && !prompt->streaming;
}

PrefillScheduler::Load PrefillScheduler::load() const {
  Load load;
  for (const PrefillPrompt* request : queue_) {
    ++(request->admitted ? load.running : load.waiting);
    if (request->is_low_priority()) continue;  // a new prompt does not wait for low-priority jobs
    load.queued_tokens += std::max<int64_t>(0, request->wanted - std::max(request->planned, request->ready_at_add));
  }
  return load;
}

void PrefillScheduler::CheckInvariants() const {
  tree_.CheckInvariants();
  leases_.CheckInvariants();
  if (!step_running()) staging().CheckInvariants();
  for (const auto& [id, request] : prompts_) {
    BATON_CHECK(id == request->id, "a request under another's id");
    BATON_CHECK(request->done <= request->planned, "more done than planned");
    BATON_CHECK(step_running() || request->done == request->planned, "something is planned and no step is running");
    BATON_CHECK(static_cast<int64_t>(request->table.size()) == BlocksFor(request->planned), "a table of wrong size");
    BATON_CHECK(request->admitted || request->table.size() == 0 || request->extended,
                "a request took blocks before it was admitted");
    const bool active = !request->stopped && request->planned < request->wanted;
    BATON_CHECK(queue_.contains(request.get()) == active, "an inactive request is planned, or an active one is not");
    BATON_CHECK(!request->protection || active, "cached blocks are protected for a request that has what it wants");
    const PrefillCounters& counters = request->counters;
    const int64_t staged = counters.from_host + counters.from_disk;
    BATON_CHECK(counters.cached + counters.shared + staged + counters.computed == request->planned,
                "tokens miscounted");
  }
  planner_.CheckInvariants();
  BATON_CHECK(admission_.Unpromised() >= 0, "an admitted request may find no block");
}

}  // namespace baton
