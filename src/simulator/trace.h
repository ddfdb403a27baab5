// A text trace of a simulated run: messages, faults and ends of requests, with their times.
#pragma once

#include <ostream>
#include <string>
#include <string_view>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/strings.h"
#include "simulator/event_queue.h"

namespace baton {

// A line has the time in virtual milliseconds, the event, and the request if the event has one. So
// `grep` for a request's id prints the life of the request. A run has the same trace each time.
class EventTrace {
 public:
  explicit EventTrace(const EventQueue& queue) : queue_(queue) {}

  // Writes the events from now on to `out`, which must outlive this. Before, there is no trace,
  // because its texts take more time than the simulation.
  void Begin(std::ostream& out) { out_ = &out; }
  bool on() const { return out_ != nullptr; }
  // REQUIRES: on().
  void Add(std::string_view event) { *out_ << TimeText(queue_.Now()) << "  " << event << std::endl; }

  static std::string TimeText(absl::Time time) {
    return absl::StrFormat("%12.3f", absl::ToDoubleMilliseconds(time - absl::UnixEpoch()));
  }

 private:
  const EventQueue& queue_;
  std::ostream* out_ = nullptr;
};

}  // namespace baton
