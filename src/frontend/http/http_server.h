// An HTTP/1.1 server with connections, limits and deadlines. A handler interprets the requests.
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
  // Called on a thread of the server, which serves other connections too. Long work must run on
  // another thread. The reply must be answered once, at any time and from any thread.
  virtual void OnRequest(HttpRequest request, std::shared_ptr<HttpReply> reply) = 0;
  // Called on the same thread before the body is read. Returns an answer to refuse the request
  // whatever its body is. If it returns nothing, OnRequest follows. It may set head.account.
  virtual std::optional<HttpResponse> OnHead(HttpRequest& head) = 0;
  // Returns headers of every answer to a request with this head, besides those of the answer
  // itself. If the request is refused before OnHead, the head may be incomplete.
  virtual HttpHeaders AnswerHeaders(const HttpRequest& /*head*/) { return {}; }
  // Returns the answer to a request that the server refuses before the handler sees it.
  virtual HttpResponse Refusal(int status, const std::string& message) = 0;
};

// Events of connections.
enum class HttpEvent {
  kOpened,
  kClosed,
  kRefused,   // refused for lack of a free slot
  kReplaced,  // closed, or answered 503, so that a new connection takes its slot
};

struct HttpOptions {
  std::string listen{};                         // host:port; port 0 chooses a free port
  std::shared_ptr<const TlsCertificate> tls{};  // null if nothing is encrypted
  int threads = 2;
  int max_connections = 4096;
  // Upper bound on further connections, which are answered 503. More connections wait in the
  // backlog of the socket until such a connection has closed, after at most linger_timeout.
  int max_refused = 1024;
  // Upper bound on TLS handshakes under way. More connections wait in the backlog. A handshake that
  // takes too long no longer counts (HandshakeGate).
  int max_handshakes = 256;
  absl::Duration handshake_patience = absl::Milliseconds(500);
  absl::Duration longest_handshake_patience = absl::Seconds(2);
  // Whether API keys are required (ConnectionTable). A request with a key has an account.
  bool asks_for_keys = false;
  std::function<void(HttpEvent)> on_event{};  // called from any thread; may be empty
  // Called from a thread of the server about once a second, with the number of connections that
  // wait in the backlog. May be empty.
  std::function<void(int waiting)> on_backlog{};
  // Called from any thread when an answer is sent or begins. May be empty.
  std::function<void(int status)> on_answer{};
  size_t max_header_bytes = 16u << 10;  // with the request line
  int max_headers = 100;
  // As received, and after decoding. For a chunked body, the bytes between chunks count too.
  size_t max_body_bytes = 8u << 20;
  // For all requests that are being read or kept by the handler (BodyBytes).
  size_t max_bodies_bytes = 256u << 20;
  size_t max_read_bytes = 64u << 10;                     // for one read of a socket
  absl::Duration handshake_timeout = absl::Seconds(30);  // of TLS
  // For the wait for the first request, and for the headers of each request.
  absl::Duration header_timeout = absl::Seconds(10);
  absl::Duration body_timeout = absl::Seconds(30);
  absl::Duration idle_timeout = absl::Seconds(75);   // between requests
  absl::Duration linger_timeout = absl::Seconds(2);  // for a client to read the last answer
  // A client is cut off if it has more bytes of an answer unread when more are written, or reads
  // nothing for this long.
  size_t max_unread_bytes = 1u << 20;
  absl::Duration max_read_pause = absl::Seconds(60);
  // Between two parts of an answer that HttpReply::Open has prepared.
  absl::Duration max_silence = absl::Seconds(15);
};

class HttpServer {
 public:
  // Returns UNAVAILABLE if the address cannot be bound. The handler must outlive this object.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpOptions& options, HttpHandler& handler);
  ~HttpServer();  // calls Stop

  const std::string& address() const { return address_; }  // host:port, with the chosen port
  int connections() const;
  // From now on, each connection closes after the answer that it waits for.
  void Drain();
  // Waits until no request waits for its answer. Returns false if some still do after `patience`.
  bool AwaitIdle(absl::Duration patience);
  // Closes all connections. Requests that wait for an answer are reported as left. Idempotent.
  void Stop();

 private:
  struct Parts;
  explicit HttpServer(std::unique_ptr<Parts> parts);

  const std::unique_ptr<Parts> parts_;
  std::string address_;
};

}  // namespace baton
