// Compressed bodies, and empty lines before requests.
#include <string>

#include "absl/strings/str_cat.h"
#include "compressed.h"
#include "http_world.h"

namespace baton {
namespace {

std::string PostOf(const std::string& encoding, const std::string& body) {
  return absl::StrCat("POST /echo HTTP/1.1\r\nHost: x\r\n", encoding, "Content-Length: ", body.size(), "\r\n\r\n",
                      body);
}

TEST_CASE("HttpServer decodes bodies of gzip and deflate") {
  World w([](HttpOptions& o) { o.max_body_bytes = 100'000; });
  const std::string text(90'000, 'x');
  HttpClient client = w.Client();
  client.Send(PostOf("Content-Encoding: gzip\r\n", Compressed(text, kGzipBits)));
  CHECK(client.Read().body == text);
  client.Send(PostOf("content-encoding: Deflate\r\n", Compressed("short", kZlibBits)));
  CHECK(client.Read().body == "short");
  // The next request of the connection is not encoded.
  client.Post("/echo", "plain");
  CHECK(client.Read().body == "plain");
  const std::string gzip = Compressed("chunks", kGzipBits);
  client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (const char byte : gzip) client.Send(absl::StrCat("1\r\n", std::string(1, byte), "\r\n"));
  client.Send("0\r\n\r\n");
  CHECK(client.Read().body == "chunks");
  // A request without a body has nothing to decode.
  client.Send("GET /echo HTTP/1.1\r\nHost: x\r\nContent-Encoding: br\r\n\r\n");
  CHECK(client.Read().status == 200);
}

TEST_CASE("HttpServer refuses encoded bodies that it cannot decode") {
  World w([](HttpOptions& o) { o.max_body_bytes = 100'000; });
  const std::string gzip = "Content-Encoding: gzip\r\n", bytes = Compressed("text", kGzipBits);
  CHECK(Exchange(w, PostOf(gzip, "not gzip")).status == 400);
  CHECK(Exchange(w, PostOf(gzip, bytes.substr(0, bytes.size() - 1))).status == 400);
  CHECK(Exchange(w, PostOf(gzip, bytes + "x")).status == 400);
  // A bomb: 10 KB that decode to 10 MB.
  CHECK(Exchange(w, PostOf(gzip, Compressed(std::string(10 << 20, '\0'), kGzipBits))).status == 413);
  for (const char* encoding : {"br", "zstd", "gzip, gzip", "deflate, gzip", "aws-chunked"}) {
    HttpAnswer answer = Exchange(w, PostOf(absl::StrCat("Content-Encoding: ", encoding, "\r\n"), bytes));
    CHECK(answer.status == 415);
    CHECK(answer.headers["accept-encoding"] == "gzip, deflate");
    CHECK(answer.body.find(encoding) != std::string::npos);
  }
  CHECK(Exchange(w, PostOf(gzip + gzip, bytes)).status == 415);
  // The refusal comes before the client sends its body.
  CHECK(Exchange(w,
                 "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Encoding: br\r\nExpect: 100-continue\r\n"
                 "Content-Length: 9\r\n\r\n")
            .status == 415);
}

TEST_CASE("Decoded bytes count in the memory for bodies") {
  World w([](HttpOptions& o) { o.max_bodies_bytes = 300'000; });
  const std::string gzip = "Content-Encoding: gzip\r\n";
  CHECK(Exchange(w, PostOf(gzip, Compressed(std::string(100'000, 'x'), kGzipBits))).status == 200);
  CHECK(Exchange(w, PostOf(gzip, Compressed(std::string(400'000, 'x'), kGzipBits))).status == 503);
}

TEST_CASE("HttpServer ignores a few empty lines before a request") {
  World w;
  HttpClient client = w.Client();
  client.Send("\r\nGET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
  CHECK(client.Read().status == 200);
  // Some clients send an empty line after a body.
  client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na\r\n");
  CHECK(client.Read().body == "a");
  client.Send("\r\n\r");
  client.Send("\nGET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
  CHECK(client.Read().status == 200);
  std::string lines;
  for (int i = 0; i < 100; ++i) lines += "\r\n";
  CHECK(Exchange(w, lines + "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n").status == 400);
  CHECK(Exchange(w, "\r\rGET /echo HTTP/1.1\r\nHost: x\r\n\r\n").status == 400);
  CHECK(Exchange(w, "\r\n GET /echo HTTP/1.1\r\nHost: x\r\n\r\n").status == 400);
}

TEST_CASE("Empty lines do not extend the time for a request") {
  World w([](HttpOptions& o) { o.header_timeout = absl::Milliseconds(300); });
  HttpClient client = w.Client();
  client.Send("\r\n\r\n");
  CHECK(client.AtEnd());
}

}  // namespace
}  // namespace baton
