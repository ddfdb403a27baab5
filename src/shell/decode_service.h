// baton.worker.v1.DecodeWorker: routers' requests go to the decode worker, its tokens go back to them.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <span>

#include "base/periodic_task.h"
#include "engine/decode/worker.h"
#include "metrics/worker_snapshot.h"
#include "router/worker_state.h"
#include "rpc/router_streams.h"
#include "shell/worker_metrics.h"
#include "worker.grpc.pb.h"

namespace baton {

using DecodeServiceBase = worker::v1::DecodeWorker::WithCallbackMethod_Attach<worker::v1::DecodeWorker::Service>;

class DecodeService final : public DecodeServiceBase, public DecodeListener {
 public:
  // Arguments as of WorkerLabels. `metrics` must outlive this.
  DecodeService(Metrics& metrics, const std::string& model, bool vllm)
      : metrics_(metrics),
        labels_(WorkerLabels(WorkerRole::kDecode, model, vllm)),
        counts_(metrics.Create<WorkerCounts>(labels_)) {}

  // Before this, routers are turned away. The worker must outlive the server's streams.
  void Open(DecodeWorker& worker, const WorkerInfo& info);
  // Routers are told that the worker shuts down: it may be back soon, and is not lost when it goes.
  void Drain();
  // Ends all streams; new ones are turned away.
  void Close();

  grpc::ServerBidiReactor<worker::v1::DecodeCommand, worker::v1::DecodeEvent>* Attach(
      grpc::CallbackServerContext* context) override;

  void OnUpdates(std::span<TokenUpdate> updates) override;
  void OnFailed(const RequestFailed& failed) override;
  void OnRoom(int64_t requests) override;

 private:
  using Streams = RouterStreams<worker::v1::DecodeCommand, worker::v1::DecodeEvent>;
  void OnCommand(Streams::Stream* stream, const worker::v1::DecodeCommand& command);
  void OnGone(Streams::Stream* stream);
  void Start(Streams::Stream* stream, DecodeJob job);
  void Report();                    // the load, to all routers
  DecodeSnapshot Snapshot() const;  // REQUIRES: open

  Metrics& metrics_;
  const MetricLabels labels_;
  WorkerCounts counts_;
  Streams streams_;
  WorkerInfo info_;                              // set by Open, before worker_
  std::atomic<DecodeWorker*> worker_ = nullptr;  // null: closed
  std::atomic<bool> draining_ = false;
  std::mutex reports_;  // one at a time, so that the last report is the newest
  std::optional<PeriodicTask> reporter_;
  Metrics::Reader reader_;
};

}  // namespace baton
