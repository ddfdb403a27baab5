#include "frontend/http/http_server.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "absl/strings/str_cat.h"
#include "await.h"
#include "http_world.h"

namespace baton {
namespace {

TEST_CASE("HttpServer answers the requests of one connection in order") {
  World w;
  HttpClient client = w.Client();
  client.Post("/echo?a=b?c", "one");
  HttpAnswer answer = client.Read();
  CHECK(answer.status == 200);
  CHECK(answer.body == "one");
  CHECK(answer.headers["x-method"] == "POST");
  CHECK(answer.headers["x-query"] == "a=b?c");
  CHECK(answer.headers.contains("date"));
  CHECK_FALSE(answer.headers.contains("connection"));
  // Several requests at once, split at any byte.
  client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\ntwoPOST /ec");
  client.Send("ho HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nthr");
  client.Send("eeGET /wait HTTP/1.1\r\nHost: x\r\n\r\nGET /echo HTTP/1.1\r\nhost: x\r\n\r\n");
  CHECK(client.Read().body == "two");
  CHECK(client.Read().body == "three");
  const Handler::Kept kept = w.handler.Next();
  kept.reply->Begin({.status = 200, .headers = {}, .body = "par"});
  kept.reply->Write("ts");
  kept.reply->End();
  CHECK(client.Read().body == "parts");
  CHECK(client.Read().headers["x-method"] == "GET");
}

TEST_CASE("HttpServer accepts a body that is chunked or follows Expect: 100-continue") {
  World w;
  HttpClient client = w.Client();
  client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
  client.Send("2;extension=1\r\nde\r\n0\r\ntrailer: x\r\n\r\n");
  CHECK(client.Read().body == "abcde");
  client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
  CHECK(client.Read().body.empty());
  client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  CHECK(client.ReadHead().status == 100);
  client.Send("hi");
  CHECK(client.Read().body == "hi");
  client.Send("HEAD /echo HTTP/1.1\r\nHost: x\r\n\r\n");
  CHECK(client.Read(/*head_only=*/true).headers["x-method"] == "HEAD");
  client.Send("GET /echo HTTP/1.0\r\n\r\n");
  HttpAnswer old = client.Read();
  CHECK(old.headers["connection"] == "close");
  CHECK(client.AtEnd());
}

TEST_CASE("An HTTP/1.0 client gets parts until the connection ends") {
  World w;
  HttpClient client = w.Client();
  client.Send("GET /wait HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const Handler::Kept kept = w.handler.Next();
  kept.reply->Begin({.status = 200, .headers = {}, .body = "a"});
  kept.reply->Write("b");
  kept.reply->End();
  HttpAnswer answer = client.Read();
  CHECK(answer.body == "ab");
  CHECK(answer.headers["connection"] == "close");
  CHECK_FALSE(answer.headers.contains("transfer-encoding"));
}

TEST_CASE("HttpServer refuses input that is not HTTP") {
  World w;
  CHECK(Exchange(w, "hello\r\n\r\n").status == 400);
  CHECK(Exchange(w, "GET / HTTP/1.1\r\n\r\n").status == 400);  // no Host
  CHECK(Exchange(w, "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n").status == 400);
  CHECK(Exchange(w, "GET / HTTP/1.1\r\nHost: x\r\nAuthorization: a\r\nAuthorization: a\r\n\r\n").status == 400);
  CHECK(Exchange(w, "GET / HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n").status == 400);
  CHECK(Exchange(w, "GET / HTTP/3.7\r\nHost: x\r\n\r\n").status == 400);
  CHECK(Exchange(w, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").status == 400);
  CHECK(Exchange(w, std::string("GET /\0 HTTP/1.1\r\nHost: x\r\n\r\n", 28)).status == 400);
  const std::string post = "POST /echo HTTP/1.1\r\nHost: x\r\n";
  CHECK(Exchange(w, post + "Content-Length: -1\r\n\r\n").status == 400);
  CHECK(Exchange(w, post + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab").status == 400);
  CHECK(Exchange(w, post + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").status == 400);
  for (const char* coding : {"gzip", "gzip, chunked", "chunked, gzip", "chunked, chunked", "identity", "chunked;q=1"}) {
    INFO(coding);
    CHECK(Exchange(w, absl::StrCat(post, "Transfer-Encoding: ", coding, "\r\n\r\n0\r\n\r\n")).status == 400);
  }
  CHECK(Exchange(w, post + "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").status == 400);
  CHECK(Exchange(w, "POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").status == 400);
  CHECK(Exchange(w, post + "Transfer-Encoding: chunked\r\n\r\nxyz\r\n").status == 400);
  CHECK(Exchange(w, post + "Expect: miracles\r\nContent-Length: 1\r\n\r\n").status == 417);
}

TEST_CASE("HttpServer refuses heads and bodies beyond the limits") {
  World w([](HttpOptions& o) { o.max_body_bytes = 1000; });
  const std::string get = "GET /echo HTTP/1.1\r\nHost: x\r\n", post = "POST /echo HTTP/1.1\r\nHost: x\r\n";
  CHECK(Exchange(w, absl::StrCat("GET /", std::string(20 << 10, 'x'), " HTTP/1.1\r\nHost: x\r\n\r\n")).status == 431);
  CHECK(Exchange(w, absl::StrCat(get, "a: ", std::string(20 << 10, 'x'), "\r\n\r\n")).status == 431);
  // Neither the request line nor the header is too long alone.
  const std::string ten(10 << 10, 'x');
  CHECK(Exchange(w, absl::StrCat("GET /", ten, " HTTP/1.1\r\nHost: x\r\na: ", ten, "\r\n\r\n")).status == 431);
  std::string headers;
  for (int i = 0; i < 200; ++i) absl::StrAppend(&headers, "name-", i, ": ", std::string(100, 'x'), "\r\n");
  CHECK(Exchange(w, absl::StrCat(get, headers, "\r\n")).status == 431);
  headers.clear();
  for (int i = 0; i < 99; ++i) absl::StrAppend(&headers, "n", i, ": x\r\n");
  CHECK(Exchange(w, absl::StrCat(get, "Connection: close\r\n", headers, "\r\n")).status == 431);
  headers.resize(headers.size() - 8);
  CHECK(Exchange(w, absl::StrCat(get, headers, "\r\n")).status == 200);

  CHECK(Exchange(w, absl::StrCat(post, "Content-Length: 1000\r\n\r\n", std::string(1000, 'x'))).status == 200);
  CHECK(Exchange(w, absl::StrCat(post, "Content-Length: 1001\r\n\r\n", std::string(1001, 'x'))).status == 413);
  CHECK(Exchange(w, absl::StrCat(post, "Content-Length: 1001\r\nExpect: 100-continue\r\n\r\n")).status == 413);
  CHECK(Exchange(w, absl::StrCat(post, "Content-Length: 99999999999999999999\r\n\r\n")).status >= 400);
  const std::string chunk = absl::StrCat("1F4\r\n", std::string(500, 'x'), "\r\n");
  CHECK(Exchange(w, absl::StrCat(post, "Transfer-Encoding: chunked\r\n\r\n", chunk, chunk, "1\r\nx\r\n")).status ==
        413);
  CHECK(
      Exchange(w, absl::StrCat(post, "Transfer-Encoding: chunked\r\n\r\n", "1;", std::string(200 << 10, 'x'))).status >=
      400);
}

TEST_CASE("Bytes between chunks count for the body") {
  World w([](HttpOptions& o) { o.max_body_bytes = 1000; });
  const std::string post = "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  std::string chunks;
  for (int i = 0; i < 20; ++i) absl::StrAppend(&chunks, "1;", std::string(40, 'e'), "\r\nx\r\n");
  CHECK(Exchange(w, absl::StrCat(post, chunks, "0\r\n\r\n")).status == 200);
  CHECK(Exchange(w, absl::StrCat(post, chunks, chunks, "0\r\n\r\n")).status == 413);
}

TEST_CASE("Fields of a trailer are not headers") {
  World w;
  const std::string chunks = "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n";
  HttpClient client = w.Client();
  client.Send("POST /wait HTTP/1.1\r\nHost: x\r\n" + chunks + "authorization: Bearer a\r\nConnection: close\r\n\r\n");
  const Handler::Kept kept = w.handler.Next();
  CHECK(kept.request.body == "x");
  CHECK(kept.request.header("authorization").empty());
  CHECK(kept.request.headers.size() == 2);
  kept.reply->Send({});
  CHECK_FALSE(client.Read().headers.contains("connection"));

  const std::string post = "POST /echo HTTP/1.1\r\nHost: x\r\n" + chunks;
  for (const size_t length : {size_t{20} << 10, size_t{65'533}, size_t{65'600}, size_t{200} << 10}) {
    const int status = Exchange(w, absl::StrCat(post, "a: ", std::string(length, 'x'), "\r\n\r\n")).status;
    const bool refused = status == 400 || status == 413 || status == 431;
    CHECK((refused || (status == 200 && length <= 65'533)));
  }
}

TEST_CASE("HttpServer answers without the body when it refuses a request by its head") {
  World w([](HttpOptions& o) { o.max_bodies_bytes = 1000; });
  const std::string stranger = "POST /echo HTTP/1.1\r\nHost: x\r\nAuthorization: none\r\n";
  CHECK(Exchange(w, stranger + "Content-Length: 2000\r\n\r\n").status == 401);
  CHECK(Exchange(w, stranger + "Content-Length: 2000\r\n\r\n" + std::string(2000, 'x')).status == 401);
  CHECK(Exchange(w, stranger + "Transfer-Encoding: chunked\r\n\r\n1\r\n").status == 401);
  HttpClient asking = w.Client();
  asking.Send(stranger + "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  CHECK(asking.ReadHead().status == 401);
  // If no body follows, the connection continues.
  HttpClient client = w.Client();
  for (int i = 0; i < 3; ++i) {
    client.Send("GET /echo HTTP/1.1\r\nHost: x\r\nAuthorization: none\r\n\r\n");
    const HttpAnswer answer = client.Read();
    CHECK(answer.status == 401);
    CHECK_FALSE(answer.headers.contains("connection"));
  }
  client.Get("/echo");
  CHECK(client.Read().status == 200);
}

TEST_CASE("HttpServer refuses a client that sends slowly") {
  SECTION("the client does not end its headers") {
    const WorldMode mode = EachMode();
    // On a slow machine, the timeout may end before the server has read the input. The test then
    // repeats with twice the time.
    for (absl::Duration timeout = absl::Milliseconds(300);; timeout *= 2) {
      World w(mode, [&](HttpOptions& o) { o.header_timeout = timeout; });
      HttpClient silent(w.server->address(), 0, w.tls.get());
      if (silent.encrypted() != mode.is_encrypted) continue;
      CHECK(silent.AtEnd());
      HttpClient slow(w.server->address(), 0, w.tls.get());
      if (slow.encrypted() != mode.is_encrypted) continue;
      slow.Send("GET /echo HTTP/1.1\r\nOrigin: o\r\nHos");
      const HttpAnswer answer = ReadAnswer(slow);
      if (answer.status == 0 || !answer.headers.contains("x-origin")) continue;
      CHECK(answer.status == 408);
      CHECK(answer.headers.at("x-origin") == "o");
      break;
    }
  }
  SECTION("the client does not end its body") {
    World w([](HttpOptions& o) { o.body_timeout = absl::Milliseconds(300); });
    const HttpAnswer answer = Exchange(w, "POST /echo HTTP/1.1\r\nHost: x\r\nOrigin: o\r\nContent-Length: 5\r\n\r\nab");
    CHECK(answer.status == 408);
    CHECK(answer.headers.at("x-origin") == "o");
  }
  SECTION("the client sends no next request") {
    World w([](HttpOptions& o) { o.idle_timeout = absl::Milliseconds(300); });
    HttpClient idle = w.Client();
    idle.Get("/echo");
    CHECK(idle.Read().status == 200);
    CHECK(idle.AtEnd());
  }
}

TEST_CASE("A client that closes its side gets its answer") {
  World w;
  HttpClient whole = w.Client(), parts = w.Client(), broken = w.Client();
  whole.Get("/wait");
  whole.EndInput();
  const Handler::Kept kept = w.handler.Next();
  // The interim response by which the server tests whether the client is there.
  CHECK(whole.ReadHead().status == 100);
  kept.reply->Send({.status = 200, .headers = {}, .body = "late"});
  CHECK(whole.Read().body == "late");
  CHECK(whole.AtEnd());

  parts.Get("/wait");
  const Handler::Kept streamed = w.handler.Next();
  streamed.reply->Begin({.status = 200, .headers = {}, .body = "a"});
  CHECK(parts.ReadHead().status == 200);
  parts.EndInput();
  streamed.reply->Write("b");
  CHECK(parts.ReadPart() == "a");
  CHECK(parts.ReadPart() == "b");
  streamed.reply->End();
  CHECK_FALSE(parts.ReadPart().has_value());
  CHECK(parts.AtEnd());

  broken.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab");
  broken.EndInput();
  CHECK(broken.Read().status == 400);
  CHECK(w.handler.NoClientIsGone());
}

TEST_CASE("The server notices a client that leaves") {
  World w;
  HttpClient client = w.Client();
  client.Get("/wait");
  const Handler::Kept kept = w.handler.Next();
  SECTION("the client resets the connection while it waits") { client.Reset(); }
  SECTION("the client closes the connection while it waits") { client.Close(); }
  SECTION("the client resets the connection between parts") {
    kept.reply->Begin({.status = 200, .headers = {}, .body = "a"});
    CHECK(client.ReadHead().status == 200);
    CHECK(client.ReadPart() == "a");
    client.Reset();
  }
  SECTION("the client closes the connection, and the server writes another part") {
    kept.reply->Begin({.status = 200, .headers = {}, .body = "a"});
    CHECK(client.ReadHead().status == 200);
    CHECK(client.ReadPart() == "a");
    client.Close();
    kept.reply->Write("b");
  }
  SECTION("the client sends more requests than the server reads ahead, and resets") {
    std::string requests;
    for (int i = 0; i < 1000; ++i) requests += "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n";
    client.Send(requests);
    client.Reset();
  }
  CHECK(w.handler.NextGone() == Gone::kLeft);
  // A callback that is set later runs at once, and later writes have no effect.
  std::optional<Gone> late;
  kept.reply->OnGone([&](Gone why) { late = why; });
  CHECK(late == Gone::kLeft);
  kept.reply->Write("c");
  kept.reply->End();
}

TEST_CASE("HttpServer begins a prepared answer after a pause") {
  World w([](HttpOptions& o) { o.max_silence = absl::Milliseconds(40); });
  HttpClient client = w.Client();
  client.Get("/wait");
  const Handler::Kept kept = w.handler.Next();
  kept.reply->Open({.status = 200, .headers = {{"x-open", "yes"}}, .body = ""}, "?");
  CHECK(client.ReadHead().headers["x-open"] == "yes");
  for (int i = 0; i < 3; ++i) CHECK(client.ReadPart() == "?");
  CHECK_FALSE(kept.reply->TrySend({.status = 500, .headers = {}, .body = {}}));
  SECTION("the answer continues with further parts") {
    kept.reply->Write("a");
    std::optional<std::string> part;
    while ((part = client.ReadPart()) == "?") continue;
    CHECK(part == "a");
    CHECK(client.ReadPart() == "?");
    kept.reply->End();
    while ((part = client.ReadPart()) == "?") continue;
    CHECK_FALSE(part.has_value());
    client.Get("/echo");
    CHECK(client.Read().status == 200);
  }
  SECTION("the client leaves, and the server notices it") {
    client.Close();
    CHECK(w.handler.NextGone() == Gone::kLeft);
  }
}

TEST_CASE("HttpServer disconnects a client that does not read") {
  SECTION("too many bytes wait for the client") {
    World w([](HttpOptions& o) { o.max_unread_bytes = 100 << 10; });
    HttpClient client = w.Client(/*receive_buffer=*/4096);
    client.Get("/wait");
    const Handler::Kept kept = w.handler.Next();
    kept.reply->Begin({});
    // More than the buffers of the sockets hold.
    for (int i = 0; i < 1000; ++i) kept.reply->Write(std::string(10 << 10, 'x'));
    CHECK(w.handler.NextGone() == Gone::kCutOff);
  }
  SECTION("the client reads nothing for too long") {
    World w([](HttpOptions& o) { o.max_read_pause = absl::Milliseconds(300); });
    HttpClient client = w.Client(/*receive_buffer=*/4096);
    client.Get("/wait");
    w.handler.Next().reply->Send({.status = 200, .headers = {}, .body = std::string(32 << 20, 'x')});
    Await("the connection to end", [&] { return w.server->connections() == 0; });
  }
}

TEST_CASE("A client that reads stays connected, however much it is sent at once") {
  World w([](HttpOptions& o) { o.max_unread_bytes = 100 << 10; });
  HttpClient client = w.Client();
  client.Get("/wait");
  const Handler::Kept kept = w.handler.Next();
  const std::string much(300 << 10, 'x');
  kept.reply->Begin({});
  kept.reply->Write(much);
  CHECK(client.ReadHead().status == 200);
  for (int i = 0; i < 20; ++i) {
    REQUIRE(client.ReadPart() == much);
    // The bytes were sent, but the server's thread may not have recorded that yet.
    Await("the server to note so", [&] { return kept.reply->unsent() == 0; });
    kept.reply->Write(much);
  }
  REQUIRE(client.ReadPart() == much);
  CHECK(w.handler.NoClientIsGone());
}

TEST_CASE("Drain ends connections after their answers, and Stop at once") {
  World w;
  HttpClient waiting = w.Client(), streaming = w.Client(), idle = w.Client();
  waiting.Get("/wait");
  const Handler::Kept kept = w.handler.Next();
  idle.Get("/echo");
  CHECK(idle.Read().status == 200);
  CHECK_FALSE(w.server->AwaitIdle(absl::ZeroDuration()));
  w.server->Drain();
  kept.reply->Send({});
  CHECK(waiting.Read().status == 200);
  CHECK(w.server->AwaitIdle(absl::Hours(1)));
  idle.Get("/echo");
  CHECK(idle.Read().headers["connection"] == "close");
  CHECK(idle.AtEnd());
  streaming.Get("/wait");
  const Handler::Kept cut = w.handler.Next();
  cut.reply->Begin({});
  w.server->Stop();
  CHECK(w.handler.NextGone() == Gone::kLeft);
  cut.reply->Write("nobody reads this");
}

TEST_CASE("HttpServer returns an error when the address is in use") {
  World w;
  HttpOptions options;
  options.listen = w.server->address();
  const auto second = HttpServer::Start(options, w.handler);
  CHECK(absl::IsUnavailable(second.status()));
  CHECK(std::string(second.status().message()).find(w.server->address()) != std::string::npos);
}

}  // namespace
}  // namespace baton
