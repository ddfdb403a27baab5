// What workers tell a router.
#include <utility>

#include "base/logging.h"
#include "base/status.h"
#include "base/strings.h"
#include "rpc/worker_convert.h"
#include "shell/router.h"

namespace baton {

absl::Status Router::Attach(const WorkerAddress& link, WorkerRole role, const worker::v1::WorkerInfo& proto) {
  ASSIGN_OR_RETURN(const WorkerInfo info, FromProto(proto, role));
  bool again = false, known = false;
  absl::Status fits;
  Drive([&](Dispatcher& dispatcher, absl::Time now) {
    known = prefill_links_.contains(link) || decode_links_.contains(link);
    again = dispatcher.core().workers().contains(link);
    fits = dispatcher.core().MayAttach(info);
    if (known && !again && fits.ok()) dispatcher.WorkerAttached(link, info, now);
  });
  if (!known) return absl::FailedPreconditionError("it is named no more");
  if (again) return absl::FailedPreconditionError("introduced itself twice");
  RETURN_IF_ERROR(fits);
  spdlog::info("worker {}: attached: {} model '{}', {} blocks, {}", link,
               role == WorkerRole::kPrefill ? "prefill" : "decode", info.model, info.blocks_total, info.numerics_id);
  return absl::OkStatus();
}

void Router::OnLost(const WorkerAddress& link) {
  bool attached = false, left = false;
  Drive([&](Dispatcher& dispatcher, absl::Time now) {
    const auto found = dispatcher.core().workers().find(link);
    attached = found != dispatcher.core().workers().end();
    if (!attached) return;
    left = found->second.load.draining;
    if (!left) metrics_.OnLost(found->second.info.role);
    dispatcher.WorkerLost(link, now);
  });
  if (left) {
    spdlog::info("worker {}: has shut down", link);
  } else if (attached) {
    spdlog::warn("worker {}: lost", link);
  }
}

void Router::OnPrefillEvent(const WorkerAddress& link, const worker::v1::PrefillEvent& event) {
  switch (event.event_case()) {
    case worker::v1::PrefillEvent::kInfo:
      if (absl::Status status = Attach(link, WorkerRole::kPrefill, event.info()); !status.ok()) Refuse(link, status);
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
      if (absl::Status status = Attach(link, WorkerRole::kDecode, event.info()); !status.ok()) Refuse(link, status);
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
  dispatcher_.WorkerLoaded(link, FromProto(load));
}

void Router::OnPrefillDone(const WorkerAddress& link, PrefillDone done) {
  Drive([&](Dispatcher& dispatcher, absl::Time now) { dispatcher.OnPrefillDone(link, std::move(done), now); });
}

void Router::OnFailed(const WorkerAddress& link, const RequestFailed& failed) {
  Drive([&](Dispatcher& dispatcher, absl::Time now) { dispatcher.OnFailed(link, failed, now); });
}

void Router::OnUpdates(const WorkerAddress& link, const worker::v1::StepUpdates& step) {
  Drive([&](Dispatcher& dispatcher, absl::Time now) {
    for (const worker::v1::TokenUpdate& update : step.updates()) dispatcher.OnUpdate(link, FromProto(update), now);
  });
}

}  // namespace baton
