#include "frontend/http/http_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log_limit.h"
#include "base/logging.h"
#include "boost/asio/executor_work_guard.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/steady_timer.hpp"
#include "frontend/http/http_connection.h"

namespace baton {
namespace {

namespace asio = boost::asio;
using Error = boost::system::error_code;

// While the process has no descriptors left, and while connections wait in the backlog.
constexpr std::chrono::milliseconds kAcceptPause(100), kAcceptPoll(10);

// Returns the period of checks for deadlines. A deadline is missed by at most a quarter.
std::chrono::nanoseconds SweepPeriod(const HttpOptions& o) {
  const absl::Duration least = std::min({o.handshake_timeout, o.header_timeout, o.body_timeout, o.idle_timeout,
                                         o.linger_timeout, o.max_read_pause, o.max_silence});
  return absl::ToChronoNanoseconds(std::clamp(least / 4, absl::Milliseconds(1), absl::Seconds(1)));
}

// Runs until the loop is stopped. If an event throws, for example for lack of memory, only that
// event is lost.
void RunLoop(HttpLoop& loop) {
  while (true) {
    try {
      loop.context.run();
      return;
    } catch (const std::exception& e) {
      spdlog::error("HTTP: {}", e.what());
    }
  }
}

}  // namespace

struct HttpServer::Parts {
  struct Runner {
    std::shared_ptr<HttpLoop> loop = std::make_shared<HttpLoop>();
    asio::executor_work_guard<asio::io_context::executor_type> work{loop->context.get_executor()};
    asio::steady_timer sweep{loop->context};
    std::thread thread{};
  };

  HttpShared shared;
  std::vector<std::unique_ptr<Runner>> runners;  // not changed after Start
  std::optional<asio::ip::tcp::acceptor> acceptor;
  std::optional<asio::steady_timer> accept_pause;
  // Used by the accepting thread only.
  size_t next = 0;  // index of a runner
  ConnectionTable::Id next_id = 0;
  LogLimit full{};

  Parts(const HttpOptions& options, HttpHandler& handler) : shared(options, handler) {
    for (int i = 0; i < options.threads; ++i) runners.push_back(std::make_unique<Runner>());
    acceptor.emplace(runners[0]->loop->context);
    accept_pause.emplace(runners[0]->loop->context);
  }

