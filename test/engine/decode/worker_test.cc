#include "engine/decode/worker.h"

#include <atomic>
#include <condition_variable>
#include <latch>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "catch.h"
#include "world/decode_world.h"

namespace baton {
namespace {

class Recorder final : public DecodeListener {
 public:
  void OnUpdates(std::span<TokenUpdate> updates) override {
    const std::lock_guard lock(mutex_);
    Collect(updates, outputs_);
    changed_.notify_all();
  }
  void OnFailed(const RequestFailed& failed) override {
    const std::lock_guard lock(mutex_);
    Collect(failed, outputs_);
    changed_.notify_all();
  }
  void OnRoom(const RoomReport& room) override {
    const std::lock_guard lock(mutex_);
    room_ += room.requests;
    changed_.notify_all();
  }
  void WaitForRoom() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return room_ > 0; });
  }
  Output WaitForEnd(const RequestId& id) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return outputs_[id].ended(); });
    return outputs_[id];
  }
  void WaitForTokens(const RequestId& id, size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return outputs_[id].tokens.size() >= count; });
  }
  size_t ended() {
    const std::lock_guard lock(mutex_);
    return static_cast<size_t>(
        std::count_if(outputs_.begin(), outputs_.end(), [](auto& o) { return o.second.ended(); }));
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t room_ = 0;
  std::map<RequestId, Output> outputs_;
};

// Holds a step inside Forward, as if a device computed it, until the test lets it pass.
class GatedBackend final : public Backend {
 public:
  explicit GatedBackend(int64_t blocks) : inner_(blocks) {}
  const KvLayout& kv_layout() const override { return inner_.kv_layout(); }
  Slab kv_slab() override { return inner_.kv_slab(); }
  std::string numerics_id() const override { return inner_.numerics_id(); }
  absl::StatusOr<LogitsView> Forward(const Batch& batch, absl::FunctionRef<bool(int64_t)> layer_done,
                                     const Meanwhile& meanwhile) override {
    meanwhile.work();
    {
      std::unique_lock lock(mutex_);
      ++arrived_;
      changed_.notify_all();
      changed_.wait(lock, [this] { return open_ || passes_ > 0; });
      if (!open_) --passes_;
    }
    return inner_.Forward(batch, layer_done, {[] {}, meanwhile.next});
  }
  void Set(bool open) {
    const std::lock_guard lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }
  // Lets one step pass.
  void Pass() {
    const std::lock_guard lock(mutex_);
    ++passes_;
    changed_.notify_all();
  }
  void WaitForArrivals(int64_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return arrived_ >= count; });
  }

 private:
  FakeBackend inner_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
  int64_t passes_ = 0;
  int64_t arrived_ = 0;
};

DecodeWorkerOptions WorkerOptions() {
  DecodeWorkerOptions options;
  options.engine = TestOptions(0);  // the worker sets these fields from the backend
  options.engine.handoff.layout = {};
  options.engine.handoff.numerics_id = "";
  return options;
}

std::vector<TokenId> SeededPrompt(uint32_t seed, size_t length) {
  std::mt19937 rng(seed);
  std::vector<TokenId> prompt(length);
  for (TokenId& t : prompt) t = static_cast<TokenId>(rng() % FakeBackend::kVocab);
  return prompt;
}

bool TryHandOff(DecodeWorker& worker, Backend& backend, DecodeJob& job) {
  return HandOff(
      job, backend.kv_slab().host(), [&](const ReserveRequest& r) { return worker.OnReserve(r); },
      [&](const Commit& c) { return worker.OnCommit(c); });
}

void StartJob(DecodeWorker& worker, Backend& backend, DecodeJob job) {
  while (!TryHandOff(worker, backend, job)) std::this_thread::yield();
  const absl::Status started = worker.Start(std::move(job));
  REQUIRE(started.ok());
}

