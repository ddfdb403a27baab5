// Workers that etcd names, against an etcd that does what real ones do seldom; test/cluster/etcd_test.cc has a real
// one.
#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/strings.h"
#include "catch.h"
#include "certificates.h"
#include "fake_etcd.h"
#include "fake_worker.h"
#include "server/etcd_registration.h"
#include "server/live_membership.h"

namespace baton {
namespace {

using Kind = WorkerName::Kind;
using Addresses = std::vector<WorkerAddress>;

template <class Condition>
bool Await(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

// What a router that has the decode workers under /decode is told.
struct Told {
  std::mutex mutex;
  Addresses workers;  // guarded by mutex
  std::unique_ptr<LiveMembership> membership;

  explicit Told(std::vector<std::string> servers, TlsFiles tls = {}) {
    const EtcdOptions etcd{std::move(servers), std::move(tls)};
    membership = LiveMembership::Start({{}, {{Kind::kEtcd, "/decode/"}}, "", std::chrono::hours(1), etcd},
                                       [this](WorkerRole role, const Addresses& addresses) {
                                         const std::lock_guard lock(mutex);
                                         if (role == WorkerRole::kDecode) workers = addresses;
                                       })
                     .value();
  }
  bool Has(const Addresses& expected) {
    const std::lock_guard lock(mutex);
    return workers == expected;
  }
  bool AwaitWorkers(const Addresses& expected) {
    return Await([&] { return Has(expected); });
  }
};

// Waits until the fake was asked so many times more.
bool AwaitReads(const FakeEtcd& etcd, int more) {
  return Await([&, wanted = etcd.reads() + more] { return etcd.reads() >= wanted; });
}

TEST_CASE("workers may be named by a prefix of etcd's keys") {
  const WorkerName name = ParseWorkerName("etcd:/baton/decode").value();
  CHECK(name.kind == Kind::kEtcd);
  CHECK(name.name == "/baton/decode/");
  CHECK(ParseWorkerName("etcd:/baton/decode/")->name == "/baton/decode/");
  for (const std::string& bad : {std::string("etcd:"), std::string("etcd:/"), std::string("etcd:a:1"),
                                 std::string("etcd:/a b"), "etcd:/" + std::string(256, 'a')}) {
    INFO(bad);
    CHECK(absl::IsInvalidArgument(ParseWorkerName(bad).status()));
  }
}

TEST_CASE("an address is what strangers may name, and nothing else that gRPC would dial") {
  for (const char* good : {"10.0.0.1:7101", "worker-0.ns.svc:1", "[::1]:65535", "unix.lan:1"})
    CHECK(IsWorkerAddress(good));
  for (const char* bad :
       {"",      ":1",      "a",      "a:",     "a:0",     "a:65536", "a:+1",  "a b:1",  "unix:x:1", "ipv4:1.2.3.4:5",
        "[:1",   "[]:1",    "[a]:1",  "::1:1",  "dns:a:1", "a:1,b:2", "a/b:1", "\xff:1", "unix:1",   "unix-abstract:77",
        "dns:1", "xds:443", "ipv4:1", "IPV6:1", "vsock:1"}) {
    INFO(bad);
    CHECK_FALSE(IsWorkerAddress(bad));
  }
  CHECK_FALSE(IsWorkerAddress(std::string(300, 'a') + ":1"));
}

TEST_CASE("workers are those whose addresses etcd has under the prefix, as they change") {
  FakeEtcd etcd;
  etcd.Put("/decode/b", "b:2");
  etcd.Put("/decode/a", "a:1");
  etcd.Put("/decode/again", "a:1");
  etcd.Put("/decode2/c", "c:3");
  Told told({etcd.address()});
  CHECK(told.AwaitWorkers({"a:1", "b:2"}));
  etcd.Put("/decode/c", "c:3");
  CHECK(told.AwaitWorkers({"a:1", "b:2", "c:3"}));
}

TEST_CASE("a value that is no address names no worker, and costs the others nothing") {
  FakeEtcd etcd;
  etcd.Put("/decode/0", std::string(1 << 20, '\xff'));
  etcd.Put("/decode/1", "unix:/tmp/x:1");
  etcd.Put("/decode/2", "");
  etcd.Put("/decode/a", "a:1");
  Told told({etcd.address()});
  CHECK(told.AwaitWorkers({"a:1"}));
}

TEST_CASE("more keys than a router takes workers change nothing") {
  FakeEtcd etcd;
  etcd.Put("/decode/a", "a:1");
  Told told({etcd.address()});
  REQUIRE(told.AwaitWorkers({"a:1"}));
  for (size_t i = 0; i < 5 * kMostWorkers; ++i) etcd.Put(absl::StrCat("/decode/", i), absl::StrCat("x:", i + 1));
  REQUIRE(AwaitReads(etcd, 3));
  CHECK(told.Has({"a:1"}));
}

TEST_CASE("values that do not fit into an answer change nothing") {
  FakeEtcd etcd;
  etcd.Put("/decode/a", "a:1");
  Told told({etcd.address()});
  REQUIRE(told.AwaitWorkers({"a:1"}));
  for (int i = 0; i < 20; ++i) etcd.Put(absl::StrCat("/decode/b", i), std::string(1 << 20, 'x'));
  REQUIRE(AwaitReads(etcd, 3));
  CHECK(told.Has({"a:1"}));
}

TEST_CASE("changes that etcd has forgotten are made up for by reading all again") {
  FakeEtcd etcd;
  etcd.Put("/decode/a", "a:1");
  Told told({etcd.address()});
  REQUIRE(told.AwaitWorkers({"a:1"}));
  const int reads = etcd.reads();
  etcd.Compact();
  REQUIRE(Await([&] { return etcd.reads() > reads; }));
  etcd.Put("/decode/b", "b:2");
  CHECK(told.AwaitWorkers({"a:1", "b:2"}));
}

TEST_CASE("an etcd that refuses or is gone costs no worker, and is followed again when it is back") {
  std::optional<FakeEtcd> etcd(std::in_place);
  const std::string address = etcd->address();
  etcd->Put("/decode/a", "a:1");
  Told told({address});
  REQUIRE(told.AwaitWorkers({"a:1"}));
  etcd->Answer(FakeEtcd::Answers::kDenied);
  etcd->Put("/decode/b", "b:2");
  REQUIRE(AwaitReads(*etcd, 2));
  CHECK(told.Has({"a:1"}));
  etcd->Answer(FakeEtcd::Answers::kTruly);
  CHECK(told.AwaitWorkers({"a:1", "b:2"}));
  etcd.reset();
  etcd.emplace(address);
  etcd->Put("/decode/c", "c:3");
  CHECK(told.AwaitWorkers({"c:3"}));
}

TEST_CASE("of several servers one that answers is enough, and the others may be silent") {
  FakeEtcd silent, etcd;
  std::string nobody;
  {
    const FakeEtcd gone;
    nobody = gone.address();
  }
  silent.Answer(FakeEtcd::Answers::kNever);
  etcd.Put("/decode/a", "a:1");
  Told told({nobody, silent.address(), etcd.address()});
  CHECK(told.AwaitWorkers({"a:1"}));
}

TEST_CASE("a silent etcd keeps nobody from ending") {
  FakeEtcd etcd;
  etcd.Answer(FakeEtcd::Answers::kNever);
  const auto begin = std::chrono::steady_clock::now();
  { const Told told({etcd.address()}); }
  CHECK(std::chrono::steady_clock::now() - begin < EtcdClient::kPatience);
}

TEST_CASE("a worker's key is there while it is registered, and put anew where etcd lost it") {
  FakeEtcd etcd;
  const std::map<std::string, std::string> expected = {{"/decode/a:1", "a:1"}};
  const EtcdOptions options{{etcd.address()}, {}};
  std::optional<EtcdRegistration> registration(std::in_place, options, "/decode/", "a:1", std::chrono::seconds(1));
  CHECK(Await([&] { return etcd.values() == expected; }));
  etcd.LoseLeases();
  CHECK(Await([&] { return etcd.values() == expected; }));
  etcd.Put("/decode/a:1", "somebody:2");
  CHECK(Await([&] { return etcd.values() == expected; }));
  registration->Withdraw();
  CHECK(Await([&] { return etcd.values().empty(); }));
  registration.reset();
  CHECK(etcd.values().empty());
}

TEST_CASE("a worker that etcd refuses at first is registered once it does not") {
  FakeEtcd etcd;
  etcd.Answer(FakeEtcd::Answers::kDenied);
  const EtcdOptions options{{etcd.address()}, {}};
  const EtcdRegistration registration(options, "/decode/", "a:1", std::chrono::seconds(1));
  etcd.Answer(FakeEtcd::Answers::kTruly);
  CHECK(Await([&] { return etcd.values().size() == 1; }));
}

TEST_CASE("a router's options name etcd if and only if it is asked") {
  RouterOptions options;
  options.models = {"m"};
  options.prefill_workers = {"a:1"};
  options.decode_workers = {"etcd:/decode"};
  CHECK(Message(Validate(options)) == "etcd: its HOST:PORT is required with a worker named by etcd:PREFIX");
  options.common.etcd.servers = {"127.0.0.1:2379"};
  CHECK(Validate(options).ok());
  for (const char* bad : {"unix:1", "xds:443", "etcd-0:0"}) {
    options.common.etcd.servers = {"127.0.0.1:2379", bad};
    CHECK(Message(Validate(options)).starts_with("etcd: expected a DNS name or an IP address and a port from 1"));
  }
  options.common.etcd.servers = {"127.0.0.1:2379"};
  options.decode_workers = {"b:1"};
  CHECK(Message(Validate(options)) == "etcd: nothing is asked of it, expected a worker named by etcd:PREFIX");
  options.common.etcd = {};
  options.common.etcd.tls.authority = "/nonexistent";
  CHECK(Message(Validate(options)).starts_with("etcd-ca: /nonexistent: "));
  const Authority ours("ours");
  options.common.etcd.tls.authority = ours.path();
  CHECK(Message(Validate(options)) == "etcd-ca: is for --etcd, which is not given");
}

TEST_CASE("a worker's options say where in etcd it registers, and an address that routers take") {
  WorkerOptions options;
  options.model = "m";
  options.register_under = "etcd:/decode";
  CHECK(Message(Validate(options)) == "etcd: its HOST:PORT is required with --register etcd:PREFIX");
  options.common.etcd.servers = {"127.0.0.1:2379"};
  CHECK(Validate(options).ok());
  options.advertise = "ipv4:10.0.0.1:7";
  CHECK(Message(Validate(options)).starts_with("advertise: expected a DNS name or an IP address and a port"));
  options.advertise.clear();
  options.register_under.clear();
  CHECK(Message(Validate(options)) == "etcd: nothing is asked of it, expected --register etcd:PREFIX");
}

}  // namespace
}  // namespace baton
