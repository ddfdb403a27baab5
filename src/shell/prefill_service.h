// baton.worker.v1.PrefillWorker: routers' prompts go to the prefill worker, its results go back to them.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>

#include "base/periodic_task.h"
#include "engine/prefill/worker.h"
#include "metrics/worker_snapshot.h"
#include "router/worker_state.h"
#include "rpc/router_streams.h"
#include "shell/worker_metrics.h"
#include "worker.grpc.pb.h"

namespace baton {

using PrefillServiceBase = worker::v1::PrefillWorker::WithCallbackMethod_Attach<worker::v1::PrefillWorker::Service>;

class PrefillService final : public PrefillServiceBase, public PrefillListener {
 public:
  // Arguments as of WorkerLabels. `metrics` must outlive this.
  PrefillService(Metrics& metrics, const std::string& model, bool vllm)
      : metrics_(metrics),
        labels_(WorkerLabels(WorkerRole::kPrefill, model, vllm)),
        counts_(metrics.Create<WorkerCounts>(labels_)) {}

  // Before this, routers are turned away. The worker must outlive the server's streams.
  void Open(PrefillWorker& worker, const WorkerInfo& info);
  // Routers are told that the worker shuts down: it may be back soon, and is not lost when it goes.
  void Drain();
  // Ends all streams; new ones are turned away.
  void Close();

  grpc::ServerBidiReactor<worker::v1::PrefillCommand, worker::v1::PrefillEvent>* Attach(
      grpc::CallbackServerContext* context) override;

  void OnPrefillDone(const PrefillDone& done) override;
  void OnPrefillFailed(const RequestFailed& failed) override;

 private:
  using Streams = RouterStreams<worker::v1::PrefillCommand, worker::v1::PrefillEvent>;
  void OnCommand(Streams::Stream* stream, const worker::v1::PrefillCommand& command);
  void OnGone(Streams::Stream* stream);
  void Submit(Streams::Stream* stream, PrefillJob job);
  void Report();                     // the load, to all routers
  PrefillSnapshot Snapshot() const;  // REQUIRES: open

  Metrics& metrics_;
  const MetricLabels labels_;
  WorkerCounts counts_;
  Streams streams_;
  WorkerInfo info_;                               // set by Open, before worker_
  std::atomic<PrefillWorker*> worker_ = nullptr;  // null: closed
  std::atomic<bool> draining_ = false;
  std::mutex reports_;  // one at a time, so that the last report is the newest
  std::optional<PeriodicTask> reporter_;
  Metrics::Reader reader_;
};

}  // namespace baton
