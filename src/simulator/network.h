// A simulated network without faults. Messages take time, and the pushes of a sender share its
// bandwidth.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "base/ids.h"
#include "simulator/event_queue.h"
#include "simulator/hash.h"

namespace baton {

struct NetworkShape {
  // Lower bound on the time of a message, one way.
  absl::Duration message = absl::Microseconds(100);
  // Each connection is slower by up to this share of `message`.
  double spread = 0.5;
  // Latency of a push, one way, in addition to its time on the wire.
  absl::Duration push = absl::Microseconds(10);
  uint64_t seed = 1;  // seed of the spread
};

class SimulatedNetwork {
 public:
  SimulatedNetwork(NetworkShape shape, EventQueue& queue) : shape_(shape), queue_(queue) {}

  // Sends a message. All messages of a connection take the same time, so they arrive in order, as
  // on one stream.
  void Send(const WorkerAddress& from, const WorkerAddress& to, EventQueue::Event arrive) {
    const auto [latency, is_new] = latency_.try_emplace({from, to});
    if (is_new) {
      std::seed_seq seed{shape_.seed, Fnv1a(from), Fnv1a(to)};
      const double share = static_cast<double>(std::mt19937(seed)()) / static_cast<double>(std::mt19937::max());
      latency->second = shape_.message * (1 + shape_.spread * share);
    }
    queue_.After(latency->second, std::move(arrive));
  }
  // Bytes pushed by all senders.
  int64_t pushed() const { return pushed_; }
  // Pushes blocks. `rate` is the bandwidth of `from` in bytes per second, which all its pushes
  // share.
  void Push(const WorkerAddress& from, int64_t bytes, double rate, EventQueue::Event arrive) {
    pushed_ += bytes;
    absl::Time& free = wire_free_[from];
    free = std::max(free, queue_.Now()) + absl::Seconds(static_cast<double>(bytes) / rate);
    queue_.At(free + shape_.push, std::move(arrive));
  }

 private:
  const NetworkShape shape_;
  EventQueue& queue_;
  std::map<std::pair<WorkerAddress, WorkerAddress>, absl::Duration> latency_;
  std::map<WorkerAddress, absl::Time> wire_free_;
  int64_t pushed_ = 0;
};

}  // namespace baton
