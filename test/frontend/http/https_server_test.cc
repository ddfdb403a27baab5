// TLS of the HTTP server: the handshake, the end of connections, and the renewal of certificates.
// http_server_test.cc tests everything else with and without TLS.
#include <atomic>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "await.h"
#include "base/strings.h"
#include "certificates.h"
#include "frontend/http/http_server.h"
#include "http_client.h"
#include "patient_options.h"
#include "tls_records.h"

namespace baton {
namespace {

class CountingEcho final : public HttpHandler {
 public:
  void OnRequest(HttpRequest request, std::shared_ptr<HttpReply> reply) override {
    ++requests;
    reply->Begin({.status = 200, .headers = {}, .body = std::move(request.body)});
    if (request.path == "/no-end") return;
    reply->End();
  }
  std::optional<HttpResponse> OnHead(HttpRequest&) override { return std::nullopt; }
  HttpResponse Refusal(int status, const std::string& message) override {
    return {.status = status, .headers = {}, .body = message};
  }

  std::atomic<int> requests = 0;
};

struct HttpsWorld {
  Authority authority{"ours"};
  TlsFiles files = authority.Issue("server");
  std::shared_ptr<TlsCertificate> certificate;
  CountingEcho handler;
  std::unique_ptr<HttpServer> server;

