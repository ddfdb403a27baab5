// An HTTP/1.1 server: connections, limits, deadlines. What requests mean, its handler knows.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "frontend/http/http_message.h"
#include "frontend/http/http_reply.h"
#include "frontend/http/tls_certificate.h"

namespace baton {

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // From a thread of the server, which serves others too: what takes long is done elsewhere. The reply must be answered
  // once, at any time and from any thread.
  virtual void OnRequest(HttpRequest request, std::shared_ptr<HttpReply> reply) = 0;
  // The same, before its body is read: an answer to a request that is not to be served, whatever its body is. With
  // nothing, OnRequest gets it, with the account that this may have given it.
  virtual std::optional<HttpResponse> OnHead(HttpRequest& head) = 0;
  // What a client is told whose request is refused before the handler sees it.
  virtual HttpResponse Refusal(int status, const std::string& message) = 0;
};

// What becomes of connections.
enum class HttpEvent {
  kOpened,
  kClosed,
  kTurnedAway,  // there was no room for it
  kReplaced,    // it is closed for one that came
};

struct HttpOptions {
  std::string listen{};                         // host:port; port 0 takes a free one
  std::shared_ptr<const TlsCertificate> tls{};  // null: nothing is encrypted
  int threads = 2;
  int max_connections = 4096;
  bool asks_for_keys = false;                   // ConnectionTable; who has one has an account
  std::function<void(HttpEvent)> on_event{};    // from any thread; may be empty
  std::function<void(int status)> on_answer{};  // to a request, as it is sent or begins; the same
  size_t max_header_bytes = 16u << 10;          // with the request line
  int max_headers = 100;
  size_t max_body_bytes = 8u << 20;      // as it comes: of one in chunks, with what is between them
  size_t max_bodies_bytes = 256u << 20;  // of all requests that are being read, or are kept by the handler: BodyBytes
  size_t max_read_bytes = 64u << 10;     // at once
  // For the handshake of TLS with the wait for a first request, and for each request's headers.
  absl::Duration header_timeout = absl::Seconds(10);
  absl::Duration body_timeout = absl::Seconds(30);
  absl::Duration idle_timeout = absl::Seconds(75);   // between requests
  absl::Duration linger_timeout = absl::Seconds(2);  // for a client to read the last answer
  // A client that leaves more bytes of an answer unread when more come, or reads nothing for this long, is cut off.
  size_t max_unread_bytes = 1u << 20;
  absl::Duration max_read_pause = absl::Seconds(60);
  absl::Duration max_silence = absl::Seconds(15);  // of an answer that is open: HttpReply::Open
};

class HttpServer {
 public:
  // UNAVAILABLE: the address cannot be bound. The handler must outlive it.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpOptions& options, HttpHandler& handler);
  ~HttpServer();  // Stop

  const std::string& address() const { return address_; }  // host:port with the port that was chosen
  int connections() const;
  // From now on a connection ends with the answer that it waits for.
  void Drain();
  // Waits until no request waits for its answer; false if some still do after `patience`.
  bool AwaitIdle(absl::Duration patience);
  // Closes everything; who waits for an answer is gone. Idempotent.
  void Stop();

 private:
  struct Parts;
  explicit HttpServer(std::unique_ptr<Parts> parts);

  const std::unique_ptr<Parts> parts_;
  std::string address_;
};

}  // namespace baton
