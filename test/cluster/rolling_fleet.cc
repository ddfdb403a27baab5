#include "rolling_fleet.h"

#include <signal.h>

#include "absl/strings/str_cat.h"
#include "await.h"
#include "catch.h"

namespace baton {
namespace {

// Seconds, longer than a test.
const std::string kGrace = "3600";

std::vector<std::string> Patient(const std::string& listen) {
  return {"--listen", listen, "--model", kModel, "--threads", "1", "--kv-memory-mb", "8", "--grace", kGrace};
}

size_t Count(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

}  // namespace

Fleet::Fleet() {
  for (int i = 0; i < 2; ++i) {
    prefill.push_back(std::make_unique<Worker>("prefill", Patient("127.0.0.1:0")));
    decode.push_back(std::make_unique<Worker>("decode", Patient("127.0.0.1:0")));
  }
  for (int i = 0; i < 2; ++i) {
    routers.push_back(StartRouter("127.0.0.1:0", "127.0.0.1:0"));
    grpc.push_back(routers.back()->Await("listening on "));
    http.push_back(HttpOf(*routers.back()));
    AwaitAttached(*routers.back(), 1);
  }
}

std::unique_ptr<Process> Fleet::StartRouter(const std::string& listen, const std::string& http_listen) const {
  const auto both = [](const auto& workers) { return absl::StrCat(workers[0]->address, ",", workers[1]->address); };
  return std::make_unique<Process>(
      "baton-router",
      std::vector<std::string>{"--listen", listen, "--http", http_listen, "--model", kModel, "--grace", kGrace,
                               "--prefill-workers", both(prefill), "--decode-workers", both(decode)});
}

void Fleet::AwaitAttached(Process& router, size_t times, const std::string& only) const {
  for (const auto* workers : {&prefill, &decode}) {
    for (const auto& worker : *workers) {
      if (!only.empty() && worker->address != only) continue;
      const std::string line = absl::StrCat("worker ", worker->address, ": attached");
      router.Await(line);
      Await(absl::StrCat(times, " times '", line, "'"), [&] {
        if (router.HasEnded()) FAIL("the router has ended:\n" << router.Output());
        return Count(router.Output(), line) >= times;
      });
    }
  }
}

void Fleet::Restart(std::unique_ptr<Worker>& worker) {
  worker->process.Signal(SIGTERM);
  REQUIRE(worker->process.Wait() == 0);
  const std::string role = worker->role, address = worker->address;
  worker = std::make_unique<Worker>(role, Patient(address));
  for (auto& router : routers) AwaitAttached(*router, 2, address);
}

void Fleet::RestartRouter(size_t i) {
  routers[i]->Signal(SIGTERM);
  REQUIRE(routers[i]->Wait() == 0);
  routers[i] = StartRouter(grpc[i], http[i]);
  AwaitAttached(*routers[i], 1);
}

}  // namespace baton