  explicit HttpsWorld(const std::function<void(HttpOptions&)>& change = [](HttpOptions&) {}) {
    auto loaded = TlsCertificate::Load({files.certificate, files.key});
    REQUIRE(loaded.ok());
    certificate = *loaded;
    HttpOptions options = PatientOptions();
    options.tls = certificate;
    change(options);
    auto started = HttpServer::Start(options, handler);
    REQUIRE(started.ok());
    server = *std::move(started);
  }
  HttpClient Client(SSL_CTX* context) { return HttpClient(server->address(), 0, context); }
  HttpClient Client() { return Client(authority.ClientContext().get()); }
  HttpClient PlainClient() { return HttpClient(server->address()); }
  void AwaitNoConnection() {
    Await("connections to end", [&] { return server->connections() == 0; });
  }
};

// A client's first message, as OpenSSL writes it.
std::string ClientHello(SSL_CTX* context) {
  const std::unique_ptr<SSL, void (*)(SSL*)> client(SSL_new(context), SSL_free);
  BIO* const out = BIO_new(BIO_s_mem());
  SSL_set_bio(client.get(), BIO_new(BIO_s_mem()), out);
  SSL_connect(client.get());
  char* bytes = nullptr;
  const auto size = BIO_get_mem_data(out, &bytes);
  return std::string(bytes, static_cast<size_t>(size));
}

std::string NameOf(const X509* certificate) {
  char name[64] = "";
  X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name, sizeof name);
  return name;
}
std::string ServerSeenBy(const HttpClient& client) {
  const std::unique_ptr<X509, void (*)(X509*)> certificate(SSL_get1_peer_certificate(client.tls()), X509_free);
  REQUIRE(certificate != nullptr);
  return NameOf(certificate.get());
}

void Copy(const std::string& from, const std::string& to) {
  std::ofstream(to, std::ios::binary) << std::ifstream(from, std::ios::binary).rdbuf();
}

TEST_CASE("HttpServer accepts TLS 1.2 and 1.3 and refuses older versions") {
  HttpsWorld w;
  const auto context = w.authority.ClientContext();
  // Without this, OpenSSL neither offers nor accepts an old version.
  for (SSL_CTX* side : {context.get(), w.certificate->context().get()}) {
    REQUIRE(SSL_CTX_set_cipher_list(side, "DEFAULT@SECLEVEL=0") == 1);
  }
  const auto version_of = [&](int only) {
    SSL_CTX_set_min_proto_version(context.get(), only);
    SSL_CTX_set_max_proto_version(context.get(), only);
    HttpClient client = w.Client(context.get());
    if (!client.encrypted()) return 0;
    client.Post("/", "x");
    CHECK(client.Read().body == "x");
    return SSL_version(client.tls());
  };
  CHECK(version_of(TLS1_3_VERSION) == TLS1_3_VERSION);
  CHECK(version_of(TLS1_2_VERSION) == TLS1_2_VERSION);
  CHECK(version_of(TLS1_1_VERSION) == 0);
  CHECK(version_of(TLS1_VERSION) == 0);
}

TEST_CASE("HttpServer exchanges keys by fast curves only") {
  HttpsWorld w;
  const auto agrees = [&](int version, const std::string& groups, const std::string& ciphers) {
    const auto context = w.authority.ClientContext();
    SSL_CTX_set_min_proto_version(context.get(), version);
    SSL_CTX_set_max_proto_version(context.get(), version);
    REQUIRE(SSL_CTX_set1_groups_list(context.get(), groups.c_str()) == 1);
    REQUIRE(SSL_CTX_set_cipher_list(context.get(), ciphers.c_str()) == 1);
    return w.Client(context.get()).encrypted();
  };
  CHECK_FALSE(agrees(TLS1_3_VERSION, "ffdhe8192", "DEFAULT"));
  CHECK_FALSE(agrees(TLS1_3_VERSION, "ffdhe2048", "DEFAULT"));
  CHECK_FALSE(agrees(TLS1_3_VERSION, "P-521", "DEFAULT"));
  // The server asks for a key of the last group.
  CHECK(agrees(TLS1_3_VERSION, "ffdhe8192:P-521:P-256", "DEFAULT"));
  CHECK(agrees(TLS1_3_VERSION, "X25519", "DEFAULT"));
  CHECK(agrees(TLS1_2_VERSION, "P-256", "DEFAULT"));

  // With RSA, TLS 1.2 has more key exchanges.
  const TlsFiles rsa = w.authority.Issue("rsa", /*rsa=*/true);
  Copy(rsa.certificate, w.files.certificate);
  Copy(rsa.key, w.files.key);
  REQUIRE(w.certificate->Renew().value() == true);
  CHECK(agrees(TLS1_2_VERSION, "P-256", "kECDHE"));
  CHECK_FALSE(agrees(TLS1_2_VERSION, "P-256", "kDHE"));
  CHECK_FALSE(agrees(TLS1_2_VERSION, "P-256", "kRSA"));
}

TEST_CASE("ALPN chooses HTTP/1.1 and refuses clients without it") {
  HttpsWorld w;
  const auto chosen_of = [&](const std::string& offered) -> std::string {
    const auto context = w.authority.ClientContext();
    SSL_CTX_set_alpn_protos(context.get(), reinterpret_cast<const unsigned char*>(offered.data()),
                            static_cast<unsigned>(offered.size()));
    const HttpClient client = w.Client(context.get());
    if (!client.encrypted()) return "none";
    const unsigned char* chosen = nullptr;
    unsigned size = 0;
    SSL_get0_alpn_selected(client.tls(), &chosen, &size);
    return std::string(reinterpret_cast<const char*>(chosen), size);
  };
  CHECK(chosen_of("\x02h2\x08http/1.1") == "http/1.1");
  CHECK(chosen_of("\x02h2") == "none");
  CHECK(w.Client().encrypted());  // this client offers no protocol
}

TEST_CASE("HttpServer serves others when a client does not trust the certificate") {
  HttpsWorld w;
  Authority others("others");
  CHECK_FALSE(w.Client(others.ClientContext().get()).encrypted());
  HttpClient client = w.Client();
  client.Post("/", "x");
  CHECK(client.Read().body == "x");
}

TEST_CASE("HttpServer answers 400 to a client without TLS on an HTTPS port") {
  HttpsWorld w;
  for (const std::string begin : {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "G", "POST /echo HTTP/1.1\r\n"}) {
    HttpClient client = w.PlainClient();
    client.Send(begin);
    HttpAnswer answer = client.Read();
    CHECK(answer.status == 400);
    CHECK(absl::StrContains(answer.body, "https://"));
    CHECK(client.AtEnd());
  }
}

TEST_CASE("Input that is not TLS ends the connection") {
  HttpsWorld w;
  std::string hello = ClientHello(w.authority.ClientContext().get());
  SECTION("the first byte is not TLS") { hello = std::string("\0\1\2\3", 4) + std::string(100, '\xff'); }
  SECTION("the first message contains wrong bytes") { hello.replace(20, 50, std::string(50, '\xff')); }
  SECTION("the first message is followed by bytes that are not TLS") { hello += std::string(100, 'x'); }
  SECTION("a record has an invalid length") { hello[3] = '\xff'; }
  SECTION("the hello announces too great a length") { hello = hello.substr(0, 5) + std::string("\1\1\0\0", 4); }
  HttpClient client = w.PlainClient();
  client.Send(hello);
  CHECK(client.EndsAtLast());
  client.Close();
  w.AwaitNoConnection();
}

TEST_CASE("HttpServer disconnects a client that stalls in the handshake or after it") {
  // On a slow machine, the timeout may end before the server has read the input. The test then
  // repeats with twice the time.
  for (absl::Duration timeout = absl::Milliseconds(300);; timeout *= 2) {
    HttpsWorld w([&](HttpOptions& o) { o.handshake_timeout = o.header_timeout = timeout; });
    const std::string hello = ClientHello(w.authority.ClientContext().get());
    HttpClient silent = w.PlainClient(), stalled = w.PlainClient(), encrypted = w.Client();
    stalled.Send(hello.substr(0, hello.size() / 2));
    CHECK(silent.AtEnd());
    CHECK(stalled.AtEnd());
    if (!encrypted.encrypted()) continue;
    CHECK(encrypted.AtEnd());
    CHECK(encrypted.got_close_notify());
    HttpClient answered = w.PlainClient();  // does not reply to the server's part of the handshake
    answered.Send(hello);
    if (!answered.HasInput()) continue;
    CHECK(answered.EndsAtLast());
    return;
  }
}

TEST_CASE("A TLS client that loses its slot in its handshake gets 503 after it") {
  HttpsWorld w([](HttpOptions& o) { o.max_connections = 1; });
  const auto context = w.authority.ClientContext();
  HttpClient early = w.PlainClient();
  Await("the first connection", [&] { return w.server->connections() == 1; });
  HttpClient late = w.Client(context.get());
  late.Post("/", "x");
  CHECK(late.Read().body == "x");
  early.Encrypt(context.get());
  REQUIRE(early.encrypted());
  CHECK(early.Read().status == 503);
  CHECK(early.AtEnd());
  CHECK(early.got_close_notify());
}

TEST_CASE("A TLS client that loses its slot and stalls in its handshake is disconnected") {
  HttpsWorld w([](HttpOptions& o) {
    o.max_connections = 1;
    o.linger_timeout = absl::ZeroDuration();
  });
  HttpClient silent = w.PlainClient();
  Await("the first connection", [&] { return w.server->connections() == 1; });
  HttpClient late = w.Client();
  CHECK(silent.AtEnd());
  late.Post("/", "x");
  CHECK(late.Read().body == "x");
}

TEST_CASE("A TLS connection waits in the backlog while too many handshakes are under way") {
  std::atomic<int> waiting = 0;
  HttpsWorld w([&](HttpOptions& o) {
    o.max_handshakes = 2;
    o.on_backlog = [&](int backlog) { waiting = backlog; };
  });
  const auto context = w.authority.ClientContext();
  HttpClient begun = w.PlainClient(), silent = w.PlainClient(), next = w.PlainClient();
  Await("a connection to wait", [&] { return waiting == 1; });
  CHECK(w.server->connections() == 2);
  SECTION("a handshake succeeds") { begun.Encrypt(context.get()); }
  SECTION("a client leaves") { begun.Close(); }
  SECTION("a client does not use TLS") { begun.Get("/"); }
  SECTION("a client sends wrong bytes") { begun.Send("\x16\x03\x01\xff\xff"); }
  next.Encrypt(context.get());
  next.Post("/", "x");
  CHECK(next.Read().body == "x");
}

TEST_CASE("HttpServer serves others when clients never finish their handshakes") {
  HttpsWorld w([](HttpOptions& o) {
    o.max_handshakes = 1;
    o.handshake_patience = absl::Milliseconds(1);
  });
  std::vector<HttpClient> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(w.PlainClient());
  HttpClient client = w.Client();
  client.Post("/", "x");
  CHECK(client.Read().body == "x");
}

TEST_CASE("Bodies and answers of many records arrive unchanged") {
  HttpsWorld w;
  HttpClient client = w.Client();
  std::string body;
  for (int i = 0; body.size() < 3u << 20; ++i) body += std::to_string(i);
  for (int i = 0; i < 2; ++i) {
    client.Post("/", body);
    CHECK((client.Read().body == body));
  }
}

TEST_CASE("A client that closes its side without close_notify gets its answer") {
  HttpsWorld w;
  HttpClient whole = w.Client(), part = w.Client();
  whole.Send("GET / HTTP/1.0\r\nContent-Length: 1\r\n\r\nx");
  whole.CutInput();
  CHECK(whole.Read().body == "x");  // to the end of the connection
  CHECK(whole.got_close_notify());
  part.Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx");
  part.CutInput();
  CHECK(part.Read().status == 400);
  CHECK(part.AtEnd());
  CHECK(part.got_close_notify());
}

TEST_CASE("An answer waits for the rest of a split TLS message") {
  // Clients of this test stay open.
  HttpsWorld w([](HttpOptions& o) { o.linger_timeout = absl::ZeroDuration(); });
  const auto context = w.authority.ClientContext();
  const TrafficSecret secret(context.get());
  HttpClient client = w.Client(context.get());
  REQUIRE(client.encrypted());
  REQUIRE_FALSE(secret.client().empty());
  TlsRecords records(secret.client());
  const std::string key_update{24, 0, 0, 1, 0};
  const size_t cut = GENERATE(2, 4);  // within the message's header, and after it
  const std::string request = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nfirst";
  SECTION("the rest of the message arrives") {
    std::string bytes = records.Seal(TlsRecords::kData, request);
    bytes += records.Seal(TlsRecords::kHandshake, key_update.substr(0, cut));
    // In one write, so that the answer is there before the rest of the message.
    client.SendRaw(bytes);
    Await("the request", [&] { return w.handler.requests > 0; });
    client.SendRaw(records.Seal(TlsRecords::kHandshake, key_update.substr(cut)));
    CHECK(client.Read().body == "first");
    records.UpdateKeys();
    client.SendRaw(records.Seal(TlsRecords::kData, request));
    CHECK(client.Read().body == "first");
  }
  SECTION("too many requests arrive instead of the rest of the message") {
    std::string many;
    for (int i = 0; i < 3; ++i) many += records.Seal(TlsRecords::kData, request + std::string(8000, '\n'));
    many += records.Seal(TlsRecords::kHandshake, key_update.substr(0, cut));
    client.SendRaw(many);
    // Inside the message, which is an error.
    client.SendRaw(records.Seal(TlsRecords::kData, request));
    w.AwaitNoConnection();
  }
  SECTION("the client ends its side before the rest of the message") {
    client.SendRaw(records.Seal(TlsRecords::kData, request));
    CHECK(client.Read().body == "first");  // the next input therefore arrives after the handshake
    std::string bytes = records.Seal(TlsRecords::kData, request);
    bytes += records.Seal(TlsRecords::kHandshake, key_update.substr(0, cut));
    client.SendRaw(bytes);
    client.CutInput();
    w.AwaitNoConnection();
  }
}

TEST_CASE("Too many bytes without data end the connection") {
  // This client does not read the end.
  HttpsWorld w([](HttpOptions& o) { o.linger_timeout = absl::ZeroDuration(); });
  HttpClient client = w.Client();
  REQUIRE(client.encrypted());
  while (client.UpdateKeys()) continue;
  w.AwaitNoConnection();
}

TEST_CASE("HttpServer disconnects a client that requests keys forever without reading") {
  HttpsWorld w;
  const auto context = w.authority.ClientContext();
  HttpClient client = HttpClient(w.server->address(), /*receive_buffer=*/4096, context.get());
  REQUIRE(client.encrypted());
  client.Send("GET / HTTP/1.1\r\nHost: x\r\nX: ");
  int updates = 0;
  // So that some messages carry plaintext.
  const auto next = [&] { return updates % 1000 != 0 || client.Send("x"); };
  while (next() && client.UpdateKeys()) ++updates;
  w.AwaitNoConnection();
}

TEST_CASE("HttpServer resumes no TLS session") {
  HttpsWorld w;
  for (const int only : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    const auto context = w.authority.ClientContext();
    SSL_CTX_set_min_proto_version(context.get(), only);
    SSL_CTX_set_max_proto_version(context.get(), only);
    HttpClient client = w.Client(context.get());
    client.Post("/", "x");
    CHECK(client.Read().body == "x");
    CHECK(SSL_SESSION_is_resumable(SSL_get_session(client.tls())) == 0);
  }
}

TEST_CASE("A truncated answer has no close_notify") {
  HttpsWorld w;
  HttpClient cut = w.Client(), idle = w.Client();
  cut.Send("POST /no-end HTTP/1.0\r\nContent-Length: 1\r\n\r\nx");
  CHECK(cut.ReadHead().status == 200);
  w.server->Stop();
  CHECK(cut.EndsAtLast());
  CHECK_FALSE(cut.got_close_notify());
  CHECK(idle.EndsAtLast());
  CHECK(idle.got_close_notify());
}

TEST_CASE("A body that ends in invalid TLS returns its budget") {
  HttpsWorld w([](HttpOptions& o) { o.max_bodies_bytes = 100'000; });
  HttpClient broken = w.Client(), other = w.Client();
  const std::string body(80'000, 'x');
  broken.Send(absl::StrCat("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 90000\r\n\r\n", body));
  broken.SendRaw("no record");
  CHECK(broken.EndsAtLast());
  other.Post("/", body);
  CHECK(other.Read().status == 200);
}

TEST_CASE("HttpServer uses a renewed certificate for new connections unless it is invalid") {
  HttpsWorld w;
  HttpClient before = w.Client();
  CHECK(ServerSeenBy(before) == "server");
  CHECK(w.certificate->Renew().value() == false);

  const TlsFiles renewed = w.authority.Issue("renewed");
  Copy(renewed.certificate, w.files.certificate);  // the new certificate without its key
  const auto refused = w.certificate->Renew();
  CHECK(absl::IsInvalidArgument(refused.status()));
  CHECK(absl::StrContains(ToAbsl(Message(refused.status())), w.files.key));
  CHECK(w.certificate->Renew().value() == false);  // the same change is reported once
  CHECK(ServerSeenBy(w.Client()) == "server");

  Copy(renewed.key, w.files.key);
  CHECK(w.certificate->Renew().value() == true);
  CHECK(ServerSeenBy(w.Client()) == "renewed");
  before.Post("/", "x");
  CHECK(before.Read().body == "x");

  const TlsFiles other_kind = w.authority.Issue("rsa", /*rsa=*/true);
  Copy(other_kind.certificate, w.files.certificate);
  CHECK(absl::StrContains(ToAbsl(Message(w.certificate->Renew().status())), w.files.key));
  CHECK(ServerSeenBy(w.Client()) == "renewed");

  std::ofstream(w.files.certificate) << "no certificate";
  CHECK(absl::StrContains(ToAbsl(Message(w.certificate->Renew().status())), "expected certificates in PEM"));
  std::remove(w.files.certificate.c_str());
  CHECK(absl::StrContains(ToAbsl(Message(w.certificate->Renew().status())), "cannot be read"));
  CHECK(ServerSeenBy(w.Client()) == "renewed");
}

}  // namespace
}  // namespace baton
