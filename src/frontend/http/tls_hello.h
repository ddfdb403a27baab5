// Checks the length of a client's first TLS messages, before OpenSSL takes memory for them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace baton {

// Parses the handshake that a client sends in clear. For a ClientHello that announces 131 kB,
// OpenSSL takes and keeps that much memory, for any client. A message of at most kMost bytes costs
// OpenSSL no extra memory.
class TlsHello {
 public:
  // Bytes of one message. Browsers send less than 2,000.
  static constexpr size_t kMost = 16u << 10;

  // Takes the next input, cut anywhere. Returns false if a message announces more than kMost bytes.
  // REQUIRES: no earlier call returned false.
  bool Take(std::string_view bytes);

 private:
  bool TakeMessages(std::string_view part);  // `part` belongs to a handshake record

  std::string record_, message_;  // their headers, as far as they have arrived
  bool is_handshake_ = false;     // the type of the current record
  size_t record_left_ = 0, message_left_ = 0;
};

}  // namespace baton
