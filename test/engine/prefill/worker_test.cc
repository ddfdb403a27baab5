// Tests of PrefillWorker with its real threads, over the in-process transport. Decode workers
// answer on other threads.
#include "engine/prefill/worker.h"

#include <array>
#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <random>
#include <semaphore>
#include <thread>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "catch.h"
#include "seeds.h"
#include "temp_dir.h"
#include "transport/in_process/transport.h"
#include "world/fake_decode_worker.h"

namespace baton {
namespace {

std::span<std::byte> SlabOf(Transport& transport, int64_t blocks) {
  auto slab = transport.AllocateSlab(blocks * FakeBackend::Layout().BlockBytes());
  BATON_CHECK(slab.ok(), slab.status().ToString());
  return *slab;
}

// A thread-safe decode worker.
class DecodeHost {
 public:
  DecodeHost(std::shared_ptr<InProcessNetwork> network, const Clock& clock, int64_t blocks, bool verify)
      : clock_(clock),
        transport_(std::move(network)),
        backend_(SlabOf(transport_, blocks)),
        worker_(backend_, Incarnation(77), transport_.Descriptor(), verify) {}

  template <typename Function>
  auto With(Function function) {
    const std::lock_guard lock(mutex_);
    return function(worker_, clock_.Now());
  }

  std::string descriptor() const { return transport_.Descriptor(); }

 private:
  const Clock& clock_;
  InProcessTransport transport_;
  FakeBackend backend_;
  std::mutex mutex_;
  FakeDecodeWorker worker_;
};

// Answers on the caller's thread, before Send returns. This is the hardest case that a peer may
// cause.
class DirectPeer final : public DecodePeer {
 public:
  DirectPeer(DecodeHost* host, std::function<void()> gone) : host_(host), gone_(std::move(gone)) {}
  ~DirectPeer() override { gone_(); }
  void SendLink(const LinkRequest& request, Done<LinkReply> done) override {
    Answer<LinkReply>(std::move(done), [&](auto& r, absl::Time now) { return r.OnLink(request, now); });
  }
  void SendReserve(const ReserveRequest& request, Done<ReserveReply> done) override {
    Answer<ReserveReply>(std::move(done), [&](auto& r, absl::Time now) { return r.OnReserve(request, now); });
  }
  void SendCommit(const Commit& commit, Done<Ack> done) override {
    Answer<Ack>(std::move(done), [&](auto& r, absl::Time now) -> absl::StatusOr<Ack> {
      RETURN_IF_ERROR(r.OnCommit(commit, now));
      return Ack{};
    });
  }
  void SendRelease(const Release& release, Done<Ack> done) override {
    Answer<Ack>(std::move(done), [&](auto& r, absl::Time now) -> absl::StatusOr<Ack> {
      r.OnRelease(release, now);
      return Ack{};
    });
  }
  void SendHeartbeat(const Heartbeat& heartbeat, Done<HeartbeatReply> done) override {
    Answer<HeartbeatReply>(std::move(done), [&](auto& r, absl::Time now) { return r.OnHeartbeat(heartbeat, now); });
  }

 private:
  template <typename T, typename Function>
  void Answer(Done<T> done, Function function) {
    if (host_ == nullptr) return done(absl::UnavailableError("no worker listens at this address"));
    done(host_->With([&](FakeDecodeWorker& worker, absl::Time now) { return function(worker.receiver(), now); }));
  }

  DecodeHost* host_;  // null: no worker listens at the address
  std::function<void()> gone_;
};

// Keeps all answers until AnswerAll, and then answers UNAVAILABLE.
class SilentPeer final : public DecodePeer {
 public:
  void SendLink(const LinkRequest&, Done<LinkReply> done) override { Keep(std::move(done)); }
  void SendReserve(const ReserveRequest&, Done<ReserveReply> done) override { Keep(std::move(done)); }
  void SendCommit(const Commit&, Done<Ack> done) override { Keep(std::move(done)); }
  void SendRelease(const Release&, Done<Ack> done) override { Keep(std::move(done)); }
  void SendHeartbeat(const Heartbeat&, Done<HeartbeatReply> done) override { Keep(std::move(done)); }

  void AnswerAll() {
    for (auto& answer : std::exchange(answers_, {})) answer();
  }

