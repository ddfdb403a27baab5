// Tests of access to real processes: keys, certificates, and configurations with which a program
// refuses to start. Without options, programs open loopback addresses only.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/loopback.h"
#include "base/strings.h"
#include "catch.h"
#include "certificates.h"
#include "frontend/api_keys.h"
#include "http_client.h"
#include "listening.h"
#include "node/options.h"
#include "programs.h"
#include "rpc/tls.h"
#include "temp_dir.h"

namespace baton {
namespace {

std::string FileOf(const NewKey& key) { return "[team]\nkeys = [\"" + key.hash + "\"]\n"; }

int StatusOf(const std::string& http, const NewKey& key) {
  HttpClient client(http);
  client.Send("GET /v1/models HTTP/1.1\r\nHost: localhost\r\nauthorization: Bearer " + key.key + "\r\n\r\n");
  return client.Read().status;
}

std::vector<std::string> With(std::vector<std::string> arguments, const TlsFiles& peer) {
  for (const std::string& word : {std::string("--peer-cert"), peer.certificate, std::string("--peer-key"), peer.key,
                                  std::string("--peer-ca"), peer.authority}) {
    arguments.push_back(word);
  }
  return arguments;
}

std::vector<std::string> RouterOf(const Worker& prefill, const Worker& decode) {
  return {"--listen",          "127.0.0.1:0",   "--http",           "off",         "--model", kModel,
          "--prefill-workers", prefill.address, "--decode-workers", decode.address};
}

TEST_CASE("SIGHUP reloads keys and keeps the old ones when the file is wrong") {
  TempDir directory;
  const NewKey first = DrawKey(), second = DrawKey();
  directory.Write("keys.toml", FileOf(first));
  Process serve(
      "baton", Small({"serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--keys", directory / "keys.toml"}));
  serve.Await("listening on ");
  const std::string http = serve.Await("HTTP on http://");
  CHECK(StatusOf(http, first) == 200);
  CHECK(StatusOf(http, second) == 401);

  directory.Write("keys.toml", FileOf(second));
  serve.Signal(SIGHUP);
  serve.Await("reloaded the keys");
  CHECK(StatusOf(http, first) == 401);
  CHECK(StatusOf(http, second) == 200);

  directory.Write("keys.toml", "[team]\n");
  serve.Signal(SIGHUP);
  CHECK(absl::StrContains(serve.Await("keeping the old keys: "), "tenant 'team' has no keys"));
  CHECK(StatusOf(http, second) == 200);
  serve.Signal(SIGTERM);
  CHECK(serve.Wait() == 0);
  for (const NewKey& key : {first, second}) {
    CHECK_FALSE(absl::StrContains(serve.Output(), key.key));
    CHECK_FALSE(absl::StrContains(serve.Output(), key.hash.substr(16)));
  }
}

TEST_CASE("SIGHUP reloads a router's workers and keeps the old ones on a wrong file") {
  TempDir directory;
  const auto name_decode = [&](const std::string& address) {
    directory.Write("router.toml", absl::StrCat("decode-workers = [\"", address, "\"]\n"));
  };
  Worker prefill("prefill"), decode("decode");
  name_decode("127.0.0.1:1");
  Process router("baton-router", {"--listen", "127.0.0.1:0", "--http", "off", "--model", kModel, "--prefill-workers",
                                  prefill.address, "--config", directory / "router.toml"});
  router.Await("listening on ");
  directory.Write("router.toml", "decode-workers = 7\n");
  router.Signal(SIGHUP);
  CHECK(absl::StrContains(router.Await("keeping the old workers: "), "decode-workers"));
  name_decode(decode.address);
  router.Signal(SIGHUP);
  router.Await("reloaded the workers: ");
  router.Await("serving");
  router.Signal(SIGTERM);
  CHECK(router.Wait() == 0);
}

TEST_CASE("A program logs a warning when --open lets any client call it") {
  Process open("baton-router", {"--listen", "127.0.0.1:0", "--http", "off", "--model", kModel, "--prefill-workers",
                                "127.0.0.1:1", "--decode-workers", "127.0.0.1:2", "--open"});
  open.Await("listening on ");
  CHECK(absl::StrContains(open.Output(), "--open: without keys or certificates, any client that reaches"));
}

TEST_CASE("Processes with certificates of one authority serve and refuse other peers") {
  Authority ours("ours"), others("others");
  Worker prefill("prefill", With(Small({"--listen", "127.0.0.1:0"}), ours.Issue("prefill")));
  Worker decode("decode", With(Small({"--listen", "127.0.0.1:0"}), ours.Issue("decode")));
  Process router("baton-router", With(RouterOf(prefill, decode), ours.Issue("router")));
  const auto stub = v1::Inference::NewStub(DialTcp(router.Await("listening on ")));
  for (const Worker* worker : {&prefill, &decode}) {
    router.Await(absl::StrCat("worker ", worker->address, ": attached"));
  }
  Call call(*stub, MakeRequest(8));
  const absl::Status status = call.Finish();
  INFO(Message(status));
  CHECK(status.ok());
  CHECK(call.ids.size() == 8);

  for (const bool certified : {true, false}) {
    INFO("with a certificate of another authority: " << certified);
    std::vector<std::string> arguments = RouterOf(prefill, decode);
    Process stranger("baton-router", certified ? With(arguments, others.Issue("router")) : arguments);
    const auto strange = v1::Inference::NewStub(DialTcp(stranger.Await("listening on ")));
    Call refused(*strange, MakeRequest(8));
    CHECK(absl::IsUnavailable(refused.Finish()));
    CHECK_FALSE(absl::StrContains(stranger.Output(), ": attached"));
  }
}

TEST_CASE("Clients and the command line reach a router by its certificate") {
  Authority ours("ours");
  const TlsFiles files = ours.Issue("router");
  TempDir directory;
  const NewKey key = DrawKey();
  directory.Write("keys.toml", FileOf(key) + "operator = true\n");
  Process serve("baton", Small({"serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--tls-cert",
                                files.certificate, "--tls-key", files.key, "--keys", directory / "keys.toml"}));
  const std::string http = serve.Await("HTTP on https://");
  HttpClient client(http, 0, ours.ClientContext().get());
  CHECK(client.encrypted());
  client.Send("GET /v1/models HTTP/1.1\r\nHost: localhost\r\nauthorization: Bearer " + key.key + "\r\n\r\n");
  CHECK(client.Read().status == 200);
  CHECK(StatusOf(http, key) == 400);  // not encrypted
  const std::string address = serve.Await("listening on ");
  Process status("baton", {"status", "--server", address, "--tls-ca", files.authority, "--key", key.key});
  CHECK(status.Wait() == 0);
  CHECK(absl::StrContains(status.Output(), "live requests"));
  Process stranger("baton", {"status", "--server", address, "--tls-ca", files.authority});
  CHECK(stranger.Wait() == 1);
  CHECK(absl::StrContains(stranger.Output(), "expected an API key"));
  Process plain("baton", {"status", "--server", address, "--key", key.key});
  CHECK(plain.Wait() == 1);
}

TEST_CASE("A program refuses to start when other machines could reach it unprotected") {
  for (const auto& [program, arguments] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"baton", Small({"serve", "--listen", "0.0.0.0:0"})},
           {"baton", Small({"serve", "--listen", "127.0.0.1:0", "--http", "0.0.0.0:0"})},
           {"baton-prefill", Small({"--listen", "0.0.0.0:0", "--advertise", "127.0.0.1:7"})}}) {
    Process process(program, arguments);
    CHECK(process.Wait() == 1);
    CHECK(absl::StrContains(process.Output(), "may be reached from other machines"));
  }
}

