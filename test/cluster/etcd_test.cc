// Tests of workers that register in a real etcd, and of routers that find them there.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "await.h"
#include "base/status.h"
#include "base/strings.h"
#include "catch.h"
#include "certificates.h"
#include "etcd_process.h"
#include "http_client.h"
#include "membership/etcd_client.h"
#include "programs.h"
#include "scrape.h"

namespace baton {
namespace {

// In seconds. The long lease is longer than a test, so it does not expire if a worker renews it
// late.
constexpr int kLongLease = 600, kShortLease = 2;

std::unique_ptr<Worker> StartWorker(const std::string& role, const Etcd& etcd, int lease_seconds = kLongLease) {
  return std::make_unique<Worker>(role, Small({"--listen", "127.0.0.1:0", "--etcd", etcd.address(), "--register",
                                               "etcd:/baton/" + role, "--lease-seconds", absl::StrCat(lease_seconds)}));
}

// Options for this etcd, with an hour for each answer.
EtcdOptions OptionsOf(const Etcd& etcd, TlsFiles tls = {}) {
  return {.servers = {etcd.address()}, .tls = std::move(tls), .timeout = std::chrono::hours(1)};
}

// Waits until the process's baton_etcd_up is `up`. The process is a decode worker, or a router that
// finds decode workers through etcd.
void AwaitUp(const std::string& metrics, double up) {
  Await(absl::StrCat("baton_etcd_up to be ", up),
        [&] { return Scrape(metrics, "baton_etcd_up{prefix=\"/baton/decode/\"}") == up; });
}

struct EtcdRouter {
  Process process;
  const std::string metrics;
  const std::unique_ptr<v1::Inference::Stub> stub;

  explicit EtcdRouter(const Etcd& etcd)
      : process("baton-router",
                {"--listen", "127.0.0.1:0", "--http", "off", "--model", kModel, "--prefill-workers",
                 "etcd:/baton/prefill", "--decode-workers", "etcd:/baton/decode", "--etcd", etcd.address()}),
        metrics(MetricsOf(process)),
        stub(v1::Inference::NewStub(DialTcp(process.Await("listening on ")))) {}

