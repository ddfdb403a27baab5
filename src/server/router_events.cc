// What workers tell a router.
#include <algorithm>
#include <utility>

#include "base/status.h"
#include "base/strings.h"
#include "server/router.h"
#include "server/worker_convert.h"

namespace baton {

absl::Status Router::Attach(const WorkerAddress& link, WorkerRole role, const worker::v1::WorkerInfo& proto) {
  ASSIGN_OR_RETURN(const WorkerInfo info, FromProto(proto, role));
  Deliveries deliveries;
  {
    const std::lock_guard lock(mutex_);
    if (core_.workers().contains(link)) return absl::FailedPreconditionError("introduced itself twice");
    core_.WorkerAttached(link, info, clock_.Now());
    Act(deliveries);
  }
  spdlog::info("worker {}: attached: {} model '{}', {} blocks, {}", link,
               role == WorkerRole::kPrefill ? "prefill" : "decode", info.model, info.blocks_total, info.numerics_id);
  Deliver(std::move(deliveries));
  return absl::OkStatus();
}

void Router::OnLost(const WorkerAddress& link) {
  Deliveries deliveries;
  {
    const std::lock_guard lock(mutex_);
    const auto found = core_.workers().find(link);
    if (found == core_.workers().end()) return;
    metrics_.OnLost(found->second.info.role);
    core_.WorkerLost(link, clock_.Now());
    contexts_.WorkerLost(link);
    Act(deliveries);
  }
  spdlog::warn("worker {}: lost", link);
  Deliver(std::move(deliveries));
}

void Router::OnPrefillEvent(const WorkerAddress& link, const worker::v1::PrefillEvent& event) {
  switch (event.event_case()) {
    case worker::v1::PrefillEvent::kInfo:
      if (absl::Status status = Attach(link, WorkerRole::kPrefill, event.info()); !status.ok()) {
        spdlog::error("worker {}: refused: {}", link, Message(status));
        prefill_links_.at(link)->Drop();
      }
      return;
    case worker::v1::PrefillEvent::kLoad:
      return OnLoad(link, event.load());
    case worker::v1::PrefillEvent::kDone:
      return OnPrefillDone(link, FromProto(event.done()));
    case worker::v1::PrefillEvent::kFailed:
      return OnFailed(link, FromProto(event.failed()));
    case worker::v1::PrefillEvent::EVENT_NOT_SET:
      return;
  }
}

void Router::OnDecodeEvent(const WorkerAddress& link, const worker::v1::DecodeEvent& event) {
  switch (event.event_case()) {
    case worker::v1::DecodeEvent::kInfo:
      if (absl::Status status = Attach(link, WorkerRole::kDecode, event.info()); !status.ok()) {
        spdlog::error("worker {}: refused: {}", link, Message(status));
        decode_links_.at(link)->Drop();
      }
      return;
    case worker::v1::DecodeEvent::kLoad:
      return OnLoad(link, event.load());
    case worker::v1::DecodeEvent::kUpdates:
      return OnUpdates(link, event.updates());
    case worker::v1::DecodeEvent::kFailed:
      return OnFailed(link, FromProto(event.failed()));
    case worker::v1::DecodeEvent::EVENT_NOT_SET:
      return;
  }
}

void Router::OnLoad(const WorkerAddress& link, const worker::v1::Load& load) {
  const std::lock_guard lock(mutex_);
  core_.WorkerLoaded(link, FromProto(load));
}

void Router::OnPrefillDone(const WorkerAddress& link, PrefillDone done) {
  Deliveries deliveries;
  {
    const std::lock_guard lock(mutex_);
    Record* found = Find(done.request_id);
    if (found == nullptr) return;
    Record& record = *found;
    done.request_id = record.request.id;
    if (core_.PrefillDone(link, done.request_id, done.decode_incarnation)) {
      record.done = done;
      record.prefilled = clock_.Now();
      if (workload_) workload_->Prefilled(done.request_id);
      record.prefilled_by = link;
      // All that was not prefill or hand-off was waiting, at the router or at the worker.
      record.queue = std::max(record.prefilled - record.complete - done.compute - done.handoff, absl::ZeroDuration());
    }
    Act(deliveries);
  }
  Deliver(std::move(deliveries));
}

void Router::OnFailed(const WorkerAddress& link, const RequestFailed& failed) {
  Deliveries deliveries;
  {
    const std::lock_guard lock(mutex_);
    const Record* found = Find(failed.request_id);
    if (found == nullptr) return;
    const RequestId id = found->request.id;
    const absl::Time now = clock_.Now();
    core_.Failed(link, id, {failed.status, failed.retry_after, failed.no_room_to_decode}, now);
    Act(deliveries);
    // It waits to begin anew, unless it did so right away.
    const auto record = records_.find(id);
    if (record != records_.end() && absl::IsResourceExhausted(failed.status) && record->second.placed < now) {
      record->second.placed = record->second.prefilled = absl::InfiniteFuture();
    }
  }
  Deliver(std::move(deliveries));
}

void Router::OnUpdates(const WorkerAddress& link, const worker::v1::StepUpdates& step) {
  Deliveries deliveries;
  deliveries.reserve(static_cast<size_t>(step.updates_size()));
  {
    const std::lock_guard lock(mutex_);
    const absl::Time now = clock_.Now();
    for (const worker::v1::TokenUpdate& proto : step.updates()) {
      TokenUpdate update = FromProto(proto);
      Record* found = Find(update.request_id);
      if (found == nullptr) continue;
      Record& record = *found;
      update.request_id = record.request.id;
      if (!core_.TokensArrived(link, update.request_id, update.finish.has_value())) continue;
      const auto tokens = static_cast<int32_t>(update.tokens.size());
      if (record.completion_tokens > 0) {
        metrics_.OnTokens(now - record.last_update, tokens);
      } else if (tokens > 0) {
        record.first_token = now - record.arrived;
        metrics_.OnFirstToken(record.first_token);
      }
      record.last_update = now;
      record.completion_tokens += tokens;
      record.finish = update.finish;
      graph_.Made(update.request_id, update.tokens, update.text);
      if (workload_) workload_->Made(update.request_id, tokens);
      deliveries.push_back({record.sink, std::move(update)});
      Act(deliveries);  // its end, where this was the last
    }
  }
  Deliver(std::move(deliveries));
}

}  // namespace baton