 private:
  template <typename T>
  void Keep(Done<T> done) {
    answers_.push_back(
        [done = std::move(done)]() mutable { done(absl::UnavailableError("no worker at this address")); });
  }
  std::vector<absl::AnyInvocable<void()>> answers_;
};

// A connector whose connections to one peer hang until resume is released, as if the peer's process
// were stopped. They hang when they are opened, or when they are closed.
class HangingConnector final : public Connector {
 public:
  enum class When { kOpened, kClosed };
  explicit HangingConnector(Connector& others) : others_(others) {}
  void HangAt(std::string peer_descriptor, When when) {
    hangs_at_ = std::move(peer_descriptor);
    when_ = when;
  }
  std::string Descriptor() const override { return others_.Descriptor(); }
  absl::StatusOr<std::unique_ptr<Link>> Connect(std::string_view peer_descriptor) override {
    if (peer_descriptor != hangs_at_) return others_.Connect(peer_descriptor);
    if (when_ == When::kClosed) return std::make_unique<HangingLink>(*this);
    Hang();
    return absl::UnavailableError("the peer does not answer");
  }

  std::counting_semaphore<> hanging{0}, resume{0};

 private:
  class HangingLink final : public Link {
   public:
    explicit HangingLink(HangingConnector& connector) : connector_(connector) {}
    ~HangingLink() override { connector_.Hang(); }
    void Push(std::span<const BlockCopy>, absl::AnyInvocable<void(absl::Status)> done) override {
      done(absl::UnavailableError("the peer does not answer"));
    }
    std::string Description() const override { return "a connection that hangs"; }

   private:
    HangingConnector& connector_;
  };
  void Hang() {
    hanging.release();
    resume.acquire();
  }

  Connector& others_;
  std::string hangs_at_;
  When when_ = When::kOpened;
};

class Results final : public PrefillListener {
 public:
  struct Result {
    PrefillDone done;
    absl::Status status;
  };
  void OnPrefillStarted(const PrefillStarted&) override {}
  void OnPrefillDone(const PrefillDone& done) override { Set(done.request_id, {done, absl::OkStatus()}); }
  void OnPrefillFailed(const RequestFailed& failed) override { Set(failed.request_id, {{}, failed.status}); }

  Result Await(const RequestId& id) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return results_.contains(id); });
    return results_.at(id);
  }
  size_t size() {
    const std::lock_guard lock(mutex_);
    return results_.size();
  }

 private:
  void Set(const RequestId& id, Result result) {
    const std::lock_guard lock(mutex_);
    BATON_CHECK(results_.emplace(id, std::move(result)).second, "two results for one request");
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, Result> results_;
};

// One prefill worker and three decode workers. "d" answers, "silent" never answers, and `connector`
// can hang at "hangs". Every other address is unreachable.
struct Cluster {
  explicit Cluster(int64_t prefill_blocks = 64, int64_t decode_blocks = 64, int64_t max_requests = 1000,
                   absl::Duration forget_idle = absl::Minutes(10), StagingOptions staging = {}, bool verify = false)
      : decode(network, clock, decode_blocks, verify),
        other_decode(network, clock, decode_blocks, verify),
        transport(network),
        backend(SlabOf(transport, prefill_blocks)),
        store(*StagingStore::Create(staging, FakeBackend::Layout().BlockBytes(), backend.kv_slab(), directory.path())) {
    PrefillEngineOptions options{.blocks = prefill_blocks,
                                 .vocab = FakeBackend::kVocab,
                                 .context = 10000,
                                 .step_tokens = 48,
                                 .max_requests = max_requests,
                                 .staging = staging,
                                 .sender = {}};
    options.sender.forget_idle = forget_idle;
    options.sender.self.prefill_address = "p";
    options.sender.self.prefill_incarnation = Incarnation(5);
    options.sender.self.layout = FakeBackend::Layout();
    options.sender.self.numerics_id = backend.numerics_id();
    options.sender.self.can_digest = true;
    worker = std::make_unique<PrefillWorker>(
        options, PrefillWorkerParts{.backend = backend,
                                    .connector = connector,
                                    .clock = clock,
                                    .listener = results,
                                    .reach = [this](const WorkerAddress& address) -> std::unique_ptr<DecodePeer> {
                                      if (address != "silent") {
                                        DecodeHost* host = address == "d"       ? &decode
                                                           : address == "hangs" ? &other_decode
                                                                                : nullptr;
                                        return std::make_unique<DirectPeer>(host, [this] { forgotten.release(); });
                                      }
                                      auto peer = std::make_unique<SilentPeer>();
                                      silent = peer.get();
                                      return peer;
                                    },
                                    .staging = store.get()});
  }

