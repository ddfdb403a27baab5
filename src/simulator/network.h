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

namespace baton {

struct NetworkShape {
  absl::Duration message = absl::Microseconds(100);  // one way, at least
  double jitter = 0.5;                               // and up to this share of it longer
  absl::Duration push = absl::Microseconds(10);      // one way, beside the time on the wire
  uint64_t seed = 1;                                 // of the jitter
};

class SimulatedNetwork {
 public:
  SimulatedNetwork(NetworkShape shape, EventQueue& queue) : shape_(shape), queue_(queue), random_(shape.seed) {}

  // Messages from one place to another arrive in order, as on one stream.
  void Send(const WorkerAddress& from, const WorkerAddress& to, EventQueue::Event arrive) {
    const double share = static_cast<double>(random_() >> 11) / static_cast<double>(uint64_t{1} << 53);
    absl::Time& last = last_[{from, to}];
    last = std::max(last, queue_.Now() + shape_.message * (1 + shape_.jitter * share));
    queue_.At(last, std::move(arrive));
  }
  // `rate`: bytes a second out of `from`, for all its pushes together.
  void Push(const WorkerAddress& from, int64_t bytes, double rate, EventQueue::Event arrive) {
    absl::Time& free = wire_free_[from];
    free = std::max(free, queue_.Now()) + absl::Seconds(static_cast<double>(bytes) / rate);
    queue_.At(free + shape_.push, std::move(arrive));
  }

 private:
  const NetworkShape shape_;
  EventQueue& queue_;
  std::mt19937_64 random_;
  std::map<std::pair<WorkerAddress, WorkerAddress>, absl::Time> last_;  // arrival
  std::map<WorkerAddress, absl::Time> wire_free_;
};

}  // namespace baton
