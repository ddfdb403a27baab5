// The server of baton.worker.v1.DecodeWorker. It passes routers' requests to the decode worker, and
// tokens back to the routers.
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
  // The arguments are those of WorkerLabels. `metrics` must outlive this object.
  DecodeService(Metrics& metrics, const std::string& model, bool vllm)
      : metrics_(metrics),
        labels_(WorkerLabels(WorkerRole::kDecode, model, vllm)),
        counts_(metrics.Create<WorkerCounts>(labels_)) {}

  // Accepts routers from now on. The worker must outlive the server's streams.
  void Open(DecodeWorker& worker, const WorkerInfo& info);
  // Reports to routers that the worker shuts down. Routers then do not count the worker as lost
  // when its stream ends, because it may be back soon.
  void Drain();
  // Ends all streams and accepts no new ones.
  void Close();

  grpc::ServerBidiReactor<worker::v1::DecodeCommand, worker::v1::DecodeEvent>* Attach(
      grpc::CallbackServerContext* context) override;

  void OnUpdates(std::span<TokenUpdate> updates) override;
  void OnFailed(const RequestFailed& failed) override;
  void OnRoom(const RoomReport& room) override;

 private:
  using Streams = RouterStreams<worker::v1::DecodeCommand, worker::v1::DecodeEvent>;
  void OnCommand(Streams::Stream* stream, const worker::v1::DecodeCommand& command);
  void OnGone(Streams::Stream* stream);
  void Start(Streams::Stream* stream, DecodeJob job);
  void SendUpdates(std::span<TokenUpdate> updates);
  // Sends the load to all routers.
  void Report();
  DecodeSnapshot Snapshot() const;  // REQUIRES: after Open and before Close

  Metrics& metrics_;
  const MetricLabels labels_;
  WorkerCounts counts_;
  Streams streams_;
  WorkerInfo info_;                              // set by Open before worker_
  std::atomic<DecodeWorker*> worker_ = nullptr;  // null before Open and after Close
  std::atomic<bool> draining_ = false;
  // Held during a report, so that the last report sent is the newest.
  std::mutex reports_;
  std::optional<PeriodicTask> reporter_;
  Metrics::Reader reader_;
};

}  // namespace baton