TEST_CASE("DecodeWorker gives the same output when many threads start requests") {
  const SteadyClock clock;
  const bool backend_samples = GENERATE(false, true);
  const auto ahead = GENERATE(FakeBackend::Ahead::kNever, FakeBackend::Ahead::kLate);
  const bool verify = GENERATE(false, true);
  for (const int threads : {1, 3}) {
    FakeBackend backend(12);
    backend.samples = backend_samples;
    backend.ahead = ahead;
    Recorder recorder;
    DecodeWorkerOptions options = WorkerOptions();
    options.engine.max_batch = 5;
    options.engine.handoff.verify = verify;
    options.sampling_threads = threads;
    if (threads > 1) {
      options.parallel_for = [](int64_t n, absl::FunctionRef<void(int64_t)> body) {
        std::vector<std::thread> parts;
        for (int64_t i = 0; i < n; ++i) parts.emplace_back([&body, i] { body(i); });
        for (std::thread& part : parts) part.join();
      };
    }
    DecodeWorker worker(std::move(options), backend, recorder, clock);
    REQUIRE(worker.OnLink(TestLink()).ok());
    std::vector<std::thread> clients;
    std::atomic<int> wrong = 0;
    for (uint32_t c = 0; c < 3; ++c) {
      clients.emplace_back([&, c] {
        for (uint32_t i = 0; i < 5; ++i) {
          const std::vector<TokenId> prompt = SeededPrompt(10 * c + i, 5 + 9 * i);
          DecodeJob job = TestJob(absl::StrCat(c, ".", i), prompt, 20);
          if (i % 2 == 1) job.spec.sampling.logprobs = c;  // with 0, the backend may still sample
          while (!TryHandOff(worker, backend, job)) std::this_thread::yield();
          if (!worker.Start(job).ok()) ++wrong;
          if (recorder.WaitForEnd(job.request_id).tokens != FakeBackend::Greedy(prompt, 20)) ++wrong;
        }
      });
    }
    for (std::thread& client : clients) client.join();
    CHECK(wrong == 0);
    worker.Shutdown(absl::InfiniteDuration());
    const DecodeEngine::Load load = worker.Load();
    CHECK(load.finished == 15);
    CHECK(load.tokens_out == 300);
    CHECK(load.running == 0);
    CHECK((load.steps_ahead > 0) == (backend_samples && ahead == FakeBackend::Ahead::kLate));
    CHECK(load.blocks.free + load.blocks.cached == load.blocks.total);
  }
}

TEST_CASE("DecodeWorker reports room when a request has ended after a refusal") {
  Recorder recorder;
  const SteadyClock clock;
  GatedBackend backend(32);
  DecodeWorker worker(WorkerOptions(), backend, recorder, clock);
  REQUIRE(worker.OnLink(TestLink()).ok());
  backend.Set(false);
  StartJob(worker, backend, TestJob("a", SeededPrompt(1, 300), 50));
  const ReserveRequest b = ReserveFor(TestJob("b", SeededPrompt(2, 300), 50));
  REQUIRE(std::holds_alternative<Wait>(worker.OnReserve(b).value()));
  backend.Set(true);
  recorder.WaitForRoom();
  CHECK(recorder.ended() == 1);
  CHECK(std::holds_alternative<Reserved>(worker.OnReserve(b).value()));
}

TEST_CASE("DecodeWorker delivers all updates of a step in one call") {
  class Spans final : public DecodeListener {
   public:
    void OnUpdates(std::span<TokenUpdate> updates) override { sizes.push_back(updates.size()); }
    void OnFailed(const RequestFailed&) override {}
    void OnRoom(const RoomReport&) override {}
    std::vector<size_t> sizes;
  } spans;
  const SteadyClock clock;
  GatedBackend backend(32);
  DecodeWorker worker(WorkerOptions(), backend, spans, clock);
  REQUIRE(worker.OnLink(TestLink()).ok());
  backend.Set(false);
  StartJob(worker, backend, TestJob("a", SeededPrompt(1, 9), 1));
  backend.WaitForArrivals(1);  // the step of "a" runs; the next three requests share the next step
  for (const char* id : {"b", "c", "d"}) StartJob(worker, backend, TestJob(id, SeededPrompt(2, 9), 2));
  backend.Set(true);
  worker.Shutdown(absl::InfiniteDuration());
  // The start of "a"; its token and three starts; the tokens of two steps.
  CHECK(spans.sizes == std::vector<size_t>{1, 4, 3, 3});
}

