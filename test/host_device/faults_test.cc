// What becomes of a pass in which CUDA refuses a call, and of a worker whose device has failed.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "backend/cuda/cuda_test_device.h"
#include "host_device/stream.h"

namespace baton {
namespace {

constexpr int64_t kPrompt = 40, kDecoded = 12;

// Prefill and decode of streams that come one after another, so that steps are computed as they come, captured,
// replayed, foreseen and larger than those before.
class Life {
 public:
  explicit Life(const Weights& weights) : device_(weights, /*same_bits=*/false) {
    for (uint32_t i = 0; i < 3; ++i) {
      streams_.push_back(device_.Place(RandomTokens(kPrompt + kDecoded, weights.config.vocab, i)));
    }
  }

  // Each pass's logits; a pass that fails is made again, and `failed` counts it.
  std::vector<std::vector<float>> Live(int64_t& failed) {
    std::vector<std::vector<float>> all;
    for (int64_t step = 0; step < kDecoded; ++step) {
      if (step % 4 == 0) {
        const TestSequence& comes = streams_[static_cast<size_t>(step / 4)];
        Pass({{comes.Slice(0, 20, false)}}, all, failed);
        Pass({{comes.Slice(20, kPrompt, true)}}, all, failed);
      }
      Batch batch;
      for (int64_t i = 0; i <= step / 4; ++i) {
        const int64_t position = kPrompt + step - 4 * i;
        batch.slices.push_back(streams_[static_cast<size_t>(i)].Slice(position, position + 1, true));
      }
      Pass(std::move(batch), all, failed);
    }
    return all;
  }

 private:
  void Pass(Batch batch, std::vector<std::vector<float>>& all, int64_t& failed) {
    batch.foreseen = foreseen_ && batch.slices[0].tokens.size() == 1;
    foreseen_ = false;
    Batch next = batch;
    const auto foresee = [&]() -> const Batch* {
      if (batch.slices[0].start % 4 == 3) return nullptr;  // another stream comes
      for (SequenceSlice& slice : next.slices) ++slice.start;
      foreseen_ = true;
      return &next;
    };
    const auto forward = [&] { return device_->Forward(batch, [](int64_t) { return true; }, {[] {}, foresee}); };
    auto view = forward();
    if (!view.ok()) {
      ++failed;
      foreseen_ = false;
      next = batch;
      batch.foreseen = false;
      view = forward();
    }
    INFO(view.status().ToString());
    REQUIRE(view.ok());
    all.emplace_back(view->data, view->data + view->rows * view->vocab);
  }

  Device device_;
  std::vector<TestSequence> streams_;
  bool foreseen_ = false;  // the next pass, if it is one of decode
};

TEST_CASE("whichever call is refused once, its pass says so or does without, and made again has the bits that it has",
          "[many]") {
  const RandomWeights weights(LlamaShape(DType::kBF16), 5);
  int64_t failed = 0;
  const std::vector<std::vector<float>> expected = Life(weights).Live(failed);
  REQUIRE(failed == 0);
  int64_t calls = 0, without_graph = 0;
  for (auto fault = host_device::Fault::kOther; fault != host_device::Fault::kNone; ++calls) {
    INFO("the call after " << calls);
    Life life(weights);
    host_device::FailAfter(calls);
    int64_t failed_now = 0;
    const bool same = life.Live(failed_now) == expected;
    fault = host_device::EndFaults();
    CHECK(same);
    const bool of_graph = fault == host_device::Fault::kOfGraph;
    CHECK(failed_now <= (of_graph ? 0 : 1));
    failed += failed_now;
    without_graph += of_graph;
  }
  CHECK(failed > 100);
  CHECK(without_graph > 20);
}

// What a process says that does this, and how it ended.
std::pair<std::string, int> InProcess(absl::FunctionRef<void()> work) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    signal(SIGABRT, SIG_DFL);  // and not the test's framework's
    dup2(ends[1], STDERR_FILENO);
    work();
    _exit(0);
  }
  close(ends[1]);
  std::string said;
  char buffer[1024];
  for (ssize_t got; (got = read(ends[0], buffer, sizeof buffer)) > 0;) said.append(buffer, static_cast<size_t>(got));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return {said, status};
}

TEST_CASE("a worker whose device has failed ends, and says so: nothing that it computes can be trusted") {
  const RandomWeights weights(LlamaShape(DType::kBF16), 5);
  Life life(weights);
  for (const int64_t calls : {0, 3, 30, 100}) {
    INFO("the call after " << calls);
    const auto [said, status] = InProcess([&] {
      host_device::FailAfter(calls, /*for_good=*/true);
      int64_t failed = 0;
      life.Live(failed);
    });
    INFO(said);
    CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT));
    CHECK(said.find("the device has failed") != std::string::npos);
  }
}

}  // namespace
}  // namespace baton
