// Tests that shut down, kill or stop the processes of a cluster while clients call. No request is
// lost, all answers have the tokens and bits of a quiet cluster, and blocks become free.
#include <signal.h>

#include <chrono>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "await.h"
#include "catch.h"
#include "engine/handoff/receiver.h"
#include "inference.grpc.pb.h"
#include "programs.h"
#include "rolling_fleet.h"
#include "rolling_load.h"
#include "rpc/grpc_server.h"
#include "rpc/tls.h"
#include "scrape.h"

namespace baton {
namespace {

std::vector<SurfaceKind> AllSurfaces(const Fleet& fleet) {
  std::vector<SurfaceKind> all = GrpcSurfaces(fleet.grpc);
  for (SurfaceKind& kind : HttpSurfaces(fleet.http)) all.push_back(std::move(kind));
  return all;
}

void CheckNothingLost(Load& load) {
  load.Stop();
  const std::string report = load.Report();
  INFO(report);
  CHECK(load.lost() == 0);
  std::cout << "rolling restart:\n" << report;
}

TEST_CASE("Every request is answered when all processes restart and clients retry", "[waits]") {
  Fleet fleet;
  Load load(AllSurfaces(fleet), fleet.routers.size());
  load.AwaitMore(5);
  for (size_t i = 0; i < 2; ++i) {
    fleet.Restart(fleet.prefill[i]);
    load.AwaitMore(3);
    fleet.Restart(fleet.decode[i]);
    load.AwaitMore(3);
  }
  // Routers restart the requests that workers do not finish, so clients need not send them again.
  CHECK(load.sent_again() == 0);
  for (size_t i = 0; i < 2; ++i) {
    fleet.RestartRouter(i);
    load.AwaitMore(3);
  }
  CheckNothingLost(load);
}

TEST_CASE("Requests wait for the successor of a role's only worker") {
  Fleet fleet;
  for (auto* workers : {&fleet.prefill, &fleet.decode}) {
    (*workers)[1]->process.Signal(SIGTERM);
    REQUIRE((*workers)[1]->process.Wait() == 0);
  }
  Load load(AllSurfaces(fleet), fleet.routers.size());
  load.AwaitMore(3);
  fleet.Restart(fleet.prefill[0]);
  load.AwaitMore(3);
  fleet.Restart(fleet.decode[0]);
  load.AwaitMore(3);
  CHECK(load.sent_again() == 0);
  CheckNothingLost(load);
}

// Two workers of each role, which give running requests up at once when they shut down.
struct ImpatientCluster {
  std::optional<Worker> prefill[2], decode[2];
  std::optional<Process> router;
  std::unique_ptr<v1::Inference::Stub> stub;

  static std::vector<std::string> Impatient() {
    return {"--listen", "127.0.0.1:0", "--model", kModel, "--threads", "1", "--kv-memory-mb", "8", "--grace", "0"};
  }

  ImpatientCluster() {
    for (int i = 0; i < 2; ++i) {
      prefill[i].emplace("prefill", Impatient());
      decode[i].emplace("decode", Impatient());
    }
    const auto both = [](const std::optional<Worker>(&of)[2]) {
      return absl::StrCat(of[0]->address, ",", of[1]->address);
    };
    router.emplace("baton-router", std::vector<std::string>{"--listen", "127.0.0.1:0", "--http", "off", "--metrics",
                                                            "127.0.0.1:0", "--model", kModel, "--prefill-workers",
                                                            both(prefill), "--decode-workers", both(decode)});
    stub = v1::Inference::NewStub(DialTcp(router->Await("listening on ")));
    for (const auto* of : {&prefill, &decode}) {
      for (const auto& worker : *of) router->Await(absl::StrCat("worker ", worker->address, ": attached"));
    }
  }