TEST_CASE("DecodeWorker delivers steps in order while the next step runs") {
  class Slow final : public DecodeListener {
   public:
    void OnUpdates(std::span<TokenUpdate> updates) override {
      if (updates[0].tokens.empty()) return;  // the start of the request
      std::unique_lock lock(mutex_);
      tokens.insert(tokens.end(), updates[0].tokens.begin(), updates[0].tokens.end());
      changed_.wait(lock, [this] { return open_; });
      running.push_back(worker->Load().running);  // a listener may call the worker
    }
    void OnFailed(const RequestFailed&) override {}
    void OnRoom(const RoomReport&) override {}
    void Open() {
      const std::lock_guard lock(mutex_);
      open_ = true;
      changed_.notify_all();
    }
    DecodeWorker* worker = nullptr;
    std::vector<TokenId> tokens;  // read after Shutdown
    std::vector<int64_t> running;

   private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool open_ = false;
  } slow;
  const SteadyClock clock;
  GatedBackend backend(32);
  DecodeWorker worker(WorkerOptions(), backend, slow, clock);
  slow.worker = &worker;
  REQUIRE(worker.OnLink(TestLink()).ok());
  const std::vector<TokenId> prompt = SeededPrompt(1, 9);
  StartJob(worker, backend, TestJob("a", prompt, 20));
  backend.WaitForArrivals(2);
  std::thread closing([&] { worker.Shutdown(absl::InfiniteDuration()); });
  slow.Open();
  closing.join();
  CHECK(slow.tokens == FakeBackend::Greedy(prompt, 20));
  CHECK(slow.running.size() == 20);
}

TEST_CASE("DecodeWorker delivers updates while the device computes") {
  const SteadyClock clock;
  GatedBackend backend(32);
  Recorder recorder;
  DecodeWorker worker(WorkerOptions(), backend, recorder, clock);
  REQUIRE(worker.OnLink(TestLink()).ok());
  backend.Set(false);
  StartJob(worker, backend, TestJob("a", SeededPrompt(1, 9), 3));
  backend.WaitForArrivals(1);
  StartJob(worker, backend, TestJob("b", SeededPrompt(2, 9), 1));
  for (size_t steps = 1; steps <= 2; ++steps) {
    backend.Pass();
    backend.WaitForArrivals(static_cast<int64_t>(steps) + 1);
    recorder.WaitForTokens("a", steps);
  }
  CHECK(recorder.WaitForEnd("b").tokens == FakeBackend::Greedy(SeededPrompt(2, 9), 1));
  backend.Pass();  // no step follows this one
  CHECK(recorder.WaitForEnd("a").tokens == FakeBackend::Greedy(SeededPrompt(1, 9), 3));
}

TEST_CASE("DecodeWorker measures the steps that score prompts beside sequences") {
  ManualClock clock;
  std::latch all_started(1);
  std::map<int32_t, size_t> chunks;  // sizes by start; read after Shutdown
  FakeBackend backend(32);
  backend.at_layer = [&](int64_t layer) {
    if (layer == 0) all_started.wait();
  };
  backend.at_logits = [&](const SequenceSlice& slice, std::span<float>) {
    if (!slice.all_logits) return;
    chunks[slice.start] = slice.tokens.size();
    clock.Advance(absl::Seconds(1));
  };
  Recorder recorder;
  DecodeWorkerOptions options = WorkerOptions();
  options.engine.shares_output = true;
  DecodeWorker worker(std::move(options), backend, recorder, clock);
  REQUIRE(worker.OnLink(TestLink()).ok());
  StartJob(worker, backend, TestJob("neighbour", SeededPrompt(1, 5), 20));
  DecodeJob job = TestJob("r", SeededPrompt(2, 4), 0);
  job.spec.sampling.prompt_logprobs = 1;
  REQUIRE(worker.Start(job).ok());
  all_started.count_down();
  CHECK(recorder.WaitForEnd("r").prompt->logprobs.size() == 3);
  worker.Shutdown(absl::InfiniteDuration());
  CHECK(chunks == std::map<int32_t, size_t>{{0, 1}, {1, 1}, {2, 1}});
}

TEST_CASE("DecodeWorker answers messages while a step computes") {
  const SteadyClock clock;
  GatedBackend backend(32);
  Recorder recorder;
  DecodeWorker worker(WorkerOptions(), backend, recorder, clock);
  REQUIRE(worker.OnLink(TestLink()).ok());
  CHECK(worker.Load().step_time == absl::ZeroDuration());
  backend.Set(false);
  StartJob(worker, backend, TestJob("a", SeededPrompt(1, 20), 100));
  backend.WaitForArrivals(1);
  CHECK(worker.Load().step_time > absl::ZeroDuration());
  DecodeJob other = TestJob("b", SeededPrompt(2, 20), 5);
  CHECK(TryHandOff(worker, backend, other));
  CHECK(worker.OnHeartbeat({.writer = kWriter, .active = {}}).ok());
  CHECK(worker.Load().running == 1);
  CHECK(worker.Load().committed == 1);
  worker.Cancel("a");
  worker.Cancel("b");
  CHECK(worker.Load().committed == 0);
  backend.Set(true);
  const Output a = recorder.WaitForEnd("a");
  CHECK(a.finish == FinishReason::kCancelled);
  CHECK(a.tokens.size() == 1);
}

