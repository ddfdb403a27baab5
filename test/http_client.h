// A client of HTTP/1.1 that sends exactly the bytes that a test gives, with or without TLS. Its
// calls block until the server sends, reads or ends the connection.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "catch.h"

namespace baton {

struct HttpAnswer {
  int status = 0;                              // 0: the connection ended before an answer
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
};

class HttpClient {
 public:
  // `receive_buffer`: bytes that the kernel buffers for a client that does not read; 0 for the
  // kernel's default. With `tls`, the client speaks HTTPS in that context, and encrypted() returns
  // whether the handshake succeeded.
  explicit HttpClient(const std::string& address, int receive_buffer = 0, SSL_CTX* tls = nullptr)
      : socket_(Connect(address, receive_buffer)) {
    REQUIRE(socket_ >= 0);
    if (tls != nullptr) Encrypt(tls);
  }
  // Returns nullopt if no server listens at the address. Any thread may call it, because it asserts
  // nothing.
  static std::optional<HttpClient> Dial(const std::string& address) {
    HttpClient client(Connect(address, /*receive_buffer=*/0));
    if (client.socket_ < 0) return std::nullopt;
    return client;
  }
  ~HttpClient() {
    if (socket_ >= 0) close(socket_);
  }
  HttpClient(HttpClient&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)), tls_(std::move(other.tls_)), in_(std::move(other.in_)) {}
  HttpClient& operator=(HttpClient&&) = delete;

