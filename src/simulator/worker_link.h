// The router's connection to one worker in virtual time, as shell/worker_link.h and gRPC make it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/ids.h"
#include "request/answers.h"
#include "simulator/network.h"
#include "simulator/process.h"

namespace baton {

// One stream at a time, with these rules:
//
// - The messages of a stream arrive in order. If one is lost, the stream breaks at both ends.
// - An end whose peer is silent pings it, and breaks the stream without an answer.
// - After a break, the router attaches again, with a backoff. A refused or unanswered attempt
//   counts as a break.
// - A worker ends the jobs of a stream that has broken at its end. Until then it may serve an old
//   stream beside the new one.
class SimulatedWorkerLink {
 public:
  using Stream = uint64_t;  // number of the attempt
  static constexpr absl::Duration kFirstBackoff = absl::Milliseconds(100);
  static constexpr absl::Duration kMaxBackoff = absl::Seconds(2);
  // gRPC's limit on the time to connect.
  static constexpr absl::Duration kConnectTimeout = absl::Seconds(20);
  // Time without a message after which an end sends a ping, and the longest time to its answer (see
  // rpc/grpc_server.cc).
  static constexpr absl::Duration kKeepalive = absl::Seconds(10);

  // One process of the worker.
  struct Worker {
    SimulatedProcess& process;
    // Introduces the worker on a new stream. Returns the event that passes the introduction to the
    // router.
    std::function<EventQueue::Event()> introduce;
    // A stream has broken. The worker ends its jobs.
    std::function<void(Stream, const std::set<RequestId>&)> on_gone;
  };

  // `on_lost` runs at the router when an attached stream breaks.
  SimulatedWorkerLink(WorkerAddress worker, SimulatedProcess& router, SimulatedNetwork& network, EventQueue& queue,
                      std::function<void()> on_lost)
      : address_(std::move(worker)), router_(router), network_(network), queue_(queue), on_lost_(std::move(on_lost)) {}

  // Starts a process of the worker. The first process attaches at once. REQUIRES: the process
  // before has ended.
  void Start(Worker worker);
  // The worker's process has ended. Its messages that are under way still arrive.
  void OnWorkerEnded();
  // Breaks the present stream, if there is one.
  void Break();

  // Sends a message to the worker, on the present stream. Without a stream, the message is lost.
  // `begins`: the message begins the job `request`, which belongs to the stream from then on.
  void SendToWorker(std::string_view name, const RequestId& request, bool begins, EventQueue::Event handle);
  // Sends a message to the router about a job, on the job's stream. `ends`: it is the job's last.
  void SendToRouter(std::string_view name, const RequestId& job, bool ends, EventQueue::Event handle);
  // Sends a message to the router on the worker's newest stream.
  void SendToRouter(std::string_view name, EventQueue::Event handle);
  // Sends a message to the router on one of the worker's streams.
  void SendOnStream(Stream stream, std::string_view name, std::string_view request, EventQueue::Event handle);
  // Divides updates by the streams of their jobs. Forgets jobs that finish, and updates of jobs
  // whose stream has broken.
  std::map<Stream, std::vector<TokenUpdate>> ByStream(std::vector<TokenUpdate> updates);
  // Commands that have arrived on the worker's newest stream. Unset if it has no stream.
  std::optional<int64_t> commands() const;
  // The router's last attempt, open or not.
  Stream newest() const { return stream_; }
  // The stream of a job. 0: its stream has broken. Streams are numbered from 1.
  Stream StreamOf(const RequestId& job) const;

 private:
  // The worker's end of the streams.
  struct WorkerEnd {
    Worker worker;
    struct OpenStream {
      std::set<RequestId> jobs{};
      int64_t commands = 0;  // that have arrived
    };
    std::map<Stream, OpenStream> streams{};
    absl::Time last_read{};
  };
  enum class State { kIdle, kConnecting, kAttached };
  enum class Side { kRouter, kWorker };

  void Attempt();
  void OnAttempt(Stream stream);
  void Attached(Stream stream, EventQueue::Event introduce);
  void BreakBoth(Stream stream);
  void LoseAtRouter(Stream stream);
  void LoseAtWorker(const std::shared_ptr<WorkerEnd>& end, Stream stream);
  // Keeps one side's watch over a stream, from the last message that it has read.
  void Watch(Side side, const std::shared_ptr<WorkerEnd>& end, Stream stream);
  void Ping(Side side, const std::shared_ptr<WorkerEnd>& end, Stream stream);
  bool IsOpen(Side side, const WorkerEnd& end, Stream stream) const;
  void Lose(Side side, const std::shared_ptr<WorkerEnd>& end, Stream stream);

  const WorkerAddress address_;
  SimulatedProcess& router_;
  SimulatedNetwork& network_;
  EventQueue& queue_;
  const std::function<void()> on_lost_;
  std::shared_ptr<WorkerEnd> end_;  // of the present process
  State state_ = State::kIdle;
  Stream stream_ = 0;  // the last attempt
  absl::Duration backoff_ = kFirstBackoff;
  absl::Time last_read_{};  // at the router
};

}  // namespace baton
