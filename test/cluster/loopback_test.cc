// Tests of programs without options that open addresses. Only this machine can reach their sockets,
// including UCX's.
#include "base/loopback.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "catch.h"
#include "listening.h"
#include "node/options.h"
#include "programs.h"

namespace baton {
namespace {

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
