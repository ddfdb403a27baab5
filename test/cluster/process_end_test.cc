// Tests with real processes: the blocks of a decode worker whose writer is killed.
#include <csignal>
#include <optional>
#include <string>

#include "await.h"
#include "catch.h"
#include "programs.h"
#include "rpc/tls.h"
#include "scrape.h"

namespace baton {
namespace {

double BlocksOf(const Worker& decode, const std::string& state) {
  return Scrape(decode.metrics, "baton_kv_blocks{role=\"decode\",state=\"" + state + "\"}").value_or(-1);
}

double FreedByProcessEnd(const Worker& decode) {
  return Scrape(decode.metrics, "baton_kv_blocks_freed_by_process_end_total").value_or(0);
}

TEST_CASE("Blocks that a killed prefill worker could write become free at its end") {
  Worker decode("decode", Small({"--listen", "127.0.0.1:0"}));
  double freed = 0;
  // A worker that is fast commits before it is killed. Then another one is killed.
  while (freed == 0) {
    Worker prefill("prefill", Small({"--listen", "127.0.0.1:0", "--step-tokens", "16"}));
    Process router("baton-router", {"--listen", "127.0.0.1:0", "--http", "off", "--model", kModel, "--prefill-workers",
                                    prefill.address, "--decode-workers", decode.address});
    const auto stub = v1::Inference::NewStub(DialTcp(router.Await("listening on ")));
    REQUIRE(Call(*stub, MakeRequest(1)).Finish().ok());  // links the two workers
    Call call(*stub, MakeRequest(4, 500));
    Await("the decode worker to reserve blocks", [&] { return BlocksOf(decode, "used") > 0; });
    prefill.process.Signal(SIGKILL);
    decode.AwaitBlocksFree();
    Await("the end of every quarantine", [&] { return BlocksOf(decode, "quarantined") == 0; });
    freed = FreedByProcessEnd(decode);
    call.context.TryCancel();
    call.Finish().IgnoreError();
  }
  // Blocks whose quarantine ended with its leases would not count.
  CHECK(freed > 0);
}

TEST_CASE("Blocks stay in quarantine while their silent writer lives") {
  Worker decode("decode", Small({"--listen", "127.0.0.1:0"}));
  Worker prefill("prefill", Small({"--listen", "127.0.0.1:0", "--step-tokens", "16"}));
  Process router("baton-router", {"--listen", "127.0.0.1:0", "--http", "off", "--model", kModel, "--prefill-workers",
                                  prefill.address, "--decode-workers", decode.address});
  const auto stub = v1::Inference::NewStub(DialTcp(router.Await("listening on ")));
  REQUIRE(Call(*stub, MakeRequest(1)).Finish().ok());
  while (true) {
    Call call(*stub, MakeRequest(1, 500));
    Await("the decode worker to reserve blocks", [&] { return BlocksOf(decode, "used") > 0; });
    prefill.process.Signal(SIGSTOP);
    call.context.TryCancel();
    call.Finish().IgnoreError();
    decode.AwaitBlocksFree();
    if (BlocksOf(decode, "quarantined") > 0) break;
    prefill.process.Signal(SIGCONT);  // the worker had committed before it stopped
  }
  CHECK(FreedByProcessEnd(decode) == 0);
  prefill.process.Signal(SIGKILL);
  Await("the end of the quarantine", [&] { return BlocksOf(decode, "quarantined") == 0; });
  CHECK(FreedByProcessEnd(decode) > 0);
}

}  // namespace
}  // namespace baton
