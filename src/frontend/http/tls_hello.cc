#include "frontend/http/tls_hello.h"

namespace baton {
namespace {

constexpr size_t kRecordHeader = 5;   // type, version (2), length (2)
constexpr size_t kMessageHeader = 4;  // type, length (3)
constexpr char kHandshake = 22;

// Returns the value of the last bytes of a header, with the most significant byte first.
size_t LengthIn(std::string_view bytes) {
  size_t length = 0;
  for (const char byte : bytes) length = length << 8 | static_cast<unsigned char>(byte);
  return length;
}

// Removes and returns the first bytes of `from`, at most `size`.
std::string_view Cut(std::string_view& from, size_t size) {
  const std::string_view part = from.substr(0, size);
  from.remove_prefix(part.size());
  return part;
}

}  // namespace

bool TlsHello::Take(std::string_view bytes) {
  while (!bytes.empty()) {
    if (record_left_ == 0) {
      record_ += Cut(bytes, kRecordHeader - record_.size());
      if (record_.size() < kRecordHeader) return true;
      is_handshake_ = record_[0] == kHandshake;
      record_left_ = LengthIn(std::string_view(record_).substr(3));
      record_.clear();
      continue;
    }
    const std::string_view part = Cut(bytes, record_left_);
    record_left_ -= part.size();
    if (is_handshake_ && !TakeMessages(part)) return false;
  }
  return true;
}

bool TlsHello::TakeMessages(std::string_view part) {
  while (!part.empty()) {
    if (message_left_ > 0) {
      message_left_ -= Cut(part, message_left_).size();
      continue;
    }
    message_ += Cut(part, kMessageHeader - message_.size());
    if (message_.size() < kMessageHeader) return true;
    message_left_ = LengthIn(std::string_view(message_).substr(1));
    if (message_left_ > kMost) return false;
    message_.clear();
  }
  return true;
}

}  // namespace baton