  static PrefillJob Job(const RequestId& id, std::vector<TokenId> tokens, const WorkerAddress& to = "d") {
    PrefillJob job;
    job.request_id = id;
    job.spec.tokens = std::move(tokens);
    job.spec.sampling.max_tokens = 1;
    job.decode_worker = to;
    return job;
  }
  absl::StatusOr<TokenId> FirstToken(const PrefillDone& done, const std::vector<TokenId>& prompt) {
    return decode.With([&](FakeDecodeWorker& d, absl::Time now) { return d.FirstToken(done, prompt, "", now); });
  }

  SteadyClock clock;
  std::shared_ptr<InProcessNetwork> network = std::make_shared<InProcessNetwork>();
  DecodeHost decode, other_decode;
  InProcessTransport transport;
  HangingConnector connector{transport};
  FakeBackend backend;
  TempDir directory;
  std::unique_ptr<StagingStore> store;
  Results results;
  SilentPeer* silent = nullptr;            // set once the worker reaches it
  std::counting_semaphore<> forgotten{0};  // counts peers that were destroyed
  std::unique_ptr<PrefillWorker> worker;   // last, because it uses the other members
};

std::vector<TokenId> Prompt(size_t tokens, TokenId seed = 1) {
  std::vector<TokenId> prompt(tokens);
  for (size_t i = 0; i < tokens; ++i) prompt[i] = static_cast<TokenId>((i * 7 + static_cast<size_t>(seed)) % 50);
  return prompt;
}

TEST_CASE("A prompt's KV arrives at the decode worker and gives the right token") {
  Cluster cluster;
  for (const size_t tokens : {1, 2, 16, 17, 18, 100, 161}) {
    const auto prompt = Prompt(tokens, static_cast<TokenId>(tokens));
    const RequestId id = absl::StrCat("r", tokens);
    INFO(id);
    REQUIRE_FALSE(cluster.worker->Submit(Cluster::Job(id, prompt)).has_value());
    const auto result = cluster.results.Await(id);
    REQUIRE(result.status == absl::OkStatus());
    CHECK(result.done.computed_tokens == static_cast<int32_t>(tokens) - 1);
    const auto token = cluster.FirstToken(result.done, prompt);
    REQUIRE(token.ok());
    CHECK(*token == FakeBackend::NextToken(prompt));
  }
  cluster.worker->Shutdown(absl::InfiniteDuration());
  CHECK(cluster.worker->Load().blocks.referenced == 0);
}

TEST_CASE("Blocks that the decode worker holds are neither computed nor pushed") {
  Cluster cluster;
  const auto prompt = Prompt(49);
  for (const char* id : {"first", "second"}) {
    REQUIRE_FALSE(cluster.worker->Submit(Cluster::Job(id, prompt)).has_value());
    const auto done = cluster.results.Await(id).done;
    CHECK((done.bytes_pushed > 0) == (done.request_id == "first"));
    CHECK(*cluster.FirstToken(done, prompt) == FakeBackend::NextToken(prompt));
  }
  CHECK(cluster.worker->Load().totals.tokens.computed == 48);
}

TEST_CASE("PrefillWorker reaches a forgotten decode worker again for a new prompt") {
  Cluster cluster(64, 64, 1000, absl::Milliseconds(1));
  for (const char* id : {"first", "second"}) {
    const auto prompt = Prompt(33, *id);
    REQUIRE_FALSE(cluster.worker->Submit(Cluster::Job(id, prompt)).has_value());
    const auto result = cluster.results.Await(id);
    REQUIRE(result.status == absl::OkStatus());
    CHECK(*cluster.FirstToken(result.done, prompt) == FakeBackend::NextToken(prompt));
    cluster.forgotten.acquire();
  }
}

TEST_CASE("A prefill-only prompt pushes no bytes") {
  Cluster cluster;
  REQUIRE_FALSE(cluster.worker->Submit(Cluster::Job("a", Prompt(60), "")).has_value());
  const auto done = cluster.results.Await("a").done;
  CHECK(done.computed_tokens == 48);  // whole blocks
  CHECK(done.bytes_pushed == 0);
  CHECK(cluster.worker->Load().blocks.cached == 3);
}

