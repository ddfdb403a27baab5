// Tests of workers that DNS names: parsing and resolving names, and the router's reaction to
// changes.
#include "membership/membership.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "await.h"
#include "base/status.h"
#include "catch.h"
#include "fake_dns.h"
#include "log_capture.h"
#include "membership/name_resolver.h"
#include "shell/fake_worker.h"
#include "shell/router_cluster.h"

namespace baton {
namespace {

using Kind = WorkerName::Kind;
using Addresses = std::vector<WorkerAddress>;

constexpr std::chrono::seconds kDnsPatience(4);

TEST_CASE("ParseWorkerName reads addresses, hosts and services") {
  CHECK(ParseWorkerName("10.0.0.1:7101")->kind == Kind::kAddress);
  CHECK(ParseWorkerName("[::1]:7101")->name == "[::1]:7101");
  const WorkerName hosts = ParseWorkerName("dns:baton-decode.ns.svc:7201").value();
  CHECK(hosts.kind == Kind::kHosts);
  CHECK(hosts.name == "baton-decode.ns.svc");
  CHECK(hosts.port == "7201");
  CHECK(ParseWorkerName("srv:_grpc._tcp.baton-decode")->name == "_grpc._tcp.baton-decode");
  for (const char* bad :
       {"", "worker", "worker:", ":7", "worker:0", "worker:65536", "worker:x", "dns:", "dns:host", "dns::7",
        "dns:a b:7", "dns:a: 7", "a:+7", "unix:/x:7", "a b:7", "dns:[::1]:7", "srv:", "srv:a/b"}) {
    INFO(bad);
    CHECK(absl::IsInvalidArgument(ParseWorkerName(bad).status()));
  }
}

TEST_CASE("NameResolver returns the workers that DNS has for a name, if any") {
  FakeDns dns;
  dns.SetHosts("workers.test", {"127.0.0.3", "127.0.0.2"});
  dns.SetService("_grpc._tcp.workers.test", {"b.test:7202", "a.test:7201", "none.test:0", "a b.test:7", "unix:7"});
  const auto resolver = NameResolver::Make(dns.address(), std::chrono::hours(1)).value();
  const auto resolve = [&](const char* name) { return resolver->Resolve(ParseWorkerName(name).value()); };
  CHECK(resolve("dns:workers.test:7").value() == Addresses{"127.0.0.2:7", "127.0.0.3:7"});
  CHECK(resolve("srv:_grpc._tcp.workers.test").value() == Addresses{"a.test:7201", "b.test:7202"});
  CHECK(resolve("a:1").value() == Addresses{"a:1"});
  CHECK(resolve("dns:nobody.test:7").value().empty());
  CHECK(resolve("srv:nobody.test").value().empty());
  dns.SetHosts("workers.test", {});
  CHECK(resolve("dns:workers.test:7").value().empty());
}

TEST_CASE("NameResolver returns UNAVAILABLE when DNS fails, is absent or sends nonsense") {
  FakeDns dns;
  dns.SetService("workers.test", {"a.test:7201"});
  for (const auto answers : {FakeDns::Answers::kServerFailure, FakeDns::Answers::kGarbage}) {
    dns.Answer(answers);
    const auto found =
        NameResolver::Make(dns.address(), kDnsPatience).value()->Resolve({Kind::kService, "workers.test"});
    INFO(found.status().ToString());
    CHECK(absl::IsUnavailable(found.status()));
    CHECK(Message(found.status()).starts_with("DNS: workers.test: "));
  }
  std::string gone_address;
  {
    const FakeDns gone;
    gone_address = gone.address();
  }
  CHECK(absl::IsUnavailable(
      NameResolver::Make(gone_address, kDnsPatience).value()->Resolve({Kind::kService, "a.test"}).status()));
  CHECK(absl::IsInvalidArgument(NameResolver::Make("nonsense", kDnsPatience).status()));
}

TEST_CASE("Membership keeps workers while DNS is down and drops them when DNS drops them") {
  std::map<std::string, absl::StatusOr<Addresses>> known = {{"a", Addresses{"1:1", "2:2"}}, {"b", Addresses{"2:2"}}};
  std::map<WorkerRole, Addresses> set;
  Membership membership(
      {{Kind::kAddress, "0:0"}, {Kind::kHosts, "a"}}, {{Kind::kHosts, "b"}},
      [&](const WorkerName& name) {
        return name.kind == Kind::kAddress ? absl::StatusOr<Addresses>({name.name}) : known.at(name.name);
      },
      [&](WorkerRole role, const Addresses& addresses) { set[role] = addresses; });
  membership.Update(Membership::Source::kDns);
  CHECK(set[WorkerRole::kPrefill] == Addresses{"0:0", "1:1", "2:2"});
  CHECK(set[WorkerRole::kDecode] == Addresses{"2:2"});
  known["a"] = absl::UnavailableError("DNS: a: no answer");
  known["b"] = Addresses{};
  membership.Update(Membership::Source::kDns);
  CHECK(set[WorkerRole::kPrefill] == Addresses{"0:0", "1:1", "2:2"});
  CHECK(set[WorkerRole::kDecode].empty());
  known["a"] = Addresses{"3:3"};
  membership.Update(Membership::Source::kDns);
  CHECK(set[WorkerRole::kPrefill] == Addresses{"0:0", "3:3"});
}

TEST_CASE("Membership keeps DNS answers and asks nothing on an update by etcd") {
  std::map<WorkerRole, Addresses> set;
  std::vector<std::string> resolved;
  Membership membership(
      {{Kind::kHosts, "a", "1"}}, {{Kind::kAddress, "b:2"}, {Kind::kEtcd, "/c/"}},
      [&](const WorkerName& name) {
        resolved.push_back(name.name);
        return absl::StatusOr<Addresses>(Addresses{absl::StrCat("of-", resolved.size(), ":1")});
      },
      [&](WorkerRole role, const Addresses& addresses) { set[role] = addresses; });
  membership.Update(Membership::Source::kDns);
  CHECK(set[WorkerRole::kDecode] == Addresses{"b:2"});
  membership.Update(Membership::Source::kEtcd);
  membership.Update(Membership::Source::kEtcd);
  CHECK(resolved == std::vector<std::string>{"a", "/c/", "/c/"});
  CHECK(set[WorkerRole::kPrefill] == Addresses{"of-1:1"});
  CHECK(set[WorkerRole::kDecode] == Addresses{"b:2", "of-3:1"});
}

TEST_CASE("Membership keeps workers of an address and an equal host name while DNS is down") {
  std::map<WorkerRole, Addresses> set;
  bool down = false;
  Membership membership(
      {{Kind::kAddress, "w:7201"}, {Kind::kHosts, "w", "7201"}}, {},
      [&](const WorkerName&) {
        return down ? absl::StatusOr<Addresses>(absl::UnavailableError("DNS: w: no answer"))
                    : Addresses{"10.0.0.1:7201"};
      },
      [&](WorkerRole role, const Addresses& addresses) { set[role] = addresses; });
  for (int i = 0; i < 2; ++i) {
    membership.Update(Membership::Source::kDns);
    CHECK(set[WorkerRole::kPrefill] == Addresses{"w:7201", "10.0.0.1:7201"});
    down = true;
  }
}

// Waits until these decode workers are attached to the router, and no other ones.
void AwaitDecoders(Cluster& c, const Addresses& expected) {
  Await("the decode workers " + absl::StrJoin(expected, " "), [&] {
    Addresses attached;
    for (const Router::WorkerView& worker : c.node->router().Workers()) {
      if (worker.role != WorkerRole::kDecode) continue;
      if (!worker.attached.has_value()) return false;
      attached.push_back(worker.link);
    }
    return attached == expected;
  });
}

// Waits until DNS has received `more` further questions.
void AwaitQueries(const FakeDns& dns, int more) {
  Await("queries at the DNS server", [&, wanted = dns.queries() + more] { return dns.queries() >= wanted; });
}

// Restarts the router of `c` with the decode workers that `dns` has for decode.test.
void ServeByName(Cluster& c, const FakeDns& dns) {
  c.options.dns_server = dns.address();
  c.options.dns_seconds = 0.05;
  c.options.decode_workers = {"srv:decode.test"};
  c.Serve(ByteModel("bytes"));
}

TEST_CASE("A router follows DNS, and a leaving worker finishes its requests") {
  Cluster c;
  FakeDns dns;
  std::optional<FakeDecode> other(std::in_place, WorkerRole::kDecode, 22);
  const WorkerAddress first = c.decode->address(), second = other->address();
  dns.SetService("decode.test", {first});
  ServeByName(c, dns);
  AwaitDecoders(c, {first});

  Call call(c);
  PassPrefill(c);
  dns.SetService("decode.test", {second});
  AwaitDecoders(c, {std::min(first, second), std::max(first, second)});
  c.decode->Send(TokensEvent("r", "word", FinishReason::kLength));
  CHECK(call.Finish().text == "word");

  c.decode->Die();  // its work is done
  AwaitDecoders(c, {second});
  Call next(c, "next");
  REQUIRE(c.prefill->Next().prefill().decode_worker() == second);
  c.prefill->Send(DoneEvent("next", Incarnation(22)));
  REQUIRE(other->Next().decode().request_id() == "next");
  other->Send(TokensEvent("next", "more", FinishReason::kLength));
  CHECK(next.Finish().text == "more");
}

TEST_CASE("A router logs a worker that is named for both roles once") {
  const LogCapture log;
  Cluster c;
  FakeDns dns;
  const WorkerAddress decode = c.decode->address(), prefill = c.prefill->address();
  dns.SetService("decode.test", {decode, prefill});
  ServeByName(c, dns);
  AwaitQueries(dns, 4);
  CHECK(log.Count("named as a prefill and as a decode worker") == 1);
  dns.SetService("decode.test", {decode});
  AwaitQueries(dns, 4);
  dns.SetService("decode.test", {decode, prefill});
  AwaitQueries(dns, 4);
  CHECK(log.Count("named as a prefill and as a decode worker") == 2);
}

TEST_CASE("A router keeps its workers while DNS is down and attaches them again") {
  Cluster c;
  FakeDns dns;
  const WorkerAddress address = c.decode->address();
  dns.SetService("decode.test", {address});
  ServeByName(c, dns);
  AwaitDecoders(c, {address});
  dns.Answer(FakeDns::Answers::kServerFailure);
  c.decode.reset();
  AwaitQueries(dns, 5);
  c.decode.emplace(WorkerRole::kDecode, 23, address);
  AwaitDecoders(c, {address});
}

TEST_CASE("A router starts and ends while DNS is silent") {
  Cluster c;
  FakeDns dns;
  dns.Answer(FakeDns::Answers::kNever);
  c.options.dns_server = dns.address();
  c.options.decode_workers = {"srv:a.test", "srv:b.test", "srv:c.test"};
  // A router that waits so long exceeds the test's time limit.
  c.options.dns_timeout = std::chrono::hours(1);
  c.Serve(ByteModel("bytes"));
  c.node->Shutdown(absl::ZeroDuration());
}

TEST_CASE("Validate accepts --dns-server only as an address and with names to resolve") {
  RouterOptions options;
  options.models = {"m"};
  options.prefill_workers = {"a:1"};
  options.decode_workers = {"b:1"};
  options.dns_server = "127.0.0.1:53";
  CHECK(Message(Validate(options)) == "dns-server: unused, because no worker is named by dns: or srv:");
  options.decode_workers = {"srv:b.test"};
  CHECK(Validate(options).ok());
  options.dns_server = "localhost:53";
  CHECK(absl::IsInvalidArgument(Validate(options)));
}

}  // namespace
}  // namespace baton
