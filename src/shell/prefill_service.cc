#include "shell/prefill_service.h"

#include <utility>

#include "base/trace_context.h"
#include "metrics/worker_load.h"
#include "rpc/worker_convert.h"
#include "shell/request_log.h"

namespace baton {
namespace {

using worker::v1::PrefillCommand;
using worker::v1::PrefillEvent;

PrefillEvent PrefillLoadEvent(const WorkerLoad& load) {
  PrefillEvent event;
  *event.mutable_load() = ToProto(load);
  return event;
}

PrefillEvent PrefillFailed(const RequestFailed& failed) {
  PrefillEvent event;
  *event.mutable_failed() = ToProto(failed);
  return event;
}

// Returns the id under which the worker keeps leases of this router's jobs. The id is unique among
// open streams.
LeaseHolder HolderOf(const void* stream) { return LeaseHolder(reinterpret_cast<uintptr_t>(stream)); }

}  // namespace

void PrefillService::Open(PrefillWorker& worker, const WorkerInfo& info) {
  info_ = info;
  worker_ = &worker;
  reporter_.emplace(kLoadPeriod, [this] { Report(); });
  reader_ = metrics_.Attach<PrefillSnapshot>(
      labels_, [this](absl::FunctionRef<void(const PrefillSnapshot&)> read) { read(Snapshot()); });
}

void PrefillService::Drain() {
  draining_ = true;
  if (worker_ != nullptr) Report();
}

void PrefillService::Close() {
  reporter_.reset();
  reader_ = {};
  worker_ = nullptr;
  streams_.CloseAll(absl::UnavailableError("the worker shuts down"));
}

grpc::ServerBidiReactor<PrefillCommand, PrefillEvent>* PrefillService::Attach(grpc::CallbackServerContext* context) {
  auto* stream = new Streams::Stream(
      context, {[this](auto* s, auto& command) { OnCommand(s, command); }, [this](auto* s) { OnGone(s); }});
  PrefillWorker* worker = worker_;
  if (worker == nullptr) {
    stream->Close(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the worker is not ready"));
    return stream;
  }
  PrefillEvent hello;
  *hello.mutable_info() = ToProto(info_);
  streams_.Add(stream, {hello, PrefillLoadEvent(ToWorkerLoad(worker->Load(), draining_))});
  stream->Start();
  return stream;
}

void PrefillService::Report() {
  const std::lock_guard lock(reports_);
  streams_.SendLoad(PrefillLoadEvent(ToWorkerLoad(worker_.load()->Load(), draining_)));
}

PrefillSnapshot PrefillService::Snapshot() const {
  PrefillSnapshot snapshot;
  snapshot.engine = worker_.load()->Load();
  snapshot.load = ToWorkerLoad(snapshot.engine, draining_);
  snapshot.blocks_total = info_.blocks_total;
  snapshot.block_bytes = info_.layout.BlockBytes();
  return snapshot;
}

void PrefillService::OnCommand(Streams::Stream* stream, const PrefillCommand& command) {
  PrefillWorker* worker = worker_;
  if (command.has_prefill()) return Submit(stream, FromProto(command.prefill()));
  if (worker == nullptr) return;
  if (command.has_append() && streams_.Owns(command.append().request_id(), stream)) {
    worker->Append(FromProto(command.append()));
  } else if (command.has_cancel() && streams_.MayCancel(command.cancel().request_id(), stream)) {
    worker->Cancel(command.cancel().request_id());
  }
}

void PrefillService::Submit(Streams::Stream* stream, PrefillJob job) {
  const RequestId id = job.request_id;
  job.lease_holder = HolderOf(stream);
  if (absl::Status status = streams_.Register(id, stream, TraceIdOf(job.spec.traceparent)); !status.ok()) {
    return streams_.SendTo(stream, PrefillFailed({id, status, absl::ZeroDuration()}));
  }
  PrefillWorker* worker = worker_;
  std::optional<RequestFailed> refusal = RequestFailed{id, absl::UnavailableError("the worker shuts down"), {}};
  if (worker != nullptr) refusal = worker->Submit(std::move(job));
  if (refusal) OnPrefillFailed(*refusal);
}

void PrefillService::OnGone(Streams::Stream* stream) {
  PrefillWorker* worker = worker_;
  for (const RequestId& id : streams_.Remove(stream)) {
    if (worker != nullptr) worker->Cancel(id);
  }
  if (worker != nullptr) worker->EndLeases(HolderOf(stream));
}

void PrefillService::OnPrefillStarted(const PrefillStarted& started) {
  PrefillEvent event;
  event.mutable_started()->set_request_id(started.request_id);
  streams_.Send(started.request_id, std::move(event));
}

void PrefillService::OnPrefillDone(const PrefillDone& done) {
  counts_.jobs.Increment(absl::StatusCode::kOk);
  counts_.queue->Observe(absl::ToDoubleSeconds(done.queued));
  LogPrefilled(done, streams_.TraceOf(done.request_id));
  PrefillEvent event;
  *event.mutable_done() = ToProto(done);
  streams_.SendLast(done.request_id, std::move(event));
}

void PrefillService::OnPrefillFailed(const RequestFailed& failed) {
  counts_.jobs.Increment(failed.status.code());
  LogJobEnd(failed.request_id, streams_.TraceOf(failed.request_id), failed.status.code());
  streams_.SendLast(failed.request_id, PrefillFailed(failed));
}

}  // namespace baton
