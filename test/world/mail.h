// Messages between the workers of a world. The test decides when, in which order and whether each
// arrives.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/function_ref.h"
#include "base/check.h"

namespace baton {

// A message, a connection or a push in flight. Exactly one of the two functions is called, except
// that a doubled message arrives twice.
struct Envelope {
  std::string kind;  // such as "reserve" or "push"; empty where a world does not distinguish kinds
  std::string text;  // for logs and scenarios
  std::function<void()> arrive;
  std::function<void()> lose;  // null: it cannot be lost
};

class Mail {
 public:
  void Post(Envelope envelope) { in_flight_.push_back(std::move(envelope)); }
  bool empty() const { return in_flight_.empty(); }
  const std::deque<Envelope>& in_flight() const { return in_flight_; }

  // Removes the envelope at `index` in the order of posting. REQUIRES: it exists.
  Envelope Take(size_t index) {
    BATON_CHECK(index < in_flight_.size(), "no such envelope");
    Envelope envelope = std::move(in_flight_[index]);
    in_flight_.erase(in_flight_.begin() + static_cast<ptrdiff_t>(index));
    return envelope;
  }
  // Removes the oldest envelope whose text contains `word`. REQUIRES: there is one.
  Envelope TakeOldest(std::string_view word) {
    size_t index = 0;
    while (index < in_flight_.size() && in_flight_[index].text.find(word) == std::string::npos) ++index;
    BATON_CHECK(index < in_flight_.size(), "nothing like this is in flight: " + std::string(word));
    return Take(index);
  }
  // Lets all envelopes arrive, the oldest first, and those that this causes. `before` sees each one
  // first; an envelope for which it returns false stays in flight.
  void DeliverAll(absl::FunctionRef<bool(const Envelope&)> before = [](const Envelope&) { return true; }) {
    for (size_t index = 0; index < in_flight_.size();) {
      if (before(in_flight_[index])) {
        Take(index).arrive();
      } else {
        ++index;
      }
    }
  }

 private:
  std::deque<Envelope> in_flight_;
};

}  // namespace baton
