// The server of baton.worker.v1.PrefillWorker. It passes routers' prompts to the prefill worker,
// and results back to the routers.
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
  // The arguments are those of WorkerLabels. `metrics` must outlive this object.
  PrefillService(Metrics& metrics, const std::string& model, bool vllm)
      : metrics_(metrics),
        labels_(WorkerLabels(WorkerRole::kPrefill, model, vllm)),
        counts_(metrics.Create<WorkerCounts>(labels_)) {}

  // Accepts routers from now on. The worker must outlive the server's streams.
  void Open(PrefillWorker& worker, const WorkerInfo& info);
  // Reports to routers that the worker shuts down. Routers then do not count the worker as lost
  // when its stream ends, because it may be back soon.
  void Drain();
  // Ends all streams and accepts no new ones.
  void Close();

  grpc::ServerBidiReactor<worker::v1::PrefillCommand, worker::v1::PrefillEvent>* Attach(
      grpc::CallbackServerContext* context) override;

  void OnPrefillStarted(const PrefillStarted& started) override;
  void OnPrefillDone(const PrefillDone& done) override;
  void OnPrefillFailed(const RequestFailed& failed) override;

 private:
  using Streams = RouterStreams<worker::v1::PrefillCommand, worker::v1::PrefillEvent>;
  void OnCommand(Streams::Stream* stream, const worker::v1::PrefillCommand& command);
  void OnGone(Streams::Stream* stream);
  void Submit(Streams::Stream* stream, PrefillJob job);
  // Sends the load to all routers.
  void Report();
  PrefillSnapshot Snapshot() const;  // REQUIRES: after Open and before Close

  Metrics& metrics_;
  const MetricLabels labels_;
  WorkerCounts counts_;
  Streams streams_;
  WorkerInfo info_;                               // set by Open before worker_
  std::atomic<PrefillWorker*> worker_ = nullptr;  // null before Open and after Close
  std::atomic<bool> draining_ = false;
  // Held during a report, so that the last report sent is the newest.
  std::mutex reports_;
  std::optional<PeriodicTask> reporter_;
  Metrics::Reader reader_;
};

}  // namespace baton