TEST_CASE("A prompt with KV in host memory computes only the rest and gives the right token") {
  Cluster cluster(8, 7, 1000, absl::Minutes(10), {.host = 16});
  const auto run = [&](const RequestId& id, const std::vector<TokenId>& prompt) {
    CHECK_FALSE(cluster.worker->Submit(Cluster::Job(id, prompt)).has_value());
    const PrefillDone done = cluster.results.Await(id).done;
    CHECK(*cluster.FirstToken(done, prompt) == FakeBackend::NextToken(prompt));
    return done;
  };
  std::vector<TokenId> prompt = Prompt(97, 1);
  CHECK(run("first", prompt).computed_tokens == 96);
  CHECK(run("other", Prompt(97, 2)).cached_tokens == 0);  // evicts at least four of the six blocks
  prompt.push_back(3);
  const PrefillDone again = run("again", prompt);
  CHECK(again.cached_tokens == 96);
  CHECK(again.computed_tokens == 1);
  CHECK(cluster.worker->Load().totals.tokens.host >= 64);
}

TEST_CASE("A prompt with KV on disk computes only the rest and gives the right token") {
  Cluster cluster(8, 7, 1000, absl::Minutes(10), {.host = 16, .disk = 64});
  const auto run = [&](int number) {
    const std::vector<TokenId> prompt = Prompt(97, static_cast<TokenId>(number));
    const RequestId id = absl::StrCat(number, " ", cluster.results.size());
    CHECK_FALSE(cluster.worker->Submit(Cluster::Job(id, prompt)).has_value());
    const PrefillDone done = cluster.results.Await(id).done;
    CHECK(*cluster.FirstToken(done, prompt) == FakeBackend::NextToken(prompt));
    return done;
  };
  for (int number = 0; number < 8; ++number) {
    run(number);
    // The disk may be slow, so wait until its writes have ended before more blocks are evicted.
    for (auto load = cluster.worker->Load(); load.staged.disk < 6 * number - 10 || load.staged.writing > 0;
         load = cluster.worker->Load()) {
      std::this_thread::yield();
    }
  }
  CHECK(run(0).cached_tokens == 96);
  CHECK(cluster.worker->Load().totals.tokens.disk == 96);
}

TEST_CASE("An unreachable decode worker fails its request and nothing else") {
  Cluster cluster;
  REQUIRE_FALSE(cluster.worker->Submit(Cluster::Job("lost", Prompt(40), "nobody")).has_value());
  CHECK(absl::IsUnavailable(cluster.results.Await("lost").status));
  REQUIRE_FALSE(cluster.worker->Submit(Cluster::Job("well", Prompt(40))).has_value());
  CHECK(cluster.results.Await("well").status.ok());
  cluster.worker->Shutdown(absl::InfiniteDuration());
  CHECK(cluster.worker->Load().blocks.referenced == 0);
}

TEST_CASE("A decode worker that hangs when its connection opens delays no other") {
  Cluster cluster;
  // Released even if a check fails.
  const absl::Cleanup resume = [&] { cluster.connector.resume.release(); };
  cluster.connector.HangAt(cluster.other_decode.descriptor(), HangingConnector::When::kOpened);
  REQUIRE_FALSE(cluster.worker->Submit(Cluster::Job("waits", Prompt(40), "hangs")).has_value());
  cluster.connector.hanging.acquire();
  REQUIRE_FALSE(cluster.worker->Submit(Cluster::Job("well", Prompt(40))).has_value());
  CHECK(cluster.results.Await("well").status.ok());
  CHECK(cluster.results.size() == 1);
  cluster.connector.resume.release();
  CHECK(absl::IsUnavailable(cluster.results.Await("waits").status));
  cluster.worker->Shutdown(absl::InfiniteDuration());
  CHECK(cluster.worker->Load().blocks.referenced == 0);
}

TEST_CASE("A decode worker that hangs when its connection closes delays no other") {
  Cluster cluster;
  // Released even if a check fails.
  const absl::Cleanup resume = [&] { cluster.connector.resume.release(2); };
  cluster.connector.HangAt(cluster.other_decode.descriptor(), HangingConnector::When::kClosed);
  // The push fails, so the connection is closed.
  REQUIRE_FALSE(cluster.worker->Submit(Cluster::Job("fails", Prompt(40), "hangs")).has_value());
  cluster.connector.hanging.acquire();
  REQUIRE_FALSE(cluster.worker->Submit(Cluster::Job("well", Prompt(40))).has_value());
  CHECK(cluster.results.Await("well").status.ok());
  cluster.connector.resume.release();
  CHECK(absl::IsUnavailable(cluster.results.Await("fails").status));
  cluster.worker->Shutdown(absl::InfiniteDuration());
  CHECK(cluster.worker->Load().blocks.referenced == 0);
}

