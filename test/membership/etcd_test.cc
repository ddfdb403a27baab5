// Tests of workers that etcd names, against a fake with the rare behaviour of real servers.
// test/cluster/etcd_test.cc has a real etcd.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "await.h"
#include "base/status.h"
#include "base/strings.h"
#include "catch.h"
#include "certificates.h"
#include "fake_dns.h"
#include "fake_etcd.h"
#include "log_capture.h"
#include "membership/etcd_registration.h"
#include "membership/live_membership.h"
#include "metric_value.h"
#include "node/options.h"
#include "shell/fake_worker.h"

namespace baton {
namespace {

using Kind = WorkerName::Kind;
using Addresses = std::vector<WorkerAddress>;

// Longer than the time limit of a test, so a test that waits so long fails.
constexpr std::chrono::hours kEtcdPatience(1);
// Longer than that timeout for each of several servers.
constexpr std::chrono::hours kLease(12);

// Options for these servers, with an hour for each answer.
EtcdOptions EtcdAt(std::vector<std::string> servers) {
  return {.servers = std::move(servers), .timeout = kEtcdPatience};
}

// A port that refuses connections. It is bound without listening, so no other process can listen on
// it.
struct ClosedPort {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  std::string address;

  ClosedPort() {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof name;
    REQUIRE(bind(fd, reinterpret_cast<const sockaddr*>(&name), size) == 0);
    REQUIRE(getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) == 0);
    address = absl::StrCat("127.0.0.1:", ntohs(name.sin_port));
  }
  ~ClosedPort() { close(fd); }
  ClosedPort(const ClosedPort&) = delete;
  ClosedPort& operator=(const ClosedPort&) = delete;
};

// Value of the metric for etcd's health.
double UpIn(Metrics& metrics) { return MetricValue(metrics, R"(baton_etcd_up{prefix="/decode/"})"); }

// The decode workers that membership reports to a router with the prefix /decode.
struct FollowedMembership {
  Metrics metrics;
  std::mutex mutex;
  Addresses workers;  // guarded by mutex
  std::unique_ptr<LiveMembership> membership;