void CheckLoopbackAlone(const Process& process, size_t at_least) {
  const std::vector<ListeningSocket> sockets = ListeningSockets(process.pid());
  CHECK(sockets.size() >= at_least);
  for (const ListeningSocket& socket : sockets) {
    INFO(socket.address);
    CHECK(socket.loopback);
  }
}

TEST_CASE("IsLoopbackInHex separates loopback from other addresses") {
  CHECK(IsLoopbackInHex("0100007F:1F90"));
  CHECK(IsLoopbackInHex("00000000000000000000000001000000:1F90"));
  CHECK(IsLoopbackInHex("0000000000000000FFFF00000100007F:1F90"));
  for (const char* open : {"00000000:1F90", "00000000000000000000000000000000:1F90", "0100000A:1F90",
                           "0000000000000000FFFF00000100000A:1F90"}) {
    CHECK_FALSE(IsLoopbackInHex(open));
  }
}

TEST_CASE("ListeningSockets finds UDP sockets without a fixed peer") {
  const int open = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  REQUIRE(open >= 0);
  sockaddr_in any{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {INADDR_ANY}, .sin_zero = {}};
  const auto* address = reinterpret_cast<const sockaddr*>(&any);
  REQUIRE(bind(open, address, sizeof(any)) == 0);
  const auto not_loopback = [] {
    const auto sockets = ListeningSockets(getpid());
    return std::count_if(sockets.begin(), sockets.end(),
                         [](const ListeningSocket& socket) { return !socket.loopback; });
  };
  const auto before = not_loopback();
  close(open);
  CHECK(not_loopback() == before - 1);
}

TEST_CASE("Programs without addresses listen only on loopback") {
  const RouterOptions defaults;
  for (const std::string& listen : {defaults.listen, defaults.http, defaults.common.metrics}) CHECK(IsLoopback(listen));
  const std::vector<std::string> small = Small({});
  const Worker prefill("prefill", small), decode("decode", small);
  CheckLoopbackAlone(prefill.process, 3);  // gRPC, metrics and UCX
  CheckLoopbackAlone(decode.process, 3);
  // The default ports may be taken.
  const std::vector<std::string> free = {"--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--model", kModel};
  std::vector<std::string> routing = free,
                           serving = {"serve",       kModel,      "--listen", "127.0.0.1:0",    "--http",
                                      "127.0.0.1:0", "--threads", "1",        "--kv-memory-mb", "8"};
  for (const std::string& word :
       {std::string("--prefill-workers"), prefill.address, std::string("--decode-workers"), decode.address}) {
    routing.push_back(word);
  }
  Process router("baton-router", routing), serve("baton", serving);
  router.Await("serving");
  serve.Await("serving");
  CheckLoopbackAlone(router, 3);  // gRPC, HTTP and metrics
  CheckLoopbackAlone(serve, 3);
}

}  // namespace
}  // namespace baton
