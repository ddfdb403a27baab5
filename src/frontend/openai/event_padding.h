// Hides the lengths of texts in the events of a stream from readers of encrypted traffic.
#pragma once

#include <cstddef>
#include <functional>
#include <random>
#include <string>
#include <string_view>

namespace baton {

// Adds a member `obfuscation` of random characters to events, as OpenAI does.
class EventPadding {
 public:
  // `id` of the answer chooses the characters. They need not be secret.
  explicit EventPadding(std::string_view id) : random_(std::hash<std::string_view>()(id)) {}

  // Pads each event from events[begin] on. The size of an event, less `fixed` bytes and less the
  // empty member, becomes a multiple of kUnit bytes. `fixed` is the size of an event without text,
  // so that short texts get the same size. REQUIRES: the lines of the events are JSON objects with
  // members.
  void Pad(size_t begin, size_t fixed, std::string& events);

  static constexpr size_t kUnit = 64;

 private:
  std::minstd_rand random_;
};

}  // namespace baton
