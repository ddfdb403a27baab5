// Malformed requests, cut at any byte. The server must continue to serve.
#include <array>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "await.h"
#include "compressed.h"
#include "frontend/http/http_server.h"
#include "http_client.h"
#include "patient_options.h"
#include "seeds.h"

namespace baton {
namespace {

class Echo final : public HttpHandler {
 public:
  void OnRequest(HttpRequest request, std::shared_ptr<HttpReply> reply) override {
    reply->Send({.status = 200, .headers = {}, .body = std::move(request.body)});
  }
  std::optional<HttpResponse> OnHead(HttpRequest&) override { return std::nullopt; }
  HttpResponse Refusal(int status, const std::string& message) override {
    return {.status = status, .headers = {}, .body = message};
  }
};

std::vector<std::string> WholeRequests() {
  return {
      "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n",
      "GET /echo HTTP/1.0\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1;a=\"b\"\r\nx\r\n0\r\na: "
      "b\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
      absl::StrCat("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: ",
                   Compressed("hello", kGzipBits).size(), "\r\n\r\n", Compressed("hello", kGzipBits)),
  };
}
const std::vector<std::string> kPieces = {"\r\n",
                                          "\r",
                                          "\n",
                                          "0",
                                          "5",
                                          "F",
                                          "0\r\n",
                                          "\r\n\r\n",
                                          ";",
                                          " ",
                                          "\t",
                                          "x=y",
                                          ": ",
                                          "a: b\r\n",
                                          "5\r\nhello\r\n",
                                          "0\r\n\r\n",
                                          "Transfer-Encoding: chunked\r\n",
                                          "Content-Length: 5\r\n",
                                          "\"",
                                          "=",
                                          "\r\n ",
                                          "Connection: close\r\n",
                                          "Content-Encoding: deflate\r\n",
                                          std::string(1, '\0'),
                                          "1;a=\"",
                                          "ffffffffffffffff",
                                          "\xff",
                                          "POST /echo HTTP/1.1\r\n",
                                          std::string(300, 'y')};

std::string Mutated(const std::vector<std::string>& whole, std::mt19937& random) {
  const auto below = [&](size_t n) { return random() % n; };
  std::string bytes;
  for (size_t n = 1 + below(2); n > 0; --n) bytes += whole[below(whole.size())];
  for (size_t n = below(4); n > 0 && !bytes.empty(); --n) {
    const size_t at = below(bytes.size());
    switch (below(4)) {
      case 0:
        bytes[at] = static_cast<char>(below(256));
        break;
      case 1:
        bytes.erase(at, 1 + below(6));
        break;
      case 2:
        bytes.resize(at);
        break;
      default:
        bytes.insert(at, kPieces[below(kPieces.size())]);
    }
  }
  return bytes;
}

TEST_CASE("The server answers after malformed input") {
  ForEachSeed(1, [](uint64_t seed) {
    std::mt19937 random(seed);
    const std::vector<std::string> whole = WholeRequests();
    // The sizes of reads cut requests at any byte, as a network would.
    constexpr std::array<size_t, 6> kReads = {1, 2, 3, 7, 31, size_t{64} << 10};
    Echo handler;
    std::vector<std::unique_ptr<HttpServer>> servers;
    for (const size_t size : kReads) {
      HttpOptions options = PatientOptions();  // only the client's input may end its connection
      options.max_read_bytes = size;
      options.max_body_bytes = 1000;
      options.threads = 1;
      auto started = HttpServer::Start(options, handler);
      REQUIRE(started.ok());
      servers.push_back(*std::move(started));
    }
    const auto answered_well = [](HttpServer& server) {
      HttpClient client(server.address());
      client.Post("/echo", "good");
      return client.Read().body == "good";
    };
    for (int i = 0; i < 10'000; ++i) {
      const std::string bytes = Mutated(whole, random);
      INFO("request " << i << ": " << bytes);
      HttpServer& server = *servers[static_cast<size_t>(i) % servers.size()];
      HttpClient client(server.address());
      const size_t cut = random() % (bytes.size() + 1);
      client.Send(bytes.substr(0, cut));
      client.Send(bytes.substr(cut));
      client.EndInput();
      // To the end of the connection; bodies are too short to contain a head.
      while (client.ReadHead().status != 0) continue;
      if (i % 100 == 0) REQUIRE(answered_well(server));
    }
    for (const auto& server : servers) {
      CHECK(answered_well(*server));
      Await("connections to end", [&] { return server->connections() == 0; });
    }
  });
}

}  // namespace
}  // namespace baton
