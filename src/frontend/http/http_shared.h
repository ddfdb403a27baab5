// The state that the connections of a server share: its threads, limits and handler.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "absl/container/flat_hash_set.h"
#include "boost/asio/io_context.hpp"
#include "frontend/http/body_bytes.h"
#include "frontend/http/connection_table.h"
#include "frontend/http/handshake_gate.h"
#include "frontend/http/http_server.h"

namespace baton {

class HttpConnection;

// A thread that serves connections.
struct HttpLoop {
  boost::asio::io_context context{1};
  absl::flat_hash_set<std::shared_ptr<HttpConnection>> connections;  // open connections
  bool stopped = false;                                              // if set, no connection opens
};

// The state that the connections of a server share. Thread-safe.
class HttpShared {
 public:
  HttpShared(const HttpOptions& options_in, HttpHandler& handler_in) : options(options_in), handler(handler_in) {}
  const HttpOptions options;
  HttpHandler& handler;
  std::atomic<bool> draining = false;
  std::atomic<int> connections = 0;
  ConnectionTable table{options.max_connections, options.asks_for_keys};
  HandshakeGate handshakes{static_cast<size_t>(options.max_handshakes),
                           absl::ToChronoNanoseconds(options.handshake_patience),
                           absl::ToChronoNanoseconds(options.longest_handshake_patience)};
  // Owned by requests too, because a handler may keep requests for longer than the server lives.
  const std::shared_ptr<BodyBytes> bodies = std::make_shared<BodyBytes>(options.max_bodies_bytes);

  void RequestBegins();
  void RequestEnds();
  bool AwaitIdle(std::chrono::nanoseconds patience);
  void Report(HttpEvent event) const {
    if (options.on_event) options.on_event(event);
  }

 private:
  std::mutex mutex_;  // guards the members below
  std::condition_variable idle_;
  int requests_ = 0;  // requests that wait for their answers
};

}  // namespace baton
