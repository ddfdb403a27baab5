// The TLS state of one connection, without its socket. Bytes come in and go out as strings.
#pragma once

#include <openssl/types.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "frontend/http/tls_hello.h"

namespace baton {

// Not thread-safe. After an exception for lack of memory, the session is not usable.
class TlsSession {
 public:
  // A session of the server's side.
  explicit TlsSession(SSL_CTX* context);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // Takes bytes from the client, cut anywhere, and appends the plaintext to `plaintext`. It appends
  // at most one record (16 KiB) more than bytes.size(). Returns INVALID_ARGUMENT in these cases:
  //
  // - The client does not use a supported TLS, or refuses the connection.
  // - After the handshake, the client sends more than 64 KiB without any plaintext.
  // - The client announces a longer first message than TlsHello allows.
  //
  // After the error, outgoing() may have an alert for the client, and no other call may follow.
  absl::Status Receive(std::string_view bytes, std::string& plaintext);
  bool begun() const { return begun_; }  // bytes were received
  bool established() const { return established_; }
  bool ended() const;  // the client has sent TLS's message for the end
  // After the handshake a client may send more handshake messages, for example for new keys. While
  // such a message is incomplete, nothing can be sent.
  bool can_send() const;

  // REQUIRES: can_send(), and no earlier Close.
  void Send(std::string_view plaintext);
  // Ends the output with TLS's message for the end. Returns false if that message was made before,
  // or cannot be made. Input is still received.
  bool Close();

  // Bytes to send to the client, in order.
  std::string_view outgoing() const { return std::string_view(outgoing_).substr(sent_); }
  void Sent(size_t bytes);  // removes the first bytes of outgoing()

 private:
  friend struct TlsBytes;  // the callbacks by which OpenSSL reads and writes

  std::string_view incoming_;  // input of the running call, not yet read
  std::string outgoing_;       // [0, sent_) is sent
  size_t sent_ = 0;
  size_t idle_bytes_ = 0;  // received since the last plaintext, after the handshake
  bool begun_ = false, established_ = false, failed_ = false;
  TlsHello hello_;
  std::unique_ptr<SSL, void (*)(SSL*)> ssl_;
};

}  // namespace baton
