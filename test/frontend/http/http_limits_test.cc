// Limits on the connections and the memory that clients share.
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "await.h"
#include "http_world.h"

namespace baton {
namespace {

TEST_CASE("HttpServer answers 503 to connections beyond the limit") {
  World w([](HttpOptions& o) { o.max_connections = 2; });
  HttpClient first = w.Client(), second = w.Client();
  first.Get("/wait");
  second.Get("/wait");
  const Handler::Kept kept = w.handler.Next(), other = w.handler.Next();
  CHECK(Exchange(w, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n").status == 503);
  kept.reply->Send({});
  other.reply->Send({});
  CHECK(first.Read().status == 200);
  CHECK(second.Read().status == 200);
  // A connection that waits for a request is closed, so that a new one takes its slot.
  HttpClient third = w.Client();
  third.Get("/echo");
  CHECK(third.Read().status == 200);
  Await("a connection to end", [&] { return w.server->connections() <= 2; });
  CHECK(w.server->connections() == 2);
}

TEST_CASE("A new connection closes an idle one, and refuses one that has no answer yet") {
  World w([](HttpOptions& o) {
    o.max_connections = 2;
    o.threads = 1;  // the server notes the end of an answer before it accepts the next connection
  });
  HttpClient idle = w.Client();
  idle.Get("/echo");
  CHECK(idle.Read().status == 200);
  HttpClient fresh = w.Client(), third = w.Client();
  CHECK(idle.AtEnd());
  HttpClient fourth = w.Client();
  fresh.Get("/echo");
  CHECK(ReadAnswer(fresh).status == 503);
  third.Get("/echo");
  CHECK(third.Read().status == 200);
  fourth.Get("/echo");
  CHECK(fourth.Read().status == 200);
}

TEST_CASE("Every client gets an answer when many more come at once than have slots") {
  constexpr int kSlots = 8, kRefused = 4, kClients = 60;
  std::atomic<int> open = 0, most = 0;
  World w({.max_read_bytes = size_t{64} << 10, .is_encrypted = false}, [&](HttpOptions& o) {
    o.max_connections = kSlots;
    o.max_refused = kRefused;
    o.on_event = [&](HttpEvent event) {
      if (event == HttpEvent::kOpened) most = std::max<int>(most, ++open);
      if (event == HttpEvent::kClosed) --open;
    };
  });
  std::atomic<int> refused = 0, served = 0, other = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&] {
      std::optional<HttpClient> client = HttpClient::Dial(w.server->address());
      const int status = client && client->Get("/wait") ? client->Read().status : 0;
      ++(status == 503 ? refused : status == 200 ? served : other);
    });
  }
  Await("all but the served clients to be refused", [&] { return refused + other == kClients - kSlots; });
  for (int i = 0; i < kSlots; ++i) w.handler.Next().reply->Send({});
  for (std::thread& client : clients) client.join();
  CHECK(other == 0);
  CHECK(served == kSlots);
  CHECK(most <= kSlots + kRefused);
}

// As many files as the system allows, and one file for each end of a connection.
size_t RaiseFileLimit() {
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = limit.rlim_max;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  return limit.rlim_cur;
}

TEST_CASE("Each of 5,000 clients at once gets an answer") {
  constexpr int kClients = 5000;
  if (RaiseFileLimit() < 2 * kClients + 200) {
    WARN("SKIPPED: ulimit -n allows too few connections");
    return;
  }
  Handler handler;
  auto server = HttpServer::Start(PatientOptions(), handler);
  REQUIRE(server.ok());
  std::vector<HttpClient> clients;
  for (int i = 0; i < kClients; ++i) clients.emplace_back((*server)->address());
  for (HttpClient& client : clients) client.Get("/echo");
  std::map<int, int> statuses;
  for (HttpClient& client : clients) ++statuses[client.Read().status];
  // More than 4,096 are served if the server answers some before it accepts the last.
  CHECK(statuses[200] >= 4096);
  CHECK(statuses[200] + statuses[503] == kClients);
}

TEST_CASE("A tenant's share of connections leaves slots for other tenants") {
  World w([](HttpOptions& o) {
    o.max_connections = 16;
    o.asks_for_keys = true;
    o.threads = 1;
  });
  const auto status_for = [&w](const std::string& account) {
    HttpClient client = w.Client();
    client.Send(absl::StrCat("GET /echo HTTP/1.1\r\nHost: x\r\nx-account: ", account, "\r\n\r\n"));
    return client.Read().status;
  };
  std::vector<HttpClient> held;
  std::vector<Handler::Kept> kept;
  for (int i = 0; i < 8; ++i) {
    held.push_back(w.Client());
    held.back().Send("GET /wait HTTP/1.1\r\nHost: x\r\nx-account: a\r\n\r\n");
    kept.push_back(w.handler.Next());
  }
  CHECK(status_for("a") == 503);
  CHECK(status_for("b") == 200);
  kept.front().reply->Send({});
  CHECK(held.front().Read().status == 200);
  // The idle connection is closed for the new one.
  CHECK(status_for("a") == 200);
  CHECK(held.front().AtEnd());
}

TEST_CASE("Connections without a key leave slots for keys and for each other") {
  std::atomic<int> opened = 0, closed = 0, replaced = 0;
  World w([&](HttpOptions& o) {
    o.max_connections = 16;
    o.asks_for_keys = true;
    o.on_event = [&](HttpEvent event) {
      (event == HttpEvent::kOpened ? opened : event == HttpEvent::kClosed ? closed : replaced)++;
    };
  });
  const std::string mine = "POST /echo HTTP/1.1\r\nHost: x\r\nx-account: mine\r\nContent-Length: 0\r\n\r\n";
  std::vector<HttpClient> keyed, strangers;
  for (int i = 0; i < 8; ++i) {
    keyed.push_back(w.Client());
    keyed.back().Send(mine);
    REQUIRE(keyed.back().Read().status == 200);
  }
  for (int i = 0; i < 20; ++i) {
    strangers.push_back(w.Client());
    strangers.back().Get("/echo");
    REQUIRE(strangers.back().Read().status == 200);
  }
  CHECK(replaced == 16);  // a quarter of 16 connections may stay for one address
  CHECK(strangers.front().AtEnd());
  strangers.back().Get("/echo");
  CHECK(strangers.back().Read().status == 200);
  for (HttpClient& client : keyed) {
    client.Send(mine);
    CHECK(client.Read().status == 200);
  }
  w.server->Stop();
  CHECK(opened == 28);
}

TEST_CASE("HttpServer reports the connections that wait in the backlog") {
  std::atomic<int> waiting = 0;
  // A client of TLS would wait for its handshake.
  World w({.max_read_bytes = size_t{64} << 10, .is_encrypted = false}, [&waiting](HttpOptions& o) {
    o.max_connections = o.max_refused = 1;
    o.linger_timeout = absl::Hours(1);
    o.on_backlog = [&waiting](int connections) { waiting = connections; };
  });
  HttpClient first = w.Client();
  first.Get("/wait");
  const Handler::Kept kept = w.handler.Next();
  // A refused connection stays open until its client closes it.
  std::optional<HttpClient> refused = w.Client();
  CHECK(ReadAnswer(*refused).status == 503);
  HttpClient third = w.Client(), fourth = w.Client();
  Await("two connections to wait", [&] { return waiting == 2; });
  refused.reset();
  CHECK(ReadAnswer(third).status == 503);
  Await("one connection to wait", [&] { return waiting == 1; });
  kept.reply->Send({});
  CHECK(first.Read().status == 200);
}

TEST_CASE("HttpServer reads no body beyond the common budget") {
  World w([](HttpOptions& o) { o.max_bodies_bytes = 1500; });
  HttpClient first = w.Client();
  first.Post("/wait", std::string(1000, 'x'));
  std::optional<Handler::Kept> kept = w.handler.Next();
  const std::string request =
      absl::StrCat("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", std::string(1000, 'x'));
  CHECK(Exchange(w, request).status == 503);
  kept->reply->Send({});
  CHECK(first.Read().status == 200);
  kept.reset();
  CHECK(Exchange(w, request).status == 200);
}

TEST_CASE("Bodies of one account leave bytes of the budget for bodies of another") {
  World w([](HttpOptions& o) { o.max_bodies_bytes = 3000; });
  const auto status_for = [&w](const std::string& account) {
    return Exchange(w, absl::StrCat("POST /echo HTTP/1.1\r\nHost: x\r\nx-account: ", account,
                                    "\r\nContent-Length: 700\r\n\r\n", std::string(700, 'x')))
        .status;
  };
  HttpClient first = w.Client();
  first.Post("/wait", std::string(1000, 'x'), "x-account: a\r\n");
  std::optional<Handler::Kept> kept = w.handler.Next();
  CHECK(status_for("a") == 503);
  CHECK(status_for("b") == 200);
  kept->reply->Send({});
  CHECK(first.Read().status == 200);
  kept.reset();
  CHECK(status_for("a") == 200);
}

TEST_CASE("Unread whole answers count in the budget of their account") {
  std::mutex mutex;
  std::vector<int> answers;
  World w([&](HttpOptions& o) {
    o.max_bodies_bytes = 60 << 20;
    o.on_answer = [&](int status) {
      const std::lock_guard lock(mutex);
      answers.push_back(status);
    };
  });
  const HttpResponse large{.status = 200, .headers = {}, .body = std::string(20 << 20, 'x')};
  const auto ask = [&w](HttpClient& client, const std::string& account) {
    client.Send(absl::StrCat("GET /wait HTTP/1.1\r\nHost: x\r\nx-account: ", account, "\r\n\r\n"));
    return w.handler.Next().reply;
  };
  HttpClient first = w.Client(/*receive_buffer=*/4096), second = w.Client(), other = w.Client();
  std::shared_ptr<HttpReply> unread = ask(first, "a");
  unread->Send(large);
  ask(second, "a")->Send(large);
  const HttpAnswer refused = second.Read();
  CHECK(refused.status == 503);
  CHECK(refused.headers.at("x-refused") == "yes");
  ask(second, "a")->Send({.status = 200, .headers = {}, .body = "small"});
  CHECK(second.Read().body == "small");
  ask(other, "b")->Send({.status = 200, .headers = {}, .body = std::string(19 << 20, 'x')});
  CHECK(other.Read().status == 200);
  // After the client has read the answer, its bytes are free again.
  CHECK(first.Read().body.size() == large.body.size());
  Await("the answer to be sent", [&] { return unread->unsent() == 0; });
  unread.reset();
  std::shared_ptr<HttpReply> again = ask(second, "a");
  again->Send(large);
  CHECK(second.ReadHead().status == 200);
  // The bytes are free again after the client is gone, too.
  second.Reset();
  Await("the client's connection to end", [&] { return w.server->connections() <= 2; });
  HttpClient third = w.Client();
  ask(third, "a")->Send(large);
  CHECK(third.Read().status == 200);
  const std::lock_guard lock(mutex);
  std::ranges::sort(answers);  // the answers of two connections arrive in any order
  CHECK(answers == std::vector<int>{200, 200, 200, 200, 200, 503});
}

}  // namespace
}  // namespace baton