  explicit FollowedMembership(const EtcdOptions& etcd) {
    membership = LiveMembership::Start({.prefill = {},
                                        .decode = {{Kind::kEtcd, "/decode/"}},
                                        .dns_server = "",
                                        .dns_period = std::chrono::hours(1),
                                        .dns_timeout = std::chrono::hours(1),
                                        .etcd = etcd},
                                       metrics,
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
  void AwaitWorkers(const Addresses& expected) {
    Await("the workers " + absl::StrJoin(expected, " "), [&] { return Has(expected); });
  }
};

// Waits until the fake has received `more` further reads.
void AwaitReads(const FakeEtcd& etcd, int more) {
  Await("reads of etcd", [&, wanted = etcd.reads() + more] { return etcd.reads() >= wanted; });
}

TEST_CASE("ParseWorkerName reads a prefix of etcd's keys") {
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

TEST_CASE("IsWorkerAddress accepts HOST:PORT and no other target of gRPC") {
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

TEST_CASE("LiveMembership follows the addresses under etcd's prefix") {
  FakeEtcd etcd;
  etcd.Put("/decode/b", "b:2");
  etcd.Put("/decode/a", "a:1");
  etcd.Put("/decode/again", "a:1");
  etcd.Put("/decode2/c", "c:3");
  FollowedMembership followed(EtcdAt({etcd.address()}));
  followed.AwaitWorkers({"a:1", "b:2"});
  etcd.Put("/decode/c", "c:3");
  followed.AwaitWorkers({"a:1", "b:2", "c:3"});
}

TEST_CASE("LiveMembership ignores a value that is not an address") {
  FakeEtcd etcd;
  etcd.Put("/decode/0", std::string(1 << 20, '\xff'));
  etcd.Put("/decode/1", "unix:/tmp/x:1");
  etcd.Put("/decode/2", "");
  etcd.Put("/decode/a", "a:1");
  FollowedMembership followed(EtcdAt({etcd.address()}));
  followed.AwaitWorkers({"a:1"});
}

TEST_CASE("LiveMembership limits its reads when keys change constantly") {
  FakeEtcd etcd;
  etcd.Put("/decode/a", "a:1");
  FollowedMembership followed(EtcdAt({etcd.address()}));
  followed.AwaitWorkers({"a:1"});
  const int before = etcd.reads();
  constexpr int kPuts = 200'000;  // many for each pause between reads
  for (int i = 0; i < kPuts; ++i) etcd.Put("/decode/a", absl::StrCat("a:", 1 + i % 9999));
  CHECK(etcd.reads() - before < kPuts / 1000);
}

TEST_CASE("LiveMembership applies a change in etcd while DNS is silent") {
  FakeEtcd etcd;
  FakeDns dns;
  dns.Answer(FakeDns::Answers::kNever);
  std::mutex mutex;
  std::set<WorkerAddress> decode, prefill;
  Metrics metrics;
  const auto set = [&](WorkerRole role, const Addresses& addresses) {
    const std::lock_guard lock(mutex);
    (role == WorkerRole::kDecode ? decode : prefill).insert(addresses.begin(), addresses.end());
  };
  const auto membership = LiveMembership::Start({{{Kind::kAddress, "p:1"}, {Kind::kService, "prefill.test"}},
                                                 {{Kind::kEtcd, "/decode/"}},
                                                 dns.address(),
                                                 std::chrono::hours(1),
                                                 std::chrono::hours(1),
                                                 EtcdAt({etcd.address()})},
                                                metrics, set)
                              .value();
  etcd.Put("/decode/a", "a:1");
  Await("the decode worker a:1", [&] {
    const std::lock_guard lock(mutex);
    return decode.contains("a:1");
  });
  const std::lock_guard lock(mutex);
  CHECK(prefill == std::set<WorkerAddress>{"p:1"});
}

TEST_CASE("LiveMembership keeps its workers when etcd has too many keys") {
  FakeEtcd etcd;
  etcd.Put("/decode/a", "a:1");
  FollowedMembership followed(EtcdAt({etcd.address()}));
  followed.AwaitWorkers({"a:1"});
  std::map<std::string, std::string> many;
  for (size_t i = 0; i < kMaxWorkers; ++i) many[absl::StrCat("/decode/", i)] = absl::StrCat("x:", i + 1);
  etcd.Put(many);
  AwaitReads(etcd, 3);
  CHECK(followed.Has({"a:1"}));
}

TEST_CASE("LiveMembership keeps its workers when the values exceed an answer") {
  FakeEtcd etcd;
  etcd.Put("/decode/a", "a:1");
  FollowedMembership followed(EtcdAt({etcd.address()}));
  followed.AwaitWorkers({"a:1"});
  for (int i = 0; i < 20; ++i) etcd.Put(absl::StrCat("/decode/b", i), std::string(1 << 20, 'x'));
  AwaitReads(etcd, 3);
  CHECK(followed.Has({"a:1"}));
}

TEST_CASE("LiveMembership reads all keys again after etcd has compacted changes") {
  FakeEtcd etcd;
  etcd.Put("/decode/a", "a:1");
  FollowedMembership followed(EtcdAt({etcd.address()}));
  followed.AwaitWorkers({"a:1"});
  const int reads = etcd.reads();
  etcd.Compact();
  Await("a read of etcd", [&] { return etcd.reads() > reads; });
  etcd.Put("/decode/b", "b:2");
  followed.AwaitWorkers({"a:1", "b:2"});
}

TEST_CASE("LiveMembership keeps its workers while etcd is down and follows it again") {
  std::optional<FakeEtcd> etcd(std::in_place);
  const std::string address = etcd->address();
  etcd->Put("/decode/a", "a:1");
  FollowedMembership followed(EtcdAt({address}));
  followed.AwaitWorkers({"a:1"});
  etcd->Answer(FakeEtcd::Answers::kDenied);
  etcd->Put("/decode/b", "b:2");
  AwaitReads(*etcd, 2);
  CHECK(followed.Has({"a:1"}));
  etcd->Answer(FakeEtcd::Answers::kTruly);
  followed.AwaitWorkers({"a:1", "b:2"});
  etcd.reset();
  etcd.emplace(address);
  etcd->Put("/decode/c", "c:3");
  followed.AwaitWorkers({"c:3"});
}

// An etcd may die between a read and the watch, and restart without its data.
TEST_CASE("EtcdClient::AwaitChange returns at once when etcd is behind the revision") {
  constexpr int64_t kRead = 100;
  FakeEtcd etcd;
  EtcdClient client(EtcdAt({etcd.address()}));
  CHECK(client.AwaitChange("/decode/", kRead, std::chrono::hours(1)).ok());
}

TEST_CASE("LiveMembership needs one answer of several servers") {
  FakeEtcd silent, etcd;
  const ClosedPort closed_port;
  silent.Answer(FakeEtcd::Answers::kNever);
  etcd.Put("/decode/a", "a:1");
  EtcdOptions options = EtcdAt({closed_port.address, silent.address(), etcd.address()});
  options.timeout = std::chrono::milliseconds(300);
  FollowedMembership followed(options);
  followed.AwaitWorkers({"a:1"});
}

TEST_CASE("LiveMembership can be destroyed while etcd is silent") {
  FakeEtcd etcd;
  etcd.Answer(FakeEtcd::Answers::kNever);
  const FollowedMembership followed(EtcdAt({etcd.address()}));
  AwaitReads(etcd, 1);
}

TEST_CASE("EtcdRegistration keeps a worker's key and restores a lost one") {
  FakeEtcd etcd;
  const std::map<std::string, std::string> expected = {{"/decode/a:1", "a:1"}};
  const EtcdOptions options = EtcdAt({etcd.address()});
  Metrics metrics;
  std::optional<EtcdRegistration> registration(std::in_place, options, "/decode/", "a:1", kLease, 0, metrics);
  Await("the worker's key", [&] { return etcd.values() == expected; });
  etcd.LoseLeases();
  Await("the worker's key", [&] { return etcd.values() == expected; });
  CHECK(etcd.cancelled_renewals() == 0);  // etcd counts such renewals as its own failures
  registration->Withdraw();
  Await("the key to go", [&] { return etcd.values().empty(); });
  registration.reset();
  CHECK(etcd.values().empty());
}

TEST_CASE("EtcdRegistration registers when etcd stops refusing") {
  const LogCapture log;
  FakeEtcd etcd;
  etcd.Answer(FakeEtcd::Answers::kDenied);
  const EtcdOptions options = EtcdAt({etcd.address()});
  Metrics metrics;
  const EtcdRegistration registration(options, "/decode/", "a:1", kLease, 0, metrics);
  Await("a refusal", [&] { return etcd.refused() > 0; });
  CHECK(UpIn(metrics) == 0);
  etcd.Answer(FakeEtcd::Answers::kTruly);
  Await("the worker's key", [&] { return etcd.values().size() == 1; });
  Await("the log to report that etcd answers",
        [&] { return log.Count("etcd answers again: the registration of /decode/a:1 continues") == 1; });
  CHECK(log.Count("PERMISSION_DENIED: etcdserver: permission denied; until etcd recovers") == 1);
  Await("the metric of an etcd that answers", [&] { return UpIn(metrics) == 1; });
}

TEST_CASE("Metrics show whether etcd answers a router and when it last did") {
  FakeEtcd etcd;
  etcd.Answer(FakeEtcd::Answers::kDenied);
  FollowedMembership followed(EtcdAt({etcd.address()}));
  const auto answered = [&] {
    return MetricValue(followed.metrics, R"(baton_etcd_last_answer_timestamp_seconds{prefix="/decode/"})");
  };
  Await("two refusals", [&] { return etcd.refused() > 1; });
  CHECK(UpIn(followed.metrics) == 0);
  CHECK(answered() == 0);
  const double begin = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  etcd.Answer(FakeEtcd::Answers::kTruly);
  Await("the metric of an etcd that answers", [&] { return UpIn(followed.metrics) == 1; });
  Await("the time of the last answer", [&] { return answered() >= begin; });
  etcd.Answer(FakeEtcd::Answers::kDenied);
  etcd.Put("/decode/a", "a:1");  // causes another read
  Await("the metric of an etcd that does not answer", [&] { return UpIn(followed.metrics) == 0; });
  CHECK(answered() >= begin);
}

TEST_CASE("EtcdWatch logs a failing watch once and its recovery once") {
  const LogCapture log;
  FakeEtcd etcd;
  etcd.DenyWatches(true);
  etcd.Put("/decode/a", "a:1");
  FollowedMembership followed(EtcdAt({etcd.address()}));
  AwaitReads(etcd, 4);
  CHECK(log.Count("PERMISSION_DENIED: etcdserver: permission denied; cannot watch /decode/") == 1);
  etcd.DenyWatches(false);
  Await("the log to report that the watch works again", [&, i = 0]() mutable {
    etcd.Put("/decode/a", absl::StrCat("a:", 1 + i++ % 1000));
    return log.Count("watching /decode/ again") == 1;
  });
}

TEST_CASE("EtcdRegistration leaves another worker's key until it is gone, then takes it") {
  const LogCapture log;
  FakeEtcd etcd;
  const EtcdOptions options = EtcdAt({etcd.address()});
  Metrics metrics;
  std::optional<EtcdRegistration> first(std::in_place, options, "/decode/", "a:1", kLease, 0, metrics);
  Await("the worker's key", [&] { return etcd.values().size() == 1; });
  const EtcdRegistration second(options, "/decode/", "a:1", kLease, 0, metrics);
  AwaitReads(etcd, 10);  // both registrations looked for the key
  CHECK(etcd.puts() == 1);
  CHECK(log.Count("etcd: /decode/a:1 is held by lease 1 ('a:1'), not by this worker's lease 2. ") == 1);
  first.reset();
  Await("the second worker to put the key", [&] { return etcd.puts() == 2; });
  CHECK(etcd.values().size() == 1);
}

TEST_CASE("EtcdRegistration withdraws in time, first at the server that answered last") {
  FakeEtcd silent, etcd;
  const EtcdOptions options = EtcdAt({silent.address(), etcd.address()});
  Metrics metrics;
  SECTION("when one server answers") {
    silent.Answer(FakeEtcd::Answers::kDenied);
    std::optional<EtcdRegistration> registration(std::in_place, options, "/decode/", "a:1", kLease, 0, metrics);
    Await("the worker's key", [&] { return etcd.values().size() == 1; });
    silent.Answer(FakeEtcd::Answers::kNever);
    registration.reset();  // takes half an hour if it asks the silent server first
    CHECK(etcd.values().empty());
  }
  SECTION("when no server answers") {
    std::optional<EtcdRegistration> registration(std::in_place, options, "/decode/", "a:1", kLease, 0, metrics);
    Await("the worker's key", [&] { return silent.values().size() == 1; });
    silent.Answer(FakeEtcd::Answers::kNever);
    etcd.Answer(FakeEtcd::Answers::kNever);
    registration->Withdraw(absl::Seconds(1));
    registration.reset();
  }
}

TEST_CASE("EtcdClient and Backoff choose first servers and pauses by their seed") {
  FakeEtcd first, second;
  EtcdClient client(EtcdAt({first.address(), second.address()}), 3);
  REQUIRE(client.Read("/decode/", 1).ok());
  CHECK(first.reads() == 0);
  CHECK(second.reads() == 1);
  Backoff one(1), again(1), other(2);
  bool differ = false;
  for (int64_t most = 100; most < 20'000; most *= 2) {
    const auto pause = one.Next();
    CHECK(pause.count() >= std::min<int64_t>(most, 2000) / 2);
    CHECK(pause.count() <= std::min<int64_t>(most, 2000));
    CHECK(again.Next() == pause);
    differ = differ || other.Next() != pause;
  }
  CHECK(differ);
  one.Reset();
  CHECK(one.Next().count() <= 100);
}

TEST_CASE("Validate requires --etcd with workers named by etcd, and only then") {
  RouterOptions options;
  options.models = {"m"};
  options.prefill_workers = {"a:1"};
  options.decode_workers = {"etcd:/decode"};
  CHECK(Message(Validate(options)) == "etcd: HOST:PORT is required with a worker named by etcd:PREFIX");
  options.common.etcd.servers = {"127.0.0.1:2379"};
  CHECK(Validate(options).ok());
  for (const char* bad : {"unix:1", "xds:443", "etcd-0:0"}) {
    options.common.etcd.servers = {"127.0.0.1:2379", bad};
    CHECK(Message(Validate(options)).starts_with("etcd: expected a DNS name or an IP address and a port from 1"));
  }
  options.common.etcd.servers = {"127.0.0.1:2379"};
  options.decode_workers = {"b:1"};
  CHECK(Message(Validate(options)) == "etcd: unused without a worker named by etcd:PREFIX");
  options.common.etcd = {};
  options.common.etcd.tls.authority = "/nonexistent";
  options.common.etcd.servers = {"127.0.0.1:2379"};
  options.decode_workers = {"etcd:/decode"};
  CHECK(Message(Validate(options)).starts_with("etcd-ca: /nonexistent: "));
  options.common.etcd.servers = {"e:1", "f:1", "e:1"};
  CHECK(Message(Validate(options)) == "etcd: 'e:1' is named twice");
  options.common.etcd.servers = {};
  options.decode_workers = {"b:1"};
  const Authority ours("ours");
  options.common.etcd.tls.authority = ours.path();
  CHECK(Message(Validate(options)) == "etcd-ca, etcd-cert, etcd-key: require --etcd");
}

TEST_CASE("Validate refuses etcd prefixes that contain each other") {
  RouterOptions options;
  options.models = {"m"};
  options.common.etcd.servers = {"127.0.0.1:2379"};
  using Names = std::vector<std::string>;
  for (const auto& [prefill, decode] : std::vector<std::pair<Names, Names>>{{{"etcd:/baton"}, {"etcd:/baton/decode"}},
                                                                            {{"etcd:/x/y"}, {"a:1", "etcd:/x/"}},
                                                                            {{"a:1"}, {"etcd:/x", "etcd:/x/"}}}) {
    options.prefill_workers = prefill;
    options.decode_workers = decode;
    CHECK(Message(Validate(options)).starts_with("workers: expected prefixes that do not contain each other, got "));
  }
  options.prefill_workers = {"etcd:/baton/decode"};
  options.decode_workers = {"etcd:/baton/decode2"};
  CHECK(Validate(options).ok());
}

TEST_CASE("Validate checks a worker's etcd prefix and advertised address") {
  WorkerOptions options;
  options.model = "m";
  options.register_under = "etcd:/decode";
  CHECK(Message(Validate(options)) == "etcd: HOST:PORT is required with --register etcd:PREFIX");
  options.common.etcd.servers = {"127.0.0.1:2379"};
  CHECK(Validate(options).ok());
  options.common.etcd.servers = {"127.0.0.1:2379", "etcd-1:2379", "etcd-2:2379"};
  CHECK(Message(Validate(options))
            .starts_with("advertise: etcd is on another machine, and routers there cannot reach "
                         "'127.0.0.1:0'"));
  options.advertise = "worker-1:7201";
  CHECK(Validate(options).ok());
  options.lease_seconds = 2;
  CHECK(Message(Validate(options)) == "lease-seconds: expected at least one per server of --etcd (3), got 2");
  options.lease_seconds = 10;
  options.advertise = "ipv4:10.0.0.1:7";
  CHECK(Message(Validate(options)).starts_with("advertise: expected a DNS name or an IP address and a port"));
  options.advertise.clear();
  options.register_under.clear();
  CHECK(Message(Validate(options)) == "etcd: unused without --register etcd:PREFIX");
}

}  // namespace
}  // namespace baton
