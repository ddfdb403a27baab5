// Ciphertext that is cut at any byte gives the same plaintext. Changed ciphertext gives no wrong
// plaintext.
#include "frontend/http/tls_session.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <random>

#include "catch.h"
#include "certificates.h"
#include "frontend/http/tls_certificate.h"
#include "seeds.h"

namespace baton {
namespace {

// OpenSSL's client over memory.
class Client {
 public:
  explicit Client(SSL_CTX* context) : tls_(SSL_new(context), SSL_free) {
    SSL_set_bio(tls_.get(), in_, out_);
    SSL_set_connect_state(tls_.get());
  }
  // Returns the bytes that the client sends for the handshake and then, once, for `plaintext`.
  std::string Bytes(std::string& plaintext) {
    ERR_clear_error();
    if (SSL_do_handshake(tls_.get()) == 1 && !plaintext.empty()) {
      SSL_write(tls_.get(), plaintext.data(), static_cast<int>(plaintext.size()));
      plaintext.clear();
    }
    std::string bytes(BIO_pending(out_), '\0');
    if (!bytes.empty()) BIO_read(out_, bytes.data(), static_cast<int>(bytes.size()));
    return bytes;
  }
  // Requests new keys `times` times.
  void UpdateKeys(int times) {
    while (times-- > 0) {
      REQUIRE(SSL_key_update(tls_.get(), SSL_KEY_UPDATE_REQUESTED) == 1);
      REQUIRE(SSL_do_handshake(tls_.get()) == 1);
    }
  }
  std::string Read(std::string_view bytes) {
    BIO_write(in_, bytes.data(), static_cast<int>(bytes.size()));
    std::string plaintext;
    char part[1000];
    ERR_clear_error();
    for (int n; (n = SSL_read(tls_.get(), part, sizeof part)) > 0;) plaintext.append(part, static_cast<size_t>(n));
    return plaintext;
  }

 private:
  BIO* in_ = BIO_new(BIO_s_mem());  // owned by tls_
  BIO* out_ = BIO_new(BIO_s_mem());
  std::unique_ptr<SSL, void (*)(SSL*)> tls_;
};

struct TlsWorld {
  Authority authority{"ours"};
  std::shared_ptr<SSL_CTX> server_context;
  std::shared_ptr<SSL_CTX> client_context = authority.ClientContext();

