// TLS of one connection, without its socket: bytes come in and go out as strings.
#pragma once

#include <openssl/types.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "frontend/http/tls_hello.h"

namespace baton {

// Not thread-safe. What throws for lack of memory leaves it unusable.
class TlsSession {
 public:
  // Of the server's side.
  explicit TlsSession(SSL_CTX* context);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // Takes what the client sent, cut anywhere, and appends the plaintext to `plaintext`, which grows by no more than
  // there was, and a record (16 KiB). INVALID_ARGUMENT: no TLS that we speak, or the client will have none of us;
  // outgoing() may tell it why, and no other call may follow. The same for one that sends nothing but messages of TLS,
  // or says that its first is longer than TlsHello takes.
  absl::Status Receive(std::string_view bytes, std::string& plaintext);
  bool begun() const { return begun_; }  // something was received
  bool established() const { return established_; }
  bool ended() const;  // the client has said that it sends nothing more
  // After the handshake a client may send more messages of it, as for new keys: until the rest of one has come, nothing
  // can be sent.
  bool can_send() const;

  // REQUIRES: can_send(), and no Close before.
  void Send(std::string_view plaintext);
  // Says that nothing more is sent; false if that was said before, or cannot be said. What comes is received still.
  bool Close();

  // For the client, in this order.
  std::string_view outgoing() const { return std::string_view(outgoing_).substr(sent_); }
  void Sent(size_t bytes);  // of outgoing()

 private:
  friend struct TlsBytes;  // what OpenSSL reads and writes by

  std::string_view incoming_;  // not yet read; of the call that runs
  std::string outgoing_;       // [0, sent_) is sent
  size_t sent_ = 0;
  size_t idle_bytes_ = 0;  // received since the last plaintext, after the handshake
  bool begun_ = false, established_ = false, failed_ = false;
  TlsHello hello_;
  std::unique_ptr<SSL, void (*)(SSL*)> ssl_;
};

}  // namespace baton