  absl::StatusOr<std::string> Listen();
  void Run();
  void Accept();
  void AcceptAfter(std::chrono::milliseconds pause);
  // Returns why the next connection must wait in the backlog, or nullptr if it may be accepted.
  const char* WhyWait();
  void OnAccept(const Error& error, Runner& runner, HttpConnection::Socket socket);
  void Take(Runner& runner, HttpConnection::Socket socket);
  // Logs that a new connection found no free slot. `what` completes "a new connection ...".
  void Warn(const std::string& what);
  void Sweep(Runner& runner);
  // Returns the number of connections that wait to be accepted.
  int Backlog();
};

absl::StatusOr<std::string> HttpServer::Parts::Listen() {
  const std::string& listen = shared.options.listen;
  const size_t colon = listen.rfind(':');
  std::string host = listen.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  Error error;
  asio::ip::tcp::resolver resolver(runners[0]->loop->context);
  const auto found = resolver.resolve(host, listen.substr(colon + 1), asio::ip::tcp::resolver::passive, error);
  if (!error) {
    const asio::ip::tcp::endpoint endpoint = found.begin()->endpoint();
    acceptor->open(endpoint.protocol(), error);
    // A restarted router can bind its port at once.
    if (!error) acceptor->set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor->bind(endpoint, error);
    if (!error) acceptor->listen(asio::socket_base::max_listen_connections, error);
  }
  if (error) return absl::UnavailableError(absl::StrCat("cannot listen on '", listen, "': ", error.message()));
  return absl::StrCat(listen.substr(0, colon), ":", acceptor->local_endpoint().port());
}

void HttpServer::Parts::Run() {
  for (const auto& runner : runners) {
    Sweep(*runner);
    runner->thread = std::thread([loop = runner->loop] { RunLoop(*loop); });
  }
  asio::post(runners[0]->loop->context, [this] { Accept(); });
}

void HttpServer::Parts::AcceptAfter(std::chrono::milliseconds pause) {
  accept_pause->expires_after(pause);
  accept_pause->async_wait([this](const Error& aborted) {
    if (!aborted && acceptor->is_open()) Accept();
  });
}

const char* HttpServer::Parts::WhyWait() {
  const HttpOptions& options = shared.options;
  if (shared.connections >= options.max_connections + options.max_refused) return "too many connections are closing";
  if (options.tls != nullptr && !shared.handshakes.IsOpen(std::chrono::steady_clock::now())) {
    return "too many TLS handshakes are under way";
  }
  return nullptr;
}

void HttpServer::Parts::Accept() {
  if (const char* const why = WhyWait()) {
    if (Backlog() > 0) Warn(absl::StrCat("waits in the backlog, because ", why));
    return AcceptAfter(kAcceptPoll);
  }
  Runner& runner = *runners[next++ % runners.size()];
  acceptor->async_accept(runner.loop->context, [this, &runner](const Error& error, HttpConnection::Socket socket) {
    OnAccept(error, runner, std::move(socket));
  });
}

void HttpServer::Parts::OnAccept(const Error& error, Runner& runner, HttpConnection::Socket socket) {
  if (!acceptor->is_open()) return;
  if (error) {
    spdlog::warn("HTTP: cannot accept a connection: {}", error.message());
    return AcceptAfter(kAcceptPause);
  }
  try {
    Take(runner, std::move(socket));
  } catch (const std::exception& e) {
    spdlog::error("HTTP: cannot accept a connection: {}", e.what());
  }
  Accept();
}

void HttpServer::Parts::Take(Runner& runner, HttpConnection::Socket socket) {
  Error ignored;
  const std::string address = socket.remote_endpoint(ignored).address().to_string();
  const ConnectionTable::Id id = next_id++;
  if (shared.options.tls != nullptr) shared.handshakes.Begin(id, std::chrono::steady_clock::now());
  const auto connection = std::make_shared<HttpConnection>(std::move(socket), shared, runner.loop, id, address);
  const ConnectionTable::Slot slot =
      shared.table.Add(id, address, [loop = runner.loop, weak = std::weak_ptr(connection)] {
        asio::post(loop->context, [weak] {
          if (const auto other = weak.lock()) other->MakeRoom();
        });
      });
  const bool has_slot = slot == ConnectionTable::Slot::kFree || slot == ConnectionTable::Slot::kMade;
  if (slot != ConnectionTable::Slot::kFree) {
    shared.Report(has_slot ? HttpEvent::kReplaced : HttpEvent::kRefused);
    const char* what =
        has_slot ? "replaced an older one"
        : slot == ConnectionTable::Slot::kNone
            ? "was answered 503, because none may be closed for it"
            : "was answered 503, because its address is at its limit and none of its connections may be closed";
    Warn(absl::StrCat("from ", address, " ", what));
  }
  asio::post(runner.loop->context,
             [connection, has_slot] { has_slot ? connection->Start() : connection->StartRefused(); });
}

void HttpServer::Parts::Warn(const std::string& what) {
  const std::optional<int64_t> kept_back = full.Pass();
  if (!kept_back) return;
  spdlog::warn("HTTP: {} of {} connections are open: a new connection {}; {} similar events since the last such line",
               shared.connections.load(), shared.options.max_connections, what, *kept_back);
}

void HttpServer::Parts::Sweep(Runner& runner) {
  // The next sweep is scheduled first, because the code below may throw.
  runner.sweep.expires_after(SweepPeriod(shared.options));
  runner.sweep.async_wait([this, &runner](const Error& aborted) {
    if (!aborted && !runner.loop->stopped) Sweep(runner);
  });
  if (&runner == runners[0].get() && shared.options.on_backlog) shared.options.on_backlog(Backlog());
  const auto now = std::chrono::steady_clock::now();
  // A copy, because closed connections leave the set.
  const std::vector<std::shared_ptr<HttpConnection>> open(runner.loop->connections.begin(),
                                                          runner.loop->connections.end());
  for (const auto& connection : open) connection->CheckDeadlines(now);
}

// For a listening socket, Linux returns the length of the backlog in a field that has another
// meaning for connections.
int HttpServer::Parts::Backlog() {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(acceptor->native_handle(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  return static_cast<int>(info.tcpi_unacked);
}

HttpServer::HttpServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpOptions& options, HttpHandler& handler) {
  std::unique_ptr<HttpServer> server(new HttpServer(std::make_unique<Parts>(options, handler)));
  auto address = server->parts_->Listen();
  if (!address.ok()) return address.status();
  server->address_ = *std::move(address);
  server->parts_->Run();
  return server;
}

HttpServer::~HttpServer() { Stop(); }

int HttpServer::connections() const { return parts_->shared.connections; }

void HttpServer::Drain() { parts_->shared.draining = true; }

bool HttpServer::AwaitIdle(absl::Duration patience) {
  return parts_->shared.AwaitIdle(absl::ToChronoNanoseconds(std::max(patience, absl::ZeroDuration())));
}

void HttpServer::Stop() {
  Parts& parts = *parts_;
  for (const auto& runner : parts.runners) {
    if (!runner->thread.joinable()) continue;
    const bool accepts = runner == parts.runners[0];
    asio::post(runner->loop->context, [&parts, &runner = *runner, accepts] {
      if (accepts) {
        Error ignored;
        parts.acceptor->close(ignored);
        parts.accept_pause->cancel();
      }
      runner.loop->stopped = true;
      runner.sweep.cancel();
      const std::vector<std::shared_ptr<HttpConnection>> open(runner.loop->connections.begin(),
                                                              runner.loop->connections.end());
      for (const auto& connection : open) connection->Leave(Gone::kLeft);
      runner.work.reset();
    });
  }
  for (const auto& runner : parts.runners) {
    if (runner->thread.joinable()) runner->thread.join();
  }
  for (const auto& runner : parts.runners) {
    runner->loop->context.restart();
    runner->loop->context.poll();  // connections that arrived meanwhile
  }
}

}  // namespace baton
