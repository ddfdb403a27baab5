#include "shell/decode_service.h"

#include <algorithm>
#include <utility>

#include "base/trace_context.h"
#include "metrics/worker_load.h"
#include "rpc/worker_convert.h"
#include "shell/request_log.h"

namespace baton {
namespace {

using worker::v1::DecodeCommand;
using worker::v1::DecodeEvent;

DecodeEvent DecodeLoadEvent(const WorkerLoad& load) {
  DecodeEvent event;
  *event.mutable_load() = ToProto(load);
  return event;
}

RouterStream RouterOf(const void* stream) { return RouterStream(reinterpret_cast<uintptr_t>(stream)); }

DecodeEvent DecodeFailed(const RequestFailed& failed) {
  DecodeEvent event;
  *event.mutable_failed() = ToProto(failed);
  return event;
}

}  // namespace

void DecodeService::Open(DecodeWorker& worker, const WorkerInfo& info) {
  info_ = info;
  worker_ = &worker;
  reporter_.emplace(kLoadPeriod, [this] { Report(); });
  reader_ = metrics_.Attach<DecodeSnapshot>(
      labels_, [this](absl::FunctionRef<void(const DecodeSnapshot&)> read) { read(Snapshot()); });
}

void DecodeService::Drain() {
  draining_ = true;
  if (worker_ != nullptr) Report();
}

void DecodeService::Close() {
  reporter_.reset();
  reader_ = {};
  worker_ = nullptr;
  streams_.CloseAll(absl::UnavailableError("the worker shuts down"));
}

grpc::ServerBidiReactor<DecodeCommand, DecodeEvent>* DecodeService::Attach(grpc::CallbackServerContext* context) {
  auto* stream = new Streams::Stream(
      context, {[this](auto* s, auto& command) { OnCommand(s, command); }, [this](auto* s) { OnGone(s); }});
  DecodeWorker* worker = worker_;
  if (worker == nullptr) {
    stream->Close(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the worker is not ready"));
    return stream;
  }
  DecodeEvent hello;
  *hello.mutable_info() = ToProto(info_);
  streams_.Add(stream, {hello, DecodeLoadEvent(ToWorkerLoad(worker->Load(), draining_))});
  stream->Start();
  return stream;
}

void DecodeService::Report() {
  const std::lock_guard lock(reports_);
  streams_.SendLoad(DecodeLoadEvent(ToWorkerLoad(worker_.load()->Load(), draining_)));
}

DecodeSnapshot DecodeService::Snapshot() const {
  DecodeSnapshot snapshot;
  snapshot.engine = worker_.load()->Load();
  snapshot.load = ToWorkerLoad(snapshot.engine, draining_);
  snapshot.blocks_total = info_.blocks_total;
  return snapshot;
}

void DecodeService::OnCommand(Streams::Stream* stream, const DecodeCommand& command) {
  DecodeWorker* worker = worker_;
  if (command.has_decode()) return Start(stream, FromProto(command.decode()));
  if (worker == nullptr) return;
  if (command.has_keep_room()) {
    worker->Keep(RouterOf(stream), FromProto(command.keep_room()));
  } else if (command.has_cancel() && streams_.MayCancel(command.cancel().request_id(), stream)) {
    worker->Cancel(command.cancel().request_id());
  }
}

void DecodeService::Start(Streams::Stream* stream, DecodeJob job) {
  const RequestId id = job.request_id;
  absl::Status status = streams_.Register(id, stream, TraceIdOf(job.spec.traceparent));
  if (!status.ok()) return streams_.SendTo(stream, DecodeFailed({id, status, absl::ZeroDuration()}));
  DecodeWorker* worker = worker_;
  status = worker == nullptr ? absl::UnavailableError("the worker shuts down") : worker->Start(std::move(job));
  // A worker without room for a prompt that it computes itself reports when it has room.
  if (!status.ok()) OnFailed({id, status, absl::ZeroDuration(), absl::IsResourceExhausted(status)});
}

void DecodeService::OnGone(Streams::Stream* stream) {
  DecodeWorker* worker = worker_;
  for (const RequestId& id : streams_.Remove(stream)) {
    if (worker != nullptr) worker->Cancel(id);
  }
  if (worker != nullptr) worker->Keep(RouterOf(stream), {});
}

void DecodeService::OnUpdates(std::span<TokenUpdate> updates) {
  // Log probabilities of a prompt may take megabytes. An event has those of one prompt at most, so
  // it stays below gRPC's limit.
  while (!updates.empty()) {
    size_t end = 1;
    while (end < updates.size() && !updates[end].prompt) ++end;
    SendUpdates(updates.first(end));
    updates = updates.subspan(end);
  }
}

void DecodeService::SendUpdates(std::span<TokenUpdate> updates) {
  streams_.SendEach(updates, [this](DecodeEvent& event, const TokenUpdate& update, const std::string& trace_id) {
    ToProto(update, *event.mutable_updates()->add_updates());
    if (update.queued) counts_.queue->Observe(absl::ToDoubleSeconds(*update.queued));
    if (update.finish) {
      counts_.jobs.Increment(absl::StatusCode::kOk);
      LogJobEnd(update.request_id, trace_id, absl::StatusCode::kOk);
    }
    return update.finish.has_value();
  });
}

void DecodeService::OnFailed(const RequestFailed& failed) {
  counts_.jobs.Increment(failed.status.code());
  LogJobEnd(failed.request_id, streams_.TraceOf(failed.request_id), failed.status.code());
  streams_.SendLast(failed.request_id, DecodeFailed(failed));
}

void DecodeService::OnRoom(const RoomReport& room) {
  DecodeEvent event;
  *event.mutable_room() = ToProto(room);
  streams_.SendAll(event);
}

}  // namespace baton