  void AwaitAttached(const std::string& worker) { process.Await(absl::StrCat("worker ", worker, ": attached")); }
  void AwaitGone(const std::string& worker) {
    process.Await(absl::StrCat("worker ", worker, ": removed from membership"));
  }
  void Serve() {
    Call call(*stub, MakeRequest(8));
    const absl::Status status = call.Finish();
    INFO(Message(status) << "\n" << process.Output());
    REQUIRE(status.ok());
    CHECK(call.ids.size() == 8);
  }
  bool LostAny() { return absl::StrContains(process.Output(), "removed from membership"); }
};

std::vector<std::string> AddressesIn(const Etcd& etcd, const std::string& role) {
  const auto found = EtcdClient(OptionsOf(etcd)).Read(absl::StrCat("/baton/", role, "/"), 100);
  REQUIRE(found.ok());
  std::vector<std::string> addresses;
  for (const auto& entry : found->entries) addresses.push_back(entry.value);
  return addresses;
}

void AwaitEntries(const Etcd& etcd, const std::string& role, size_t count) {
  Await(absl::StrCat(count, " ", role, " workers in etcd"), [&] { return AddressesIn(etcd, role).size() == count; });
}

TEST_CASE("A router finds a starting worker through etcd, and a stopped one has left etcd") {
  const Etcd etcd;
  EtcdRouter router(etcd);
  const auto prefill = StartWorker("prefill", etcd);
  auto decode = StartWorker("decode", etcd);
  router.AwaitAttached(prefill->address);
  router.AwaitAttached(decode->address);
  router.Serve();

  const auto next = StartWorker("decode", etcd);
  router.AwaitAttached(next->address);
  decode->process.Signal(SIGTERM);
  CHECK(decode->process.Wait() == 0);
  CHECK(AddressesIn(etcd, "decode") == std::vector<std::string>{next->address});
  router.AwaitGone(decode->address);
  router.Serve();
}

TEST_CASE("A stopping worker leaves etcd before it ends its requests") {
  const Etcd etcd;
  EtcdRouter router(etcd);
  Worker prefill("prefill", {"--listen", "127.0.0.1:0", "--model", kModel, "--threads", "1", "--kv-memory-mb", "8",
                             "--grace", "3600", "--etcd", etcd.address(), "--register", "etcd:/baton/prefill",
                             "--lease-seconds", absl::StrCat(kLongLease)});
  const auto decode = StartWorker("decode", etcd);
  router.AwaitAttached(prefill.address);
  router.AwaitAttached(decode->address);
  decode->process.Signal(SIGSTOP);  // holds up the hand-off
  Call call(*router.stub, MakeRequest(5));
  prefill.AwaitBlocksUsed();
  prefill.process.Signal(SIGTERM);
  prefill.process.Await("withdrew");
  CHECK(AddressesIn(etcd, "prefill").empty());
  prefill.AwaitBlocksUsed();
  decode->process.Signal(SIGCONT);
  CHECK(call.Finish().ok());
  CHECK(prefill.process.Wait() == 0);
}

TEST_CASE("A dead worker leaves etcd when its lease expires") {
  const Etcd etcd;
  EtcdRouter router(etcd);
  const auto prefill = StartWorker("prefill", etcd), decode = StartWorker("decode", etcd, kShortLease);
  router.AwaitAttached(prefill->address);
  router.AwaitAttached(decode->address);
  decode->process.Signal(SIGKILL);
  decode->process.Wait();
  router.AwaitGone(decode->address);
  AwaitEntries(etcd, "decode", 0);
  const auto next = StartWorker("decode", etcd);
  router.AwaitAttached(next->address);
  router.Serve();
}

TEST_CASE("A cluster serves on while etcd restarts with or without its data") {
  const bool with_data = GENERATE(true, false);
  Etcd etcd;
  EtcdRouter router(etcd);
  // The leases are short, because a worker's renewal detects that etcd is gone. While a worker is
  // attached, an expired lease has no effect on it.
  const auto prefill = StartWorker("prefill", etcd, kShortLease), decode = StartWorker("decode", etcd, kShortLease);
  router.AwaitAttached(prefill->address);
  router.AwaitAttached(decode->address);
  AwaitUp(router.metrics, 1);
  AwaitUp(decode->metrics, 1);
  etcd.Kill();
  router.process.Await("; keeping its ");
  AwaitUp(router.metrics, 0);
  AwaitUp(decode->metrics, 0);
  router.Serve();
  const auto next = StartWorker("decode", etcd, kShortLease);
  next->process.Await("until etcd recovers, routers may not find");
  if (!with_data) etcd.LoseData();
  etcd.Start();
  router.AwaitAttached(next->address);
  router.Serve();
  // The workers register again what etcd has lost.
  AwaitEntries(etcd, "prefill", 1);
  AwaitEntries(etcd, "decode", 2);
  router.process.Await("resolves again");
  AwaitUp(router.metrics, 1);
  AwaitUp(decode->metrics, 1);
  CHECK_FALSE(router.LostAny());
}

TEST_CASE("A router that starts without etcd serves when etcd comes") {
  Etcd etcd;
  etcd.Kill();
  EtcdRouter router(etcd);
  router.process.Await("keeping its 0 workers");
  const auto prefill = StartWorker("prefill", etcd), decode = StartWorker("decode", etcd);
  etcd.Start();
  router.AwaitAttached(prefill->address);
  router.AwaitAttached(decode->address);
  router.Serve();
}

// Returns etcd's count of calls that ended with one of these codes, without health checks.
int64_t Handled(const Etcd& etcd, const std::string& method, const std::set<std::string>& codes) {
  HttpClient client(etcd.address());
  REQUIRE(client.Get("/metrics"));
  int64_t sum = 0;
  for (const auto line : absl::StrSplit(client.Read().body, '\n')) {
    if (!absl::StartsWith(line, "grpc_server_handled_total") || !absl::StrContains(line, "\"etcdserverpb.")) continue;
    if (!absl::StrContains(line, absl::StrCat("grpc_method=\"", method))) continue;
    const bool of_these = std::any_of(codes.begin(), codes.end(), [&](const std::string& code) {
      return absl::StrContains(line, absl::StrCat("grpc_code=\"", code, "\""));
    });
    if (of_these) sum += std::atoll(std::string(line.substr(line.rfind(' ') + 1)).c_str());
  }
  return sum;
}

TEST_CASE("etcd counts no call of workers and routers as a failure") {
  const Etcd etcd;
  EtcdClient client(OptionsOf(etcd));
  const auto lease = client.Grant(std::chrono::hours(1)).value();
  REQUIRE(client.Put({"/baton/x/a", "a:1"}, lease.id).ok());
  const int64_t revision = client.Read("/baton/x/", 10)->revision;
  // No key changes.
  CHECK(client.AwaitChange("/baton/x/", revision, std::chrono::milliseconds(200)).ok());
  // A key has changed since that revision.
  CHECK(client.AwaitChange("/baton/x/", revision - 1, std::chrono::hours(1)).ok());
  // etcd is behind that revision.
  CHECK(client.AwaitChange("/baton/x/", revision + 100, std::chrono::hours(1)).ok());
  for (int i = 0; i < 10; ++i) CHECK(client.Renew(lease.id).value());
  REQUIRE(client.Revoke(lease.id, std::chrono::hours(1)).ok());
  CHECK_FALSE(client.Renew(lease.id).value());

  Await("etcd to count what was asked of it",
        [&] { return Handled(etcd, "Watch", {"Canceled"}) + Handled(etcd, "LeaseKeepAlive", {"OK"}) >= 14; });
  CHECK(Handled(etcd, "",
                {"Unknown", "FailedPrecondition", "ResourceExhausted", "Internal", "Unavailable", "DataLoss",
                 "DeadlineExceeded"}) == 0);
}

TEST_CASE("A cluster serves on with nonsense and thousands of keys in etcd") {
  const Etcd etcd;
  EtcdRouter router(etcd);
  const auto prefill = StartWorker("prefill", etcd), decode = StartWorker("decode", etcd);
  router.AwaitAttached(prefill->address);
  router.AwaitAttached(decode->address);
  EtcdClient writer(OptionsOf(etcd));
  REQUIRE(writer.Put({"/baton/decode/nonsense", "unix:/etc/passwd\n:1"}, 0).ok());
  const std::string said = router.process.Await("1 of 2 keys under /baton/decode/ have values that are not addresses");
  CHECK(absl::StrContains(said, "expected HOST:PORT, got 'unix:/etc/passwd\\n:1'"));
  router.Serve();
  for (int i = 0; i < 2000; ++i) {
    REQUIRE(writer.Put({absl::StrCat("/baton/decode/", i), absl::StrCat("w", i, ".invalid:1")}, 0).ok());
  }
  router.process.Await("expected at most 1024 keys under /baton/decode/, got more");
  router.Serve();
}

TEST_CASE("EtcdClient reaches an etcd that requires certificates only with one of them") {
  Authority ours("ours"), others("others");
  const Etcd etcd(ours.Issue("etcd"));
  const TlsFiles own = ours.Issue("worker");
  Worker worker("prefill",
                Small({"--listen", "127.0.0.1:0", "--register", "etcd:/baton/prefill", "--etcd", etcd.address(),
                       "--etcd-ca", own.authority, "--etcd-cert", own.certificate, "--etcd-key", own.key}));
  worker.process.Await("registered");
  CHECK(EtcdClient(OptionsOf(etcd, own)).Read("/baton/prefill/", 10)->entries.size() == 1);
  for (const TlsFiles& files : {TlsFiles{}, TlsFiles{.authority = own.authority}, others.Issue("worker")}) {
    CHECK(absl::IsUnavailable(EtcdClient(OptionsOf(etcd, files)).Read("/baton/prefill/", 10).status()));
  }
}

}  // namespace
}  // namespace baton