TEST_CASE("DecodeWorker::Shutdown lets started requests end within the grace") {
  const SteadyClock clock;
  GatedBackend backend(32);
  Recorder recorder;
  DecodeWorker worker(WorkerOptions(), backend, recorder, clock);
  REQUIRE(worker.OnLink(TestLink()).ok());
  DecodeJob late = TestJob("late", SeededPrompt(3, 20), 5);
  REQUIRE(TryHandOff(worker, backend, late));

  const DecodeJob refused = TestJob("refused", SeededPrompt(4, 20), 5);
  const auto has_room = [&] {
    const absl::StatusOr<ReserveReply> reply = worker.OnReserve(ReserveFor(refused));
    if (!reply.ok()) return false;
    const auto* reserved = std::get_if<Reserved>(&*reply);
    if (reserved != nullptr) worker.OnRelease({reserved->reservation});
    return reserved != nullptr;
  };
  REQUIRE(has_room());

  SECTION("started requests finish when the grace is long enough") {
    StartJob(worker, backend, TestJob("a", SeededPrompt(1, 20), 30));
    std::thread closing([&] { worker.Shutdown(absl::InfiniteDuration()); });
    while (has_room()) std::this_thread::yield();
    const absl::Status started = worker.Start(late);
    closing.join();
    REQUIRE(started.ok());
    CHECK(recorder.WaitForEnd("a").tokens.size() == 30);
    CHECK(recorder.WaitForEnd("late").tokens.size() == 5);
    CHECK(recorder.ended() == 2);
  }
  SECTION("a started request fails when the grace is zero") {
    backend.Set(false);
    StartJob(worker, backend, TestJob("a", SeededPrompt(1, 20), 30));
    backend.WaitForArrivals(1);
    std::thread closing([&] { worker.Shutdown(absl::ZeroDuration()); });
    while (has_room()) std::this_thread::yield();
    backend.Set(true);
    closing.join();
    CHECK(recorder.ended() == 1);
    const Output a = recorder.WaitForEnd("a");
    CHECK(a.failure.code() == absl::StatusCode::kUnavailable);
    CHECK(worker.Start(late).code() == absl::StatusCode::kUnavailable);
  }
  const auto ended = recorder.ended();
  CHECK_FALSE(has_room());
  worker.Shutdown(absl::ZeroDuration());
  CHECK(recorder.ended() == ended);
}

TEST_CASE("DecodeWorker plans the next step late") {
  // Only the step's thread uses this clock.
  class SleepyClock final : public Clock {
   public:
    absl::Time Now() const override { return now; }
    void SleepUntil(absl::Time time) const override { sleeps.push_back(time - now); }
    absl::Time now = absl::UnixEpoch();
    mutable std::vector<absl::Duration> sleeps;
  } clock;
  FakeBackend backend(32);
  backend.samples = true;
  backend.ahead = FakeBackend::Ahead::kAtOnce;
  // Each step takes 8 ms.
  backend.at_logits = [&](const SequenceSlice&, std::span<float>) { clock.now += absl::Milliseconds(8); };
  Recorder recorder;
  DecodeWorker worker(WorkerOptions(), backend, recorder, clock);
  REQUIRE(worker.OnLink(TestLink()).ok());
  StartJob(worker, backend, TestJob("a", SeededPrompt(1, 9), 100));
  worker.Shutdown(absl::InfiniteDuration());
  REQUIRE(clock.sleeps.size() == 99);  // one for each step but the last
  CHECK(worker.Load().steps_ahead == 99);
  CHECK(clock.sleeps.back() == absl::Milliseconds(8) - StepPace::kMinMargin);
}

TEST_CASE("DecodeWorker counts no step as ahead when the device waited for it") {
  const SteadyClock clock;
  FakeBackend backend(32);
  backend.samples = backend.waits = true;
  backend.ahead = FakeBackend::Ahead::kLate;
  Recorder recorder;
  DecodeWorker worker(WorkerOptions(), backend, recorder, clock);
  REQUIRE(worker.OnLink(TestLink()).ok());
  StartJob(worker, backend, TestJob("a", SeededPrompt(1, 9), 10));
  worker.Shutdown(absl::InfiniteDuration());
  CHECK(backend.steps_ahead() == 9);
  CHECK(worker.Load().steps_ahead == 0);
}

