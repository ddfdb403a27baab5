// Every process of a cluster is restarted in turn while clients call: none of their requests is lost.
#include <signal.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "catch.h"
#include "programs.h"

namespace baton {
namespace {

constexpr int kClients = 4;

std::vector<std::string> Patient(const std::string& listen) {
  return {"--listen", listen, "--model", kModel, "--threads", "1", "--kv-memory-mb", "8", "--grace", "30"};
}

// Two of each kind.
struct Fleet {
  std::vector<std::unique_ptr<Worker>> prefill, decode;
  std::vector<std::unique_ptr<Process>> routers;
  std::vector<std::string> addresses;  // of the routers

  Fleet() {
    for (int i = 0; i < 2; ++i) {
      prefill.push_back(std::make_unique<Worker>("prefill", Patient("127.0.0.1:0")));
      decode.push_back(std::make_unique<Worker>("decode", Patient("127.0.0.1:0")));
    }
    for (int i = 0; i < 2; ++i) {
      routers.push_back(StartRouter("127.0.0.1:0"));
      addresses.push_back(routers.back()->Await("listening on "));
      AwaitAttached(*routers.back(), 1);
    }
  }

  std::unique_ptr<Process> StartRouter(const std::string& listen) const {
    const auto both = [](const auto& workers) { return absl::StrCat(workers[0]->address, ",", workers[1]->address); };
    return std::make_unique<Process>(
        "baton-router",
        std::vector<std::string>{"--listen", listen, "--http", "off", "--model", kModel, "--grace", "30",
                                 "--prefill-workers", both(prefill), "--decode-workers", both(decode)});
  }
  // Waits until each worker has attached so many times, or one of them alone.
  void AwaitAttached(Process& router, size_t times, const std::string& only = "") const {
    for (const auto* workers : {&prefill, &decode}) {
      for (const auto& worker : *workers) {
        if (!only.empty() && worker->address != only) continue;
        const std::string line = absl::StrCat("worker ", worker->address, ": attached");
        router.Await(line);
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(50);
        while (Count(router.Output(), line) < times) {
          INFO(router.Output());
          REQUIRE(std::chrono::steady_clock::now() < end);
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
      }
    }
  }
  static size_t Count(const std::string& text, const std::string& what) {
    size_t count = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
    return count;
  }

  void Restart(std::unique_ptr<Worker>& worker) {
    worker->process.Signal(SIGTERM);
    REQUIRE(worker->process.Wait() == 0);
    const std::string role = worker->role, address = worker->address;
    worker = std::make_unique<Worker>(role, Patient(address));
    for (auto& router : routers) AwaitAttached(*router, 2, address);
  }
  void RestartRouter(size_t i) {
    routers[i]->Signal(SIGTERM);
    REQUIRE(routers[i]->Wait() == 0);
    routers[i] = StartRouter(addresses[i]);
    AwaitAttached(*routers[i], 1);
  }
};

// Asks for 6 tokens, and says how many came. With `wait`, also for a connection.
absl::Status Ask(v1::Inference::Stub& stub, int prompt_tokens, bool wait, int& tokens) {
  grpc::ClientContext context;
  context.set_wait_for_ready(wait);
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  const auto reader = stub.Generate(&context, Request(6, prompt_tokens));
  v1::GenerateResponse response;
  tokens = 0;
  while (reader->Read(&response)) tokens += response.token_ids().size();
  return FromGrpc(reader->Finish());
}

// gRPC's servers say CANCELLED to calls that come in the moment in which they stop.
bool MayBeSentAgain(const absl::Status& status, int tokens) {
  return tokens == 0 && (absl::IsUnavailable(status) || absl::IsCancelled(status));
}

// Calls one router after the other, as clients of several do: what has not begun may be sent again to the next. More
// than once to each: the first may be back, and not found yet, when the second stops.
class Clients {
  static constexpr size_t kTries = 2;

 public:
  explicit Clients(const std::vector<std::string>& addresses) {
    for (int i = 0; i < kClients; ++i) threads_.emplace_back([this, addresses, i] { Loop(addresses, i); });
  }
  ~Clients() { Stop(); }
  void Stop() {
    stopping_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  // Waits until so many more are done.
  void AwaitMore(int count) const {
    const int wanted = done_ + count;
    while (done_ < wanted && !lost_any_) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  int done() const { return done_; }
  std::vector<std::string> lost() {
    const std::lock_guard lock(mutex_);
    return lost_;
  }

 private:
  void Loop(const std::vector<std::string>& addresses, int client) {
    std::vector<std::unique_ptr<v1::Inference::Stub>> stubs;
    for (const std::string& address : addresses) stubs.push_back(v1::Inference::NewStub(DialTcp(address)));
    for (int i = 0; !stopping_; ++i) {
      std::vector<std::string> tries;
      bool ended = false;
      for (size_t attempt = 0; attempt < kTries * stubs.size() && !ended; ++attempt) {
        auto& stub = *stubs[(static_cast<size_t>(client) + attempt) % stubs.size()];
        int tokens = 0;
        const absl::Status status = Ask(stub, 20 + (i * 7 + client) % 60, /*wait=*/attempt > 0, tokens);
        ended = status.ok() && tokens == 6;
        if (ended) break;
        tries.push_back(absl::StrCat(status.ToString(), " after ", tokens, " tokens"));
        if (!MayBeSentAgain(status, tokens)) break;
      }
      if (ended) {
        ++done_;
        continue;
      }
      const std::lock_guard lock(mutex_);
      lost_.push_back(absl::StrJoin(tries, "; then "));
      lost_any_ = true;
    }
  }

  std::atomic<bool> stopping_ = false, lost_any_ = false;
  std::atomic<int> done_ = 0;
  std::mutex mutex_;
  std::vector<std::string> lost_;  // guarded by mutex_
  std::vector<std::thread> threads_;
};

TEST_CASE("every process is restarted under load, and no request is lost") {
  Fleet fleet;
  Clients clients(fleet.addresses);
  clients.AwaitMore(20);
  for (size_t i = 0; i < 2; ++i) {
    fleet.Restart(fleet.prefill[i]);
    clients.AwaitMore(10);
    fleet.Restart(fleet.decode[i]);
    clients.AwaitMore(10);
  }
  for (size_t i = 0; i < 2; ++i) {
    fleet.RestartRouter(i);
    clients.AwaitMore(10);
  }
  clients.Stop();
  INFO(clients.done() << " done; lost:\n" << absl::StrJoin(clients.lost(), "\n"));
  CHECK(clients.lost().empty());
  CHECK(clients.done() >= 80);
}

TEST_CASE("where there is one worker of a kind, requests wait for the one that comes in its place") {
  Fleet fleet;
  for (auto* workers : {&fleet.prefill, &fleet.decode}) {
    (*workers)[1]->process.Signal(SIGTERM);
    REQUIRE((*workers)[1]->process.Wait() == 0);
  }
  Clients clients(fleet.addresses);
  clients.AwaitMore(10);
  fleet.Restart(fleet.prefill[0]);
  clients.AwaitMore(10);
  fleet.Restart(fleet.decode[0]);
  clients.AwaitMore(10);
  clients.Stop();
  INFO(clients.done() << " done; lost:\n" << absl::StrJoin(clients.lost(), "\n"));
  CHECK(clients.lost().empty());
}

}  // namespace
}  // namespace baton
