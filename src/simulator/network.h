// A network without faults: messages take time, and pushes of blocks share their sender's bandwidth.
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
  absl::Duration message = absl::Microseconds(100);  // one way, at least
  double spread = 0.5;                               // and up to this share of it longer, by connection
  absl::Duration push = absl::Microseconds(10);      // one way, beside the time on the wire
  uint64_t seed = 1;                                 // of the spread
};

class SimulatedNetwork {
 public:
  SimulatedNetwork(NetworkShape shape, EventQueue& queue) : shape_(shape), queue_(queue) {}

  // Messages from one place to another take equally long, so they arrive in order, as on one stream.
  void Send(const WorkerAddress& from, const WorkerAddress& to, EventQueue::Event arrive) {
    const auto [latency, is_new] = latency_.try_emplace({from, to});
    if (is_new) {
      std::seed_seq seed{shape_.seed, Fnv1a(from), Fnv1a(to)};
      const double share = static_cast<double>(std::mt19937(seed)()) / static_cast<double>(std::mt19937::max());
      latency->second = shape_.message * (1 + shape_.spread * share);
    }
    queue_.After(latency->second, std::move(arrive));
  }
  int64_t pushed() const { return pushed_; }  // bytes, by all
  // `rate`: bytes a second out of `from`, for all its pushes together.
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