TEST_CASE("DecodeWorker::Shutdown ends an enqueued step before it releases blocks") {
  const SteadyClock clock;
  FakeBackend backend(32);
  backend.samples = true;
  backend.ahead = FakeBackend::Ahead::kAtOnce;
  std::atomic<int> layers = 0;
  std::atomic<bool> goes_on = false;
  backend.at_layer = [&](int64_t) {
    // Holds the second step, which begins while the first one runs.
    if (++layers == FakeBackend::Layout().layers + 1) goes_on.wait(false);
  };
  Recorder recorder;
  DecodeWorker worker(WorkerOptions(), backend, recorder, clock);
  REQUIRE(worker.OnLink(TestLink()).ok());
  const std::vector<TokenId> prompt = SeededPrompt(1, 9);
  StartJob(worker, backend, TestJob("a", prompt, 50));
  while (layers <= FakeBackend::Layout().layers) std::this_thread::yield();
  std::thread shutdown([&] { worker.Shutdown(absl::ZeroDuration()); });
  while (!absl::IsUnavailable(worker.Start(TestJob("b", prompt, 1)))) std::this_thread::yield();
  goes_on = true;
  goes_on.notify_all();
  shutdown.join();
  const Output output = recorder.WaitForEnd("a");
  CHECK(output.failure == absl::UnavailableError("the decode worker was shut down"));
  CHECK(output.tokens == FakeBackend::Greedy(prompt, 2));
  CHECK(backend.steps_ahead() == 1);
  const BlockPool::Counts blocks = worker.Load().blocks;
  CHECK(blocks.free + blocks.cached == blocks.total);
}

TEST_CASE("DecodeWorker continues a request when a writer releases blocks that it needs") {
  const SteadyClock clock;
  FakeBackend backend(4);
  Recorder recorder;
  DecodeWorker worker(WorkerOptions(), backend, recorder, clock);
  REQUIRE(worker.OnLink(TestLink()).ok());
  const std::vector<TokenId> prompt = SeededPrompt(1, 10);
  DecodeJob job = TestJob("a", prompt, 1);
  REQUIRE(TryHandOff(worker, backend, job));
  const absl::StatusOr<ReserveReply> blocker = worker.OnReserve(ReserveFor(TestJob("blocker", SeededPrompt(2, 30), 1)));
  REQUIRE(std::holds_alternative<Reserved>(*blocker));  // holds two of the other blocks
  job.spec.sampling.max_tokens = 45;
  REQUIRE(worker.Start(job).ok());
  recorder.WaitForTokens("a", 23);  // the two blocks of "a" are full
  worker.Cancel("blocker");
  worker.OnRelease({std::get<Reserved>(*blocker).reservation});
  CHECK(recorder.WaitForEnd("a").tokens == FakeBackend::Greedy(prompt, 45));
}

TEST_CASE("DecodeWorker checks blocks while a step computes") {
  const SteadyClock clock;
  GatedBackend backend(32);
  Recorder recorder;
  DecodeWorkerOptions options = WorkerOptions();
  options.engine.handoff.verify = true;
  DecodeWorker worker(std::move(options), backend, recorder, clock);
  REQUIRE(worker.OnLink(TestLink()).ok());
  backend.Set(false);
  StartJob(worker, backend, TestJob("first", SeededPrompt(1, 5), 3));
  backend.WaitForArrivals(1);

  DecodeJob forged = TestJob("forged", SeededPrompt(2, 40), 3);
  REQUIRE(TryHandOff(worker, backend, forged));
  // Block 0 belongs to the first request, so it is not changed.
  for (std::byte& byte : backend.kv_slab().host()) {
    if (&byte - backend.kv_slab().data() >= FakeBackend::Layout().BlockBytes()) byte ^= std::byte{1};
  }
  REQUIRE(worker.Start(forged).ok());
  // The backend holds the step's thread, so another thread makes the check.
  while (worker.Load().failed_checks == 0) std::this_thread::yield();
  backend.Set(true);
  CHECK(recorder.WaitForEnd("forged").failure.code() == absl::StatusCode::kDataLoss);
  CHECK(recorder.WaitForEnd("first").tokens == FakeBackend::Greedy(SeededPrompt(1, 5), 3));
  worker.Shutdown(absl::InfiniteDuration());
  CHECK(worker.Load().blocks.free == worker.Load().blocks.total);
}

}  // namespace
}  // namespace baton
