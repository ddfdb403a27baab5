#include "simulator/router.h"

#include <utility>
#include <variant>

#include "base/status.h"
#include "kv/prefix_key.h"

namespace baton {

void SimulatedRouter::Attach(const WorkerAddress& worker, const WorkerInfo& info) {
  core_.WorkerAttached(worker, info, queue_.Now());
  Act();
}

void SimulatedRouter::OnLost(const WorkerAddress& worker) {
  core_.WorkerLost(worker, queue_.Now());
  Act();
}

void SimulatedRouter::Cancel(const RequestId& id) {
  core_.Cancel(id);
  Act();
}

void SimulatedRouter::Submit(SimulatedRequest request) {
  const RequestId id = request.id;
  Record& record = records_[id];
  record.request = std::move(request);
  if (const absl::Status status = Enter(id, record); !status.ok()) {
    records_.erase(id);
    graph_.Ended(id, status, queue_.Now());
    outlets_.end(id, status);
  }
  Act();
}

absl::Status SimulatedRouter::Enter(const RequestId& id, Record& record) {
  const SimulatedRequest& request = record.request;
  RETURN_IF_ERROR(graph_.Submit({.id = id,
                                 .tenant = request.cache_salt,
                                 .tokenizer = &tokenizer_,
                                 .segments = request.segments,
                                 .join = request.join,
                                 .most_tokens = context_ - request.max_tokens},
                                queue_.Now()));
  record.open = true;
  for (AgentAction& action : graph_.TakeActions()) {
    if (const auto* failed = std::get_if<PromptFailed>(&action)) return failed->status;
    auto& grew = std::get<PromptGrew>(action);
    record.tokens.insert(record.tokens.end(), grew.tokens.begin(), grew.tokens.end());
    record.open = !grew.complete;
  }
  return core_.Submit(RouteOf(record), queue_.Now());
}

RouteRequest SimulatedRouter::RouteOf(const Record& record) const {
  const BlockKey root = RootKey(Digest{}, record.request.cache_salt);
  return {.id = record.request.id,
          .model = record.request.model,
          .keys = BlockKeys(root, record.tokens),
          .prompt_tokens = static_cast<int32_t>(record.tokens.size()),
          .max_new_tokens = record.request.max_tokens,
          .open = record.open};
}

void SimulatedRouter::OnPrefillDone(const WorkerAddress& from, const PrefillDone& done) {
  if (core_.PrefillDone(from, done.request_id, done.decode_incarnation)) records_.at(done.request_id).done = done;
  Act();
}

void SimulatedRouter::OnFailed(const WorkerAddress& from, const RequestFailed& failed) {
  core_.Failed(from, failed.request_id, {failed.status, failed.retry_after, failed.no_room_to_decode}, queue_.Now());
  Act();
}

void SimulatedRouter::OnEvents(const WorkerAddress& from, DecodeEvents events) {
  for (TokenUpdate& update : events.updates) {
    if (!core_.TokensArrived(from, update.request_id, update.finish.has_value())) continue;
    graph_.Made(update.request_id, update.tokens, update.text);
    outlets_.tokens(update.request_id, std::move(update.tokens));
    Act();  // its end, where this was the last
  }
  for (const RequestFailed& failed : events.failures) OnFailed(from, failed);
}

void SimulatedRouter::Tick() {
  core_.Tick(queue_.Now());
  graph_.Tick(queue_.Now());
  Act();
}

void SimulatedRouter::CheckInvariants() const {
  core_.CheckInvariants();
  graph_.CheckInvariants();
}

// --- actions -------------------------------------------------------------------------------------------------------

void SimulatedRouter::Act() {
  while (true) {
    const std::vector<RouterAction> core_actions = core_.TakeActions();
    for (const RouterAction& action : core_actions) Act(action);
    std::vector<AgentAction> agent_actions = graph_.TakeActions();  // after an end, which completes prompts
    if (core_actions.empty() && agent_actions.empty()) return;
    for (AgentAction& action : agent_actions) {
      std::visit([this](auto& concrete) { Act(concrete); }, action);
    }
  }
}

void SimulatedRouter::Act(const RouterAction& action) {
  switch (action.kind) {
    case RouterAction::Kind::kStartPrefill:
      return StartPrefill(action);
    case RouterAction::Kind::kAppend:
    case RouterAction::Kind::kClose:
      return AppendPrompt(action);
    case RouterAction::Kind::kStartDecode:
      return StartDecode(action);
    case RouterAction::Kind::kCancel:
      return outlets_.cancel(action.worker, action.request);
    case RouterAction::Kind::kEnd:
      return End(action);
  }
}

// A request may end between an action of the graph and this: then it is nobody's.
void SimulatedRouter::Act(PromptGrew& grew) {
  const auto found = records_.find(grew.id);
  if (found == records_.end()) return;
  Record& record = found->second;
  record.tokens.insert(record.tokens.end(), grew.tokens.begin(), grew.tokens.end());
  const auto tokens = static_cast<int32_t>(record.tokens.size());
  if (!grew.complete) return core_.Grew(grew.id, tokens);
  record.open = false;
  core_.Closed(grew.id, tokens, record.request.max_tokens, queue_.Now());
}

void SimulatedRouter::Act(PromptRestarted& restarted) {
  const auto found = records_.find(restarted.id);
  if (found == records_.end()) return;
  Record& record = found->second;
  record.tokens.clear();
  record.restart |= record.sent > 0;
  record.sent = 0;
}

void SimulatedRouter::StartPrefill(const RouterAction& action) {
  Record& record = records_.at(action.request);
  PrefillJob job;
  job.request_id = action.request;
  job.tokens = record.tokens;
  job.cache_salt = record.request.cache_salt;
  job.max_new_tokens = record.request.max_tokens;
  job.decode_worker = action.decode_worker;
  job.open = action.open;
  record.sent = record.tokens.size();
  record.restart = false;
  outlets_.prefill(action.worker, std::move(job));
}

void SimulatedRouter::AppendPrompt(const RouterAction& action) {
  Record& record = records_.at(action.request);
  PrefillAppend append;
  append.request_id = action.request;
  append.tokens.assign(record.tokens.begin() + static_cast<std::ptrdiff_t>(record.sent), record.tokens.end());
  append.restart = std::exchange(record.restart, false);
  append.last = action.kind == RouterAction::Kind::kClose;
  append.max_new_tokens = record.request.max_tokens;
  append.decode_worker = action.decode_worker;
  record.sent = record.tokens.size();
  outlets_.append(action.worker, std::move(append));
}

void SimulatedRouter::StartDecode(const RouterAction& action) {
  const Record& record = records_.at(action.request);
  DecodeJob job;
  job.request_id = action.request;
  job.reservation = record.done.reservation;
  job.decode_incarnation = record.done.decode_incarnation;
  job.blocks = record.done.blocks;
  job.tokens = record.tokens;
  job.cache_salt = record.request.cache_salt;
  job.sampling.temperature = 0;
  job.sampling.max_tokens = record.request.max_tokens;
  job.sampling.ignore_eos = true;
  job.sampling.stop = record.request.stop;
  outlets_.decode(action.worker, std::move(job));
}

void SimulatedRouter::End(const RouterAction& action) {
  graph_.Ended(action.request, action.status, queue_.Now());
  records_.erase(action.request);
  outlets_.end(action.request, action.status);
}

}  // namespace baton