  // Returns false if the server has closed the connection.
  bool Send(const std::string& bytes) {
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t n = tls_ ? SSL_write(tls_.get(), bytes.data() + sent, static_cast<int>(bytes.size() - sent))
                             : send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return false;
      sent += static_cast<size_t>(n);
    }
    return true;
  }
  // Sends the bytes without TLS, even on a connection with TLS.
  bool SendRaw(const std::string& bytes) {
    return send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  bool Get(const std::string& target) {
    return Send(absl::StrCat("GET ", target, " HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  }
  bool Post(const std::string& target, const std::string& body, const std::string& headers = "") {
    return Send(absl::StrCat("POST ", target, " HTTP/1.1\r\nHost: localhost\r\n", headers,
                             "Content-Length: ", body.size(), "\r\n\r\n", body));
  }
  // Ends the client's half of the connection. The client can still read.
  void EndInput() {
    if (tls_) SSL_shutdown(tls_.get());
    shutdown(socket_, SHUT_WR);
  }
  // Does the same as EndInput, but sends no close_notify over TLS.
  void CutInput() { shutdown(socket_, SHUT_WR); }
  void Reset() {
    const linger now{.l_onoff = 1, .l_linger = 0};
    setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    Close();
  }
  void Close() { close(std::exchange(socket_, -1)); }

  // Does the handshake of TLS. REQUIRES: the client was made without TLS and has sent nothing.
  void Encrypt(SSL_CTX* context) {
    // OpenSSL sends without MSG_NOSIGNAL.
    static_cast<void>(std::signal(SIGPIPE, SIG_IGN));
    tls_.reset(SSL_new(context));
    SSL_set_fd(tls_.get(), socket_);
    SSL_connect(tls_.get());
    ERR_clear_error();
  }
  // The state of the TLS connection. Null without TLS.
  const SSL* tls() const { return tls_.get(); }
  bool encrypted() const { return tls_ != nullptr && SSL_is_init_finished(tls_.get()) == 1; }
  // Asks the server for new keys and answers its request. Returns false if the server has closed.
  // REQUIRES: TLS 1.3.
  bool UpdateKeys() {
    return SSL_key_update(tls_.get(), SSL_KEY_UPDATE_REQUESTED) == 1 && SSL_do_handshake(tls_.get()) == 1;
  }
  // Whether the server has sent close_notify. REQUIRES: TLS.
  bool got_close_notify() const { return (SSL_get_shutdown(tls_.get()) & SSL_RECEIVED_SHUTDOWN) != 0; }

  // Returns the head of the next answer. ReadPart and other calls read its body.
  HttpAnswer ReadHead() {
    HttpAnswer answer;
    size_t end;
    while ((end = in_.find("\r\n\r\n")) == std::string::npos) {
      if (!Fill()) return answer;
    }
    const std::string head = in_.substr(0, end + 2);
    in_.erase(0, end + 4);
    answer.status = std::atoi(head.c_str() + head.find(' ') + 1);
    for (size_t line = head.find("\r\n") + 2; line < head.size();) {
      const size_t colon = head.find(": ", line), stop = head.find("\r\n", line);
      std::string name = head.substr(line, colon - line);
      std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
      answer.headers[name] = head.substr(colon + 2, stop - colon - 2);
      line = stop + 2;
    }
    return answer;
  }
  // Returns the next part of an answer with chunked transfer encoding. Returns nullopt after the
  // last part, or if the connection ends.
  std::optional<std::string> ReadPart() {
    size_t end;
    while ((end = in_.find("\r\n")) == std::string::npos) {
      if (!Fill()) return std::nullopt;
    }
    const size_t size = std::strtoul(in_.c_str(), nullptr, 16);
    while (in_.size() < end + 2 + size + 2) {
      if (!Fill()) return std::nullopt;
    }
    std::string part = in_.substr(end + 2, size);
    in_.erase(0, end + 2 + size + 2);
    if (size == 0) return std::nullopt;
    return part;
  }
  // Returns the next answer with its whole body.
  HttpAnswer Read(bool head_only = false) {
    HttpAnswer answer = ReadHead();
    while (answer.status == 100) answer = ReadHead();
    if (answer.status == 0 || head_only) return answer;
    if (answer.headers.contains("transfer-encoding")) {
      while (const auto part = ReadPart()) answer.body += *part;
    } else if (const auto length = answer.headers.find("content-length"); length != answer.headers.end()) {
      const size_t size = std::strtoul(length->second.c_str(), nullptr, 10);
      while (in_.size() < size && Fill()) continue;
      answer.body = in_.substr(0, size);
      in_.erase(0, size);
    } else if (answer.status != 204) {
      while (Fill()) continue;
      answer.body = std::exchange(in_, {});
    }
    return answer;
  }
  // Waits for bytes from the server and leaves them unread. Returns false if the server ends the
  // connection first.
  bool HasInput() { return !in_.empty() || Fill(); }
  // Discards all bytes until the server stops sending. Returns whether the connection ended without
  // an error.
  bool EndsAtLast() {
    while (Fill()) in_.clear();
    char byte;
    return recv(socket_, &byte, 1, 0) == 0;
  }
  // Whether the server has ended the connection and sent no bytes before. Waits for either.
  bool AtEnd() { return in_.empty() && !Fill(); }

 private:
  explicit HttpClient(int connected) : socket_(connected) {}
  // Returns the socket, or -1 if the connection failed.
  static int Connect(const std::string& address, int receive_buffer) {
    const int connected = socket(AF_INET, SOCK_STREAM, 0);
    if (receive_buffer > 0) setsockopt(connected, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    const size_t colon = address.rfind(':');
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::atoi(address.c_str() + colon + 1)));
    if (inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr) == 1 &&
        connect(connected, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) {
      return connected;
    }
    close(connected);
    return -1;
  }
  bool Fill() {
    char bytes[16 << 10];
    const ssize_t n = tls_ ? SSL_read(tls_.get(), bytes, sizeof bytes) : recv(socket_, bytes, sizeof bytes, 0);
    if (n <= 0) return false;
    in_.append(bytes, static_cast<size_t>(n));
    return true;
  }

  struct FreeTls {
    void operator()(SSL* tls) const { SSL_free(tls); }
  };

  int socket_;
  std::unique_ptr<SSL, FreeTls> tls_;
  std::string in_;
};

}  // namespace baton
