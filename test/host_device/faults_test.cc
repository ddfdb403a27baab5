// Tests of passes in which CUDA refuses a call, and of workers whose device has failed.
#include "backend/cuda/cuda_test_device.h"
#include "child_process.h"
#include "host_device/stream.h"

namespace baton {
namespace {

constexpr int64_t kPrompt = 40, kDecoded = 12;

// Prefill and decode of streams that arrive one after another. The steps cover all cases: run
// directly, captured, replayed, enqueued early, and larger than all steps before.
class Workload {
 public:
  explicit Workload(const Weights& weights) : device_(weights, /*same_bits=*/false) {
    for (uint32_t i = 0; i < 3; ++i) {
      streams_.push_back(device_.Place(RandomTokens(kPrompt + kDecoded, weights.config.vocab, i)));
    }
  }

  // The results of all passes, and how often a first attempt failed.
  struct Record {
    std::vector<std::vector<float>> results;
    int64_t failed = 0;       // passes that failed and were repeated
    int64_t not_started = 0;  // steps that could have been enqueued early and were not
  };
  Record Run() {
    Record record;
    for (int64_t step = 0; step < kDecoded; ++step) {
      if (step % 4 == 0) {
        const TestSequence& comes = streams_[static_cast<size_t>(step / 4)];
        Prefill({{comes.Slice(0, 20, false)}}, record);
        Prefill({{comes.Slice(20, kPrompt, true)}}, record);
      }
      Decode(step, record);
    }
    return record;
  }

 private:
  static constexpr SampleSpec kGreedy{.draw = {.temperature = 0}};

  void Prefill(const Batch& batch, Record& record) {
    const auto view = Pass(
        batch, [] { return nullptr; }, record);
    record.results.emplace_back(view.data, view.data + view.rows * view.vocab);
  }

  // The decode step of all streams that have arrived. Each stream decodes its own token.
  Batch StepOf(int64_t step) const {
    Batch batch;
    for (int64_t i = 0; i <= step / 4; ++i) {
      const int64_t position = kPrompt + step - 4 * i;
      batch.slices.push_back(streams_[static_cast<size_t>(i)].Slice(position, position + 1, true));
      batch.slices.back().sample = &kGreedy;
    }
    return batch;
  }

  void Decode(int64_t step, Record& record) {
    Batch batch = StepOf(step), next;
    batch.started = started_;
    // A stream arrives after every fourth step, so no step is enqueued before that step's end.
    const bool ahead = step % 4 < 3;
    if (ahead) next = StepOf(step + 1);
    for (size_t i = 0; i < next.slices.size(); ++i) next.slices[i].follows = static_cast<int32_t>(i);
    const auto view = Pass(
        batch, [&] { return ahead ? &next : nullptr; }, record);
    record.not_started += ahead && !started_;
    for (size_t i = 0; i < batch.slices.size(); ++i) {
      const SampledToken chosen = view.sampled[i];
      record.results.push_back({static_cast<float>(chosen.id), chosen.logprob});
      std::vector<TokenId>& tokens = streams_[i].tokens;
      if (batch.slices[i].start + 1 < std::ssize(tokens)) tokens[batch.slices[i].start + 1] = chosen.id;
    }
  }

  LogitsView Pass(Batch batch, absl::FunctionRef<const Batch*()> next, Record& record) {
    const auto forward = [&] { return device_->Forward(batch, [](int64_t) { return true; }, {[] {}, next}); };
    auto view = forward();
    if (!view.ok()) {
      ++record.failed;
      batch.started = false;
      // A smaller pass before the repetition must find its memory, however much the failed pass
      // reserved.
      if (batch.slices[0].sample != nullptr)
        REQUIRE(device_->Forward({{batch.slices[0]}}, [](int64_t) { return true; }).ok());
      view = forward();
    }
    INFO(view.status().ToString());
    REQUIRE(view.ok());
    started_ = view->next_started;
    return *view;
  }

  Device device_;
  std::vector<TestSequence> streams_;
  bool started_ = false;  // whether the next pass has begun
};

TEST_CASE("CudaBackend repeats a pass with the same bits after any one refused call", "[many]") {
  const RandomWeights weights(LlamaShape(DType::kBF16), 5);
  const Workload::Record expected = Workload(weights).Run();
  REQUIRE((expected.failed == 0 && expected.not_started == 0));
  int64_t calls = 0, failed = 0, not_started = 0, without_graph = 0;
  for (auto fault = host_device::Fault::kOther; fault != host_device::Fault::kNone; ++calls) {
    INFO("the call after " << calls);
    Workload workload(weights);
    host_device::FailAfter(calls);
    const Workload::Record record = workload.Run();
    fault = host_device::EndFaults();
    CHECK(record.results == expected.results);
    const bool of_graph = fault == host_device::Fault::kOfGraph;
    CHECK(record.failed + record.not_started <= (of_graph ? 0 : 1));
    failed += record.failed;
    not_started += record.not_started;
    without_graph += of_graph;
  }
  CHECK(failed > 100);
  CHECK(not_started > 30);
  CHECK(without_graph > 20);
}

TEST_CASE("CudaBackend ends the process with a message when its device has failed") {
  const RandomWeights weights(LlamaShape(DType::kBF16), 5);
  Workload workload(weights);
  for (const int64_t calls : {0, 3, 30, 100}) {
    INFO("the call after " << calls);
    const ChildEnd end = RunInChild([&] {
      host_device::FailAfter(calls, /*permanent=*/true);
      workload.Run();
    });
    INFO(end.stderr_text);
    CHECK(end.aborted);
    CHECK(end.stderr_text.find("the device has failed") != std::string::npos);
  }
}

}  // namespace
}  // namespace baton
