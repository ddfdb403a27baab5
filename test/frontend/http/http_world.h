// An HTTP server with the handler and clients of its tests.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "catch.h"
#include "certificates.h"
#include "frontend/http/http_server.h"
#include "http_client.h"
#include "patient_options.h"

namespace baton {

// Answers /echo with the request, and keeps all other requests for the test.
class Handler final : public HttpHandler {
 public:
  struct Kept {
    HttpRequest request;
    std::shared_ptr<HttpReply> reply;
  };

  void OnRequest(HttpRequest request, std::shared_ptr<HttpReply> reply) override {
    if (request.path == "/echo") {
      return reply->Send(
          {.status = 200, .headers = {{"x-method", request.method}, {"x-query", request.query}}, .body = request.body});
    }
    const std::lock_guard lock(mutex_);
    reply->OnGone([this](Gone why) {
      const std::lock_guard gone_lock(mutex_);
      gone_.push_back(why);
      changed_.notify_all();
    });
    kept_.push_back({std::move(request), std::move(reply)});
    changed_.notify_all();
  }
  // Refuses a request whose authorization is "none", whatever its body is. Reads the account of
  // other requests from a header.
  std::optional<HttpResponse> OnHead(HttpRequest& head) override {
    head.account = head.header("x-account");
    if (head.header("authorization") != "none") return std::nullopt;
    return HttpResponse{.status = 401, .headers = {{"x-refused", "yes"}}, .body = "who?"};
  }
  HttpHeaders AnswerHeaders(const HttpRequest& head) override {
    const std::string_view origin = head.header("origin");
    return origin.empty() ? HttpHeaders() : HttpHeaders{{"x-origin", std::string(origin)}};
  }
  HttpResponse Refusal(int status, const std::string& message) override {
    return {.status = status, .headers = {{"x-refused", "yes"}}, .body = message};
  }

  Kept Next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !kept_.empty(); });
    Kept kept = std::move(kept_.front());
    kept_.pop_front();
    return kept;
  }
  Gone NextGone() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !gone_.empty(); });
    const Gone why = gone_.front();
    gone_.pop_front();
    return why;
  }
  bool NoClientIsGone() {
    const std::lock_guard lock(mutex_);
    return gone_.empty();
  }

 private:
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<Kept> kept_;
  std::deque<Gone> gone_;
};

// Every test runs in four modes. The server reads as much as is there, or byte by byte, each with
// and without TLS.
struct WorldMode {
  size_t max_read_bytes;
  bool is_encrypted;
};
inline WorldMode EachMode() {
  const size_t max_read_bytes = GENERATE(size_t{64} << 10, size_t{1});
  return {max_read_bytes, GENERATE(false, true)};
}

struct World {
  Handler handler;
  std::unique_ptr<HttpServer> server;
  std::shared_ptr<SSL_CTX> tls;  // the clients' context; null if nothing is encrypted

  explicit World(const std::function<void(HttpOptions&)>& change = [](HttpOptions&) {}) : World(EachMode(), change) {}
  World(WorldMode mode, const std::function<void(HttpOptions&)>& change) {
    HttpOptions options = PatientOptions();
    options.max_read_bytes = mode.max_read_bytes;
    if (mode.is_encrypted) {
      static Authority authority("tests");
      static const TlsFiles kFiles = authority.Issue("server");
      tls = authority.ClientContext();
      auto certificate = TlsCertificate::Load({kFiles.certificate, kFiles.key});
      REQUIRE(certificate.ok());
      options.tls = *certificate;
    }
    change(options);
    auto started = HttpServer::Start(options, handler);
    REQUIRE(started.ok());
    server = *std::move(started);
  }
  HttpClient Client(int receive_buffer = 0) {
    HttpClient client(server->address(), receive_buffer, tls.get());
    CHECK(client.encrypted() == (tls != nullptr));
    return client;
  }
};

// The server's next answer to this client. After an error, the connection must end.
inline HttpAnswer ReadAnswer(HttpClient& client) {
  HttpAnswer answer = client.Read();
  if (answer.status >= 400) {
    CHECK(answer.headers["x-refused"] == "yes");
    CHECK(answer.headers["connection"] == "close");
    CHECK(client.AtEnd());
  }
  return answer;
}
// The server's answer to these bytes.
inline HttpAnswer Exchange(World& w, const std::string& bytes) {
  HttpClient client = w.Client();
  client.Send(bytes);
  return ReadAnswer(client);
}

}  // namespace baton
