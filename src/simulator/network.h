// A simulated network. Messages take time, and the pushes of a sender share its bandwidth.
// FaultInjector decides about each message, and the network carries the decision out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "base/ids.h"
#include "base/strings.h"
#include "simulator/event_queue.h"
#include "simulator/faults.h"
#include "simulator/hash.h"
#include "simulator/trace.h"

namespace baton {

struct NetworkShape {
  // Lower bound on the time of a message, one way.
  absl::Duration message = absl::Microseconds(100);
  // Each connection is slower by up to this share of `message`.
  double spread = 0.5;
  // Latency of a push, one way, in addition to its time on the wire.
  absl::Duration push = absl::Microseconds(10);
  uint64_t seed = 1;  // seed of the spread, and of faults
};

class SimulatedNetwork {
 public:
  SimulatedNetwork(NetworkShape shape, EventQueue& queue, FaultInjector& faults, EventTrace& trace)
      : shape_(shape), queue_(queue), faults_(faults), trace_(trace) {}

  // Sends a message. Calls either `arrive` at the receiver or `lost` at the sender. Without faults,
  // all messages of a connection take the same time, so they arrive in order. The messages of a
  // stream do so always.
  void Send(const MessageInfo& message, EventQueue::Event arrive, EventQueue::Event lost) {
    const Fate fate = faults_.FateOf(message);
    const absl::Duration latency = LatencyOf(message);
    if (fate.fails) {
      Note(message, "is lost");
      return queue_.After(latency, std::move(lost));
    }
    absl::Time at = std::max(queue_.Now() + latency * fate.slowness + fate.delay, fate.not_before);
    if (message.way == Way::kStream) {
      absl::Time& last = last_in_stream_[{message.from, message.to}];
      at = last = std::max(last, at);
    }
    Note(message, at);
    queue_.At(at, std::move(arrive));
  }
  // Sends a message that faults do not lose, between a client and the router.
  void SendSafely(const MessageInfo& message, EventQueue::Event arrive) {
    Send(message, std::move(arrive), [] {});
  }

  // Bytes pushed by all senders.
  int64_t pushed() const { return pushed_; }
  // Pushes blocks. `rate` is the bandwidth of `from` in bytes per second, which all its pushes
  // share. Pushes of a connection land in order.
  void Push(const MessageInfo& message, int64_t bytes, double rate, EventQueue::Event land, EventQueue::Event lost) {
    pushed_ += bytes;
    const Fate fate = faults_.FateOf(message);
    const absl::Duration time = absl::Seconds(static_cast<double>(bytes) / rate);
    absl::Time& wire = wire_free_[message.from];
    absl::Time& link = link_free_[{message.from, message.to}];
    const absl::Time begin = std::max(wire, queue_.Now());
    wire = begin + time;
    link = std::max(link, begin) + time * fate.slowness;
    if (fate.fails) {
      Note(message, "is lost");
      return queue_.At(wire, std::move(lost));
    }
    const absl::Time at = std::max(link + shape_.push + fate.delay, fate.not_before);
    Note(message, at);
    queue_.At(at, std::move(land));
  }

 private:
  absl::Duration LatencyOf(const MessageInfo& message) {
    const auto [latency, is_new] = latency_.try_emplace({message.from, message.to});
    if (is_new) {
      std::seed_seq seed{shape_.seed, Fnv1a(message.from), Fnv1a(message.to)};
      const double share = static_cast<double>(std::mt19937(seed)()) / static_cast<double>(std::mt19937::max());
      latency->second = shape_.message * (1 + shape_.spread * share);
    }
    return latency->second;
  }
  void Note(const MessageInfo& message, std::string_view fate) {
    if (!trace_.on()) return;
    trace_.Add(StrCat(message.from, " -> ", message.to, "  ", message.name, message.request.empty() ? "" : " ",
                      message.request, "  ", fate));
  }
  void Note(const MessageInfo& message, absl::Time at) {
    if (trace_.on()) Note(message, StrCat("arrives at ", EventTrace::TimeText(at)));
  }

  const NetworkShape shape_;
  EventQueue& queue_;
  FaultInjector& faults_;
  EventTrace& trace_;
  std::map<std::pair<WorkerAddress, WorkerAddress>, absl::Duration> latency_;
  // The last arrival of a message in each direction of each stream.
  std::map<std::pair<WorkerAddress, WorkerAddress>, absl::Time> last_in_stream_;
  std::map<WorkerAddress, absl::Time> wire_free_;
  std::map<std::pair<WorkerAddress, WorkerAddress>, absl::Time> link_free_;
  int64_t pushed_ = 0;
};

}  // namespace baton
