// The time of swaps in the load of a DecodeWorker.
#include <condition_variable>
#include <cstring>
#include <latch>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "catch.h"
#include "engine/decode/worker.h"
#include "world/decode_world.h"

namespace baton {
namespace {

// A backend whose swaps take three seconds of the clock. Records the worker's load during a swap
// and in the computation after it.
class SwappingBackend final : public Backend {
 public:
  SwappingBackend(int64_t blocks, ManualClock& clock) : inner_(blocks), memory_(this), clock_(clock) {}
  std::span<std::byte> host() { return inner_.kv_slab().host(); }
  const KvLayout& kv_layout() const override { return inner_.kv_layout(); }
  Slab kv_slab() override { return {inner_.kv_slab().host(), static_cast<const SlabAccess*>(&memory_)}; }
  std::string numerics_id() const override { return inner_.numerics_id(); }
  absl::StatusOr<LogitsView> Forward(const Batch& batch, absl::FunctionRef<bool(int64_t)> layer_done,
                                     const Meanwhile& meanwhile) override {
    started.wait();
    if (during_swap && !after_swap) after_swap = worker->Load();
    return inner_.Forward(batch, layer_done, meanwhile);
  }

  DecodeWorker* worker = nullptr;
  std::latch started{1};  // steps wait until the test has started all requests
  std::optional<DecodeEngine::Load> during_swap, after_swap;

 private:
  struct Memory final : SlabAccess {
    explicit Memory(SwappingBackend* owner) : backend(owner) {}
    absl::Status Copy(std::span<const MemoryCopy> copies) const override {
      if (copies.empty()) return absl::OkStatus();
      for (const MemoryCopy& copy : copies) std::memcpy(copy.to, copy.from, copy.bytes);
      backend->clock_.Advance(absl::Seconds(3));
      if (!backend->during_swap) backend->during_swap = backend->worker->Load();
      return absl::OkStatus();
    }
    absl::StatusOr<HostMemory> AllocateHost(size_t bytes) const override { return HostMemory(new std::byte[bytes]); }
    SwappingBackend* backend;
  };

  FakeBackend inner_;
  const Memory memory_;
  ManualClock& clock_;
};

// Waits for the ends of requests.
class Ends final : public DecodeListener {
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
  void OnRoom(const RoomReport&) override {}
  Output WaitFor(const RequestId& id) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return outputs_[id].ended(); });
    return outputs_[id];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, Output> outputs_;
};

TEST_CASE("DecodeWorker counts no swap as step time once its copies are complete") {
  const std::vector<std::vector<TokenId>> prompts{std::vector<TokenId>(10, 1), std::vector<TokenId>(10, 2)};
  ManualClock clock;
  SwappingBackend backend(4, clock);
  Ends ends;
  DecodeWorkerOptions options;
  options.engine = TestOptions(4);
  DecodeWorker worker(std::move(options), backend, ends, clock);
  backend.worker = &worker;
  REQUIRE(worker.OnLink(TestLink()).ok());
  // Both jobs fit when they are reserved, and have not enough blocks to grow together.
  std::vector<DecodeJob> jobs{TestJob("a", prompts[0], 1), TestJob("b", prompts[1], 1)};
  for (DecodeJob& job : jobs) {
    REQUIRE(HandOff(
        job, backend.host(), [&](const ReserveRequest& r) { return worker.OnReserve(r); },
        [&](const Commit& c) { return worker.OnCommit(c); }));
    job.spec.sampling.max_tokens = 45;
  }
  for (const DecodeJob& job : jobs) REQUIRE(worker.Start(job).ok());
  backend.started.count_down();
  for (size_t i = 0; i < jobs.size(); ++i) {
    CHECK(ends.WaitFor(jobs[i].request_id).tokens == FakeBackend::Greedy(prompts[i], 45));
  }
  worker.Shutdown(absl::ZeroDuration());
  REQUIRE(backend.after_swap.has_value());
  CHECK(backend.during_swap->step_time == absl::Seconds(3));
  CHECK(backend.during_swap->step_forecast > absl::ZeroDuration());
  CHECK(backend.after_swap->step_time == absl::ZeroDuration());
  CHECK(backend.after_swap->step_forecast == absl::ZeroDuration());
}

}  // namespace
}  // namespace baton