  TlsWorld() {
    const TlsFiles files = authority.Issue("server");
    server_context = TlsCertificate::Load({files.certificate, files.key}).value()->context();
  }
};

std::string Drawn(std::mt19937& random, size_t size) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// Passes the bytes of each side to the other, cut at random, until neither has more. The result has
// the plaintext that each side received.
struct Talk {
  std::string at_server, at_client;
  bool refused = false;
};
Talk Converse(TlsWorld& w, std::mt19937& random, const std::string& question, const std::string& answer, bool changed) {
  TlsSession server(w.server_context.get());
  Client client(w.client_context.get());
  Talk talk;
  std::string to_ask = question, to_answer = answer;
  const size_t most = 1 + random() % 3000;
  for (int silent = 0; silent < 3; ++silent) {
    std::string bytes = client.Bytes(to_ask);
    if (changed && !bytes.empty() && random() % 3 == 0)
      bytes[random() % bytes.size()] ^= static_cast<char>(1 + random() % 255);
    if (!bytes.empty()) silent = 0;
    while (!bytes.empty()) {
      const size_t cut = std::min(bytes.size(), 1 + random() % most);
      if (!server.Receive(bytes.substr(0, cut), talk.at_server).ok()) {
        talk.refused = true;
        CHECK_FALSE(server.Close());
        return talk;
      }
      bytes.erase(0, cut);
    }
    if (server.established() && talk.at_server.size() == question.size() && !to_answer.empty()) {
      const size_t cut = std::min(to_answer.size(), 1 + random() % 50'000);
      server.Send(std::string_view(to_answer).substr(0, cut));
      to_answer.erase(0, cut);
    }
    while (!server.outgoing().empty()) {
      silent = 0;
      const std::string part(server.outgoing().substr(0, 1 + random() % most));
      server.Sent(part.size());
      talk.at_client += client.Read(part);
    }
  }
  return talk;
}

TEST_CASE("The plaintext is the same for every split of the ciphertext") {
  TlsWorld w;
  ForEachSeed(40, [&](uint64_t seed) {
    std::mt19937 random(seed);
    const std::string question = Drawn(random, 1 + random() % 60'000), answer = Drawn(random, random() % 200'000);
    const Talk talk = Converse(w, random, question, answer, /*changed=*/false);
    CHECK_FALSE(talk.refused);
    CHECK((talk.at_server == question));
    CHECK((talk.at_client == answer));
  });
}

TEST_CASE("TlsSession refuses changed ciphertext and yields no wrong plaintext") {
  TlsWorld w;
  int refused = 0;
  const Seeds seeds = ForEachSeed(300, [&](uint64_t seed) {
    std::mt19937 random(seed);
    const std::string question = Drawn(random, 1 + random() % 40'000);
    const Talk talk = Converse(w, random, question, "answer", /*changed=*/true);
    refused += talk.refused;
    CHECK((question.starts_with(talk.at_server)));
  });
  if (seeds.all()) CHECK(refused > 100);
}

// Runs the handshake until both sides have completed it.
void Agree(TlsSession& server, Client& client) {
  std::string nothing, plaintext;
  for (int i = 0; i < 3; ++i) {
    REQUIRE(server.Receive(client.Bytes(nothing), plaintext).ok());
    client.Read(server.outgoing());
    server.Sent(server.outgoing().size());
  }
  REQUIRE(server.established());
}

TEST_CASE("Idle bytes count from the last plaintext, also within one input") {
  TlsWorld w;
  TlsSession server(w.server_context.get());
  Client client(w.client_context.get());
  Agree(server, client);
  std::string nothing, question = "question", plaintext;
  const auto updates = [&] {
    client.UpdateKeys(1500);  // about 40 kB
    return client.Bytes(nothing);
  };
  const std::string before = updates(), something = client.Bytes(question), after = updates();
  CHECK(server.Receive(before + something + after, plaintext).ok());
  CHECK(plaintext == "question");
  CHECK_FALSE(server.Receive(updates(), plaintext).ok());
}

TEST_CASE("A record that arrives in parts is not idle input") {
  TlsWorld w;
  TlsSession server(w.server_context.get());
  Client client(w.client_context.get());
  Agree(server, client);
  std::string plaintext;
  const std::string body(150'000, 'x');
  std::string question = body;
  std::string_view bytes;
  const std::string sent = client.Bytes(question);
  bytes = sent;
  for (const size_t cut : {size_t{16'000}, size_t{64} << 10, sent.size()}) {
    CHECK(server.Receive(bytes.substr(0, cut), plaintext).ok());
    bytes.remove_prefix(std::min(cut, bytes.size()));
  }
  CHECK((plaintext == body));
}

// A client context whose hello has about `bytes` more bytes.
std::shared_ptr<SSL_CTX> Verbose(const TlsWorld& w, size_t bytes) {
  std::string protocols = "\x08http/1.1";
  while (protocols.size() < bytes) protocols += '\xff' + std::string(255, 'x');
  const auto context = w.authority.ClientContext();
  SSL_CTX_set_alpn_protos(context.get(), reinterpret_cast<const unsigned char*>(protocols.data()),
                          static_cast<unsigned>(protocols.size()));
  return context;
}

std::string Handshake(std::string_view content) {
  return std::string{22, 3, 1, 0, static_cast<char>(content.size())} + std::string(content);
}

TEST_CASE("TlsSession refuses a hello that announces too much before it takes memory") {
  TlsWorld w;
  const std::string alert("\x15\x03\x03\x00\x02\x02\x2f", 7), most("\1\0\x40\0", 4), more("\1\0\x40\1", 4);
  std::string plaintext;
  const auto refuses = [&](TlsSession& server, const std::string& bytes) {
    const bool refused = !server.Receive(bytes, plaintext).ok();
    if (refused) CHECK(server.outgoing().ends_with(alert));
    return refused;
  };
  SECTION("the announced length arrives in one record") {
    CHECK(refuses(*std::make_unique<TlsSession>(w.server_context.get()), Handshake(more)));
    CHECK_FALSE(refuses(*std::make_unique<TlsSession>(w.server_context.get()), Handshake(most)));
  }
  SECTION("the announced length arrives in records of one byte") {
    TlsSession server(w.server_context.get());
    std::string bytes;
    for (const char byte : more) bytes += Handshake(std::string(1, byte));
    for (const char byte : bytes.substr(0, bytes.size() - 1)) CHECK_FALSE(refuses(server, std::string(1, byte)));
    CHECK(refuses(server, bytes.substr(bytes.size() - 1)));
  }
  SECTION("a hello with many extensions is accepted up to the limit") {
    for (const auto& [bytes, fine] : {std::pair(14'000, true), std::pair(17'000, false)}) {
      const auto context = Verbose(w, static_cast<size_t>(bytes));
      TlsSession server(w.server_context.get());
      Client client(context.get());
      std::string nothing;
      CHECK(refuses(server, client.Bytes(nothing)) != fine);
      if (!fine) continue;
      client.Read(server.outgoing());
      CHECK_FALSE(refuses(server, client.Bytes(nothing)));
      CHECK(server.established());
    }
  }
  SECTION("the second hello, after a request for another key, has the same limit") {
    SSL_CTX_set1_groups_list(w.server_context.get(), "P-256");
    SSL_CTX_set1_groups_list(w.client_context.get(), "X25519:P-256");
    const bool long_second = GENERATE(true, false);
    TlsSession server(w.server_context.get());
    Client client(w.client_context.get());
    std::string nothing;
    CHECK_FALSE(refuses(server, client.Bytes(nothing)));
    CHECK_FALSE(server.outgoing().empty());
    client.Read(server.outgoing());
    server.Sent(server.outgoing().size());
    if (long_second) {
      CHECK(refuses(server, Handshake(more)));
      return;
    }
    CHECK_FALSE(refuses(server, client.Bytes(nothing)));
    client.Read(server.outgoing());
    CHECK_FALSE(refuses(server, client.Bytes(nothing)));
    CHECK(server.established());
  }
}

TEST_CASE("TlsSession sends close_notify once and still receives input") {
  TlsWorld w;
  TlsSession server(w.server_context.get());
  Client client(w.client_context.get());
  CHECK_FALSE(server.begun());
  CHECK_FALSE(server.Close());
  std::string question(1, 'a'), plaintext;
  for (int i = 0; i < 4; ++i) {
    REQUIRE(server.Receive(client.Bytes(question), plaintext).ok());
    client.Read(server.outgoing());
    server.Sent(server.outgoing().size());
  }
  CHECK(server.established());
  CHECK(server.Close());
  CHECK_FALSE(server.Close());
  question += 'b';
  REQUIRE(server.Receive(client.Bytes(question), plaintext).ok());
  CHECK(plaintext == "ab");
  CHECK_FALSE(server.ended());
}

}  // namespace
}  // namespace baton