  // Returns the worker that has served a request. REQUIRES: the other one of the role has not.
  Worker& Used(std::optional<Worker> (&of)[2]) {
    Worker* used = nullptr;
    Await("a worker to have served something", [&] {
      const v1::GetServerInfoResponse info = ServerInfoOf(*stub);
      for (const v1::Worker& worker : info.workers()) {
        for (auto& candidate : of) {
          if (worker.address() == candidate->address && worker.blocks_cached() > 0) used = &*candidate;
        }
      }
      return used != nullptr;
    });
    return *used;
  }
};

// Requests of one session go to the same workers.
v1::GenerateRequest InSession(int max_tokens, int prompt_tokens) {
  v1::GenerateRequest request = MakeRequest(max_tokens, prompt_tokens);
  request.set_session_id("s");
  return request;
}

std::vector<int32_t> UndisturbedIds(v1::Inference::Stub& stub, v1::GenerateRequest request) {
  request.set_cache_salt("undisturbed");
  Call call(stub, request);
  REQUIRE(call.Finish().ok());
  return call.ids;
}

TEST_CASE("A stream goes on with equal tokens when its decode worker's grace ends") {
  ImpatientCluster cluster;
  const v1::GenerateRequest request = InSession(450, 40);
  REQUIRE(Call(*cluster.stub, InSession(1, 40)).Finish().ok());
  Worker& used = cluster.Used(cluster.decode);
  const std::vector<int32_t> expected = UndisturbedIds(*cluster.stub, request);
  const std::unique_ptr<Call> call = StopWhileItDecodes(used, *cluster.stub, request);
  used.process.Signal(SIGTERM);
  used.process.Signal(SIGCONT);
  const absl::Status status = call->Finish();
  INFO(status.ToString());
  REQUIRE(status.ok());
  CHECK(call->ids == expected);
  CHECK(call->final.usage().completion_tokens() == 450);
  CHECK(used.process.Wait() == 0);
}

TEST_CASE("A stream moves with equal tokens when an operator drains its decode worker") {
  ImpatientCluster cluster;
  const v1::GenerateRequest request = InSession(450, 40);
  REQUIRE(Call(*cluster.stub, InSession(1, 40)).Finish().ok());
  Worker& used = cluster.Used(cluster.decode);
  const std::vector<int32_t> expected = UndisturbedIds(*cluster.stub, request);
  const auto drain = [&](const std::string& worker, bool undo) {
    const std::string server = cluster.router->Await("listening on ");
    Process baton("baton", undo ? std::vector<std::string>{"drain", worker, "--undo", "--server", server}
                                : std::vector<std::string>{"drain", worker, "--server", server});
    const int code = baton.Wait();
    return absl::StrCat(code, " ", baton.Output());
  };
  const std::unique_ptr<Call> call = StopWhileItDecodes(used, *cluster.stub, request);
  CHECK(drain(used.address, false) ==
        absl::StrCat("0 worker ", used.address, " is drained: it has no request of this router\n"));
  used.process.Signal(SIGCONT);
  const absl::Status status = call->Finish();
  INFO(status.ToString());
  REQUIRE(status.ok());
  CHECK(call->ids == expected);
  used.AwaitBlocksFree();
  // The session's home gets requests again.
  CHECK(drain(used.address, true) == absl::StrCat("0 worker ", used.address, " gets requests again\n"));
  CHECK(Call(*cluster.stub, InSession(1, 40)).Finish().ok());
  CHECK(drain("nowhere:1", false).find("NOT_FOUND: worker: the router has no worker 'nowhere:1'") != std::string::npos);
}

TEST_CASE("A prompt starts again elsewhere when its prefill worker's grace ends") {
  ImpatientCluster cluster;
  const v1::GenerateRequest request = InSession(20, 200);
  REQUIRE(Call(*cluster.stub, InSession(1, 40)).Finish().ok());
  Worker& used = cluster.Used(cluster.prefill);
  const std::vector<int32_t> expected = UndisturbedIds(*cluster.stub, request);
  used.process.Signal(SIGSTOP);
  Call call(*cluster.stub, request);
  Await("the router to have the request", [&] { return ServerInfoOf(*cluster.stub).live_requests() == 1; });
  used.process.Signal(SIGTERM);
  used.process.Signal(SIGCONT);
  const absl::Status status = call.Finish();
  INFO(status.ToString());
  REQUIRE(status.ok());
  CHECK(call.ids == expected);
  CHECK(used.process.Wait() == 0);
}

// The router must avoid the stopped workers. It loses them only after 20 s without an answer.
TEST_CASE("Requests end with equal tokens while two of four workers are stopped", "[waits]") {
  ImpatientCluster cluster;
  const std::string metrics = MetricsOf(*cluster.router);
  const v1::GenerateRequest request = InSession(450, 40);
  REQUIRE(Call(*cluster.stub, InSession(1, 40)).Finish().ok());
  Worker& prefill = cluster.Used(cluster.prefill);
  Worker& decode = cluster.Used(cluster.decode);
  const std::vector<int32_t> expected = UndisturbedIds(*cluster.stub, request);
  const auto check = [&](Call& call) {
    const absl::Status status = call.Finish();
    INFO(status.ToString());
    REQUIRE(status.ok());
    CHECK(call.ids == expected);
    CHECK(call.final.usage().completion_tokens() == 450);
  };

  const std::unique_ptr<Call> stream = StopWhileItDecodes(decode, *cluster.stub, request);
  prefill.process.Signal(SIGSTOP);
  // These requests go to the stopped workers, until the router avoids the two.
  std::vector<std::unique_ptr<Call>> later;
  for (int i = 0; i < 4; ++i) later.push_back(std::make_unique<Call>(*cluster.stub, request));
  check(*stream);
  for (const auto& call : later) check(*call);
  CHECK(Scrape(metrics, "baton_worker_avoidances_total{reason=\"silent\"}") >= 2);
  CHECK(Scrape(metrics, "baton_resumed_requests_total{result=\"resumed\"}") >= 1);

  prefill.process.Signal(SIGCONT);
  decode.process.Signal(SIGCONT);
  prefill.AwaitBlocksFree();
  decode.AwaitBlocksFree();
  // Only the two workers that were stopped can serve now.
  for (auto* of : {&cluster.prefill, &cluster.decode}) {
    for (auto& worker : *of) {
      if (&*worker != &prefill && &*worker != &decode) worker->process.Signal(SIGSTOP);
    }
  }
  Call again(*cluster.stub, request);
  check(again);
}

double BlocksOf(const Worker& decode, const std::string& state) {
  return Scrape(decode.metrics, "baton_kv_blocks{role=\"decode\",state=\"" + state + "\"}").value_or(-1);
}

double FreedByProcessEnd(const Worker& decode) {
  return Scrape(decode.metrics, "baton_kv_blocks_freed_by_process_end_total").value_or(0);
}

double EndedJobs(const Worker& decode) {
  return Scrape(decode.metrics, "baton_worker_jobs_total{role=\"decode\"}").value_or(0);
}

// A request whose blocks the decode worker has not cached in an earlier try.
v1::GenerateRequest LongRequest(int tries) {
  v1::GenerateRequest request = MakeRequest(4, 500);
  request.set_cache_salt(absl::StrCat(tries));
  return request;
}

TEST_CASE("Blocks that a killed prefill worker could write become free at its end") {
  Worker decode("decode", Small({"--listen", "127.0.0.1:0"}));
  double freed = 0;
  std::chrono::steady_clock::duration taken{};
  // A worker that is fast commits before it is killed. Then another one is killed.
  for (int tries = 0; freed == 0 && tries < 50; ++tries) {
    Worker prefill("prefill", Small({"--listen", "127.0.0.1:0", "--step-tokens", "16"}));
    Process router("baton-router", {"--listen", "127.0.0.1:0", "--http", "off", "--model", kModel, "--prefill-workers",
                                    prefill.address, "--decode-workers", decode.address});
    const auto stub = v1::Inference::NewStub(DialTcp(router.Await("listening on ")));
    REQUIRE(Call(*stub, MakeRequest(1)).Finish().ok());  // links the two workers
    const double ended = EndedJobs(decode);
    Call call(*stub, LongRequest(tries));
    Await("the decode worker to reserve blocks",
          [&] { return BlocksOf(decode, "used") > 0 || EndedJobs(decode) > ended; });
    const auto killed = std::chrono::steady_clock::now();
    prefill.process.Signal(SIGKILL);
    decode.AwaitBlocksFree();
    Await("the end of every quarantine", [&] { return BlocksOf(decode, "quarantined") == 0; });
    taken = std::chrono::steady_clock::now() - killed;
    freed = FreedByProcessEnd(decode);
    call.context.TryCancel();
    call.Finish().IgnoreError();
  }
  CHECK(freed > 0);
  // The blocks usually become free within milliseconds. A quarantine lasts four leases.
  CHECK(taken < absl::ToChronoSeconds(HandoffReceiverOptions().lease));
}

TEST_CASE("Blocks stay in quarantine while their silent writer lives", "[waits]") {
  Worker decode("decode", Small({"--listen", "127.0.0.1:0"}));
  Worker prefill("prefill", Small({"--listen", "127.0.0.1:0", "--step-tokens", "16"}));
  Process router("baton-router", {"--listen", "127.0.0.1:0", "--http", "off", "--model", kModel, "--prefill-workers",
                                  prefill.address, "--decode-workers", decode.address, "--metrics", "127.0.0.1:0",
                                  "--silence", "5", "--longest-silence", "5"});
  const std::string metrics = MetricsOf(router);
  const auto stub = v1::Inference::NewStub(DialTcp(router.Await("listening on ")));
  REQUIRE(Call(*stub, MakeRequest(1)).Finish().ok());
  for (int tries = 0; tries < 50; ++tries) {
    const double ended = EndedJobs(decode);
    Call call(*stub, LongRequest(tries));
    Await("the decode worker to reserve blocks",
          [&] { return BlocksOf(decode, "used") > 0 || EndedJobs(decode) > ended; });
    prefill.process.Signal(SIGSTOP);
    call.context.TryCancel();
    call.Finish().IgnoreError();
    decode.AwaitBlocksFree();
    if (BlocksOf(decode, "quarantined") > 0) break;
    prefill.process.Signal(SIGCONT);  // the worker had committed before it stopped
  }
  REQUIRE(BlocksOf(decode, "quarantined") > 0);
  // Several heartbeats are missing by then.
  Await("the writer to be silent for 5 s",
        [&] { return Scrape(metrics, "baton_workers_avoided{reason=\"silent\"}") == 1; });
  CHECK(BlocksOf(decode, "quarantined") > 0);
  CHECK(FreedByProcessEnd(decode) == 0);
  prefill.process.Signal(SIGKILL);
  Await("the end of the quarantine", [&] { return BlocksOf(decode, "quarantined") == 0; });
  CHECK(FreedByProcessEnd(decode) > 0);
}

}  // namespace
}  // namespace baton