TEST_CASE("PrefillWorker refuses a request over the limit with retry_after") {
  Cluster cluster(64, 64, 2);
  REQUIRE_FALSE(cluster.worker->Submit(Cluster::Job("waits", Prompt(17, 2), "silent")).has_value());
  REQUIRE_FALSE(cluster.worker->Submit(Cluster::Job("waits too", Prompt(17, 3), "silent")).has_value());
  const auto refusal = cluster.worker->Submit(Cluster::Job("refused", Prompt(17, 4)));
  REQUIRE(refusal.has_value());
  CHECK(absl::IsResourceExhausted(refusal->status));
  CHECK_FALSE(refusal->no_room_to_decode);
  CHECK(refusal->retry_after > absl::ZeroDuration());
  CHECK(cluster.worker->Load().requests == 2);
  cluster.worker->Cancel("waits");
  cluster.worker->Cancel("waits too");
  cluster.results.Await("waits");
  cluster.results.Await("waits too");
  cluster.silent->AnswerAll();
}

TEST_CASE("Shutdown fails late requests with UNAVAILABLE and refuses new ones") {
  Cluster cluster;
  REQUIRE_FALSE(cluster.worker->Submit(Cluster::Job("waits", Prompt(33, 9), "silent")).has_value());
  std::thread peer([&] {
    CHECK(absl::IsUnavailable(cluster.results.Await("waits").status));
    CHECK(cluster.results.Await("waits").status.message().find("shut down") != std::string_view::npos);
    cluster.silent->AnswerAll();
  });
  cluster.worker->Shutdown(absl::Milliseconds(20));
  peer.join();
  CHECK(absl::IsResourceExhausted(cluster.worker->Submit(Cluster::Job("late", Prompt(33)))->status));
  CHECK(cluster.worker->Load().blocks.referenced == 0);
}

TEST_CASE("Shutdown does not wait for streaming prompts") {
  Cluster cluster;
  PrefillJob streaming = Cluster::Job("growing", Prompt(33, 9));
  streaming.streaming = true;
  REQUIRE_FALSE(cluster.worker->Submit(streaming).has_value());
  cluster.worker->Shutdown(absl::Hours(1));
  CHECK(absl::IsUnavailable(cluster.results.Await("growing").status));
  CHECK(cluster.worker->Load().blocks.referenced == 0);
}

TEST_CASE("Every request has one result when many threads submit and cancel") {
  const bool verify = GENERATE(false, true);
  ForEachSeed(1, [verify](uint64_t seed) {
    Cluster cluster(14, 60, 1000, absl::Minutes(10), {.host = 6, .disk = 20}, verify);
    constexpr int kThreads = 4, kRequests = 40;
    std::atomic<int> accepted = 0, right = 0, wrong = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(kThreads * seed + static_cast<uint64_t>(t));
        for (int i = 0; i < kRequests; ++i) {
          const RequestId id = absl::StrCat(t, "-", i);
          const auto prompt = Prompt(1 + random() % 150, static_cast<TokenId>(random() % 3));
          const bool cancel = random() % 4 == 0;
          if (cluster.worker->Submit(Cluster::Job(id, prompt))) continue;
          ++accepted;
          if (cancel) cluster.worker->Cancel(id);
          const auto result = cluster.results.Await(id);
          if (!result.status.ok()) continue;
          const auto token = cluster.FirstToken(result.done, prompt);
          // If all blocks are in use, the decode worker may have none for the token itself.
          if (token.ok()) ++(*token == FakeBackend::NextToken(prompt) ? right : wrong);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    cluster.worker->Shutdown(absl::InfiniteDuration());
    CHECK(cluster.results.size() == static_cast<size_t>(accepted));
    CHECK(wrong == 0);
    CHECK(right > 0);
    const PrefillLoad load = cluster.worker->Load();
    CHECK(load.requests == 0);
    CHECK(load.blocks.referenced == 0);
    CHECK(load.totals.done + load.totals.failed == accepted);
    cluster.decode.With([](FakeDecodeWorker& worker, absl::Time) { worker.CheckInvariants(); });
  });
}

}  // namespace
}  // namespace baton
