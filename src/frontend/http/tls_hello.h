// How long a client says that its first messages of TLS are, before OpenSSL takes memory for them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace baton {

// Reads along what a client sends in clear. OpenSSL takes 131 kB for a ClientHello that says so, of whoever connects,
// and keeps it; with one of no more than kMost it has what it takes anyway.
class TlsHello {
 public:
  static constexpr size_t kMost = 16u << 10;  // bytes of one message; those of browsers have less than 2,000

  // What comes next, cut anywhere. False: a message says that it has more than kMost bytes. REQUIRES: none did before.
  bool Take(std::string_view bytes);

 private:
  bool TakeMessages(std::string_view part);  // of a record

  std::string record_, message_;  // their headers, as far as they have come
  bool is_handshake_ = false;     // what the record has
  size_t record_left_ = 0, message_left_ = 0;
};

}  // namespace baton
