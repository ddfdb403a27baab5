// Ranks that compute a model together give the result of one backend and keep its guarantees.
#include "backend/tensor_parallel.h"

#include <cmath>
#include <thread>
#include <vector>

#include "backend/cpu/backend_fixture.h"
#include "backend/cpu/memory_communicator.h"
#include "catch.h"

namespace baton {
namespace {

// Shapes whose KV heads divide evenly among 2 and 4 ranks, and shapes whose KV heads do not.
std::vector<ModelConfig> Shapes(DType dtype) {
  std::vector<ModelConfig> shapes = {LlamaShape(dtype), Qwen2Shape(dtype), Qwen3Shape(dtype)};
  for (ModelConfig& shape : shapes) {
    shape.kv_heads = 4;
    shape.heads = 8;
  }
  shapes.push_back(LlamaShape(dtype));
  shapes.back().kv_heads = 5;
  shapes.back().heads = 15;
  return shapes;
}

// Runs a test with the fastest kernels only, because kernels do not depend on ranks.
template <class Test>
void ForAllShapes(Test test) {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const ModelConfig& shape : Shapes(dtype)) {
      INFO("bytes per weight " << BytesPerElement(dtype) << ", head_dim " << shape.head_dim << ", kv heads "
                               << shape.kv_heads);
      test(RandomWeights(shape, 11));
    }
  }
}

// Runs prompts of several lengths in one step, then decode steps of all of them. Returns all
// logits.
std::vector<float> Steps(TestBackend& backend) {
  std::vector<TestSequence> sequences;
  Batch batch;
  for (const int64_t length : {70, 1, 33}) sequences.push_back(backend.Place(backend.RandomTokens(length + 3)));
  for (const TestSequence& s : sequences) batch.slices.push_back(s.Slice(0, std::ssize(s.tokens) - 3, true));
  std::vector<float> logits = backend.Run(batch);
  for (int64_t left = 3; left > 0; --left) {
    batch.slices.clear();
    for (const TestSequence& s : sequences) {
      batch.slices.push_back(s.Slice(std::ssize(s.tokens) - left, std::ssize(s.tokens) - left + 1, true));
    }
    const std::vector<float> more = backend.Run(batch);
    logits.insert(logits.end(), more.begin(), more.end());
  }
  return logits;
}

}  // namespace

TEST_CASE("A group of two, three or four ranks gives the logits of one") {
  ForAllShapes([](const Weights& weights) {
    TestBackend alone(weights, {});
    const std::vector<float> expected = Steps(alone);
    for (const int ranks : {2, 3, 4}) {
      INFO(ranks << " ranks");
      TestBackend group(weights, {.threads = 4}, /*seed=*/1, ranks);
      // Ranks sum fp32 values in another order. In bf16, another sum may round the other way.
      CHECK(Difference(expected, Steps(group)) < (weights.config.dtype == DType::kF32 ? 2e-5 : 2e-2));
    }
  });
}

TEST_CASE("CPU ranks give unnamed ids the logit -inf, and other ids the same bits") {
  ForAllShapes([](const Weights& weights) {
    const int64_t vocab = weights.config.vocab;
    const std::vector<TokenId> unnamed = {0, 1, 40, static_cast<TokenId>(vocab - 2), static_cast<TokenId>(vocab - 1)};
    for (const int ranks : {1, 2, 3}) {
      INFO(ranks << " ranks");
      TestBackend plain(weights, {}, 1, ranks), masked(weights, {.unnamed = unnamed}, 1, ranks);
      CHECK(SameBits(Masked(Steps(plain), vocab, unnamed), Steps(masked)));
    }
  });
}

TEST_CASE("A group gives the same bits for any chunks, neighbours and threads") {
  ForAllShapes([](const Weights& weights) {
    for (const int ranks : {2, 4}) {
      INFO(ranks << " ranks");
      TestBackend backend(weights, {.threads = 1}, /*seed=*/1, ranks);
      const std::vector<TokenId> tokens = backend.RandomTokens(150);
      const TestSequence whole = backend.Place(tokens);
      const std::vector<float> expected = backend.Run({{whole.Slice(0, 150, true)}});
      const std::vector<std::byte> kv = backend.Kv(whole);

      TestBackend other(weights, {.threads = 4}, /*seed=*/9, ranks);
      const TestSequence cut = other.Place(tokens);
      const TestSequence neighbour = other.Place(other.RandomTokens(90));
      other.Run({{neighbour.Slice(0, 31, false), cut.Slice(0, 17, false)}});
      other.Run({{cut.Slice(17, 149, false)}});
      other.Run({{neighbour.Slice(31, 90, false)}});
      CHECK(SameBits(expected, other.Run({{cut.Slice(149, 150, true)}})));
      CHECK(kv == other.Kv(cut));
    }
  });
}

TEST_CASE("Each rank of a group writes its own heads of the KV that one would write") {
  const RandomWeights weights(LlamaShape(DType::kF32), 5);
  TestBackend group(weights, {.lm_head = false}, /*seed=*/1, /*ranks=*/2), alone(weights, {});
  REQUIRE(group->kv_layout() == alone->kv_layout());
  REQUIRE(group->kv_slab().size() == alone->kv_slab().size());
  const std::vector<TokenId> tokens = group.RandomTokens(40);
  const TestSequence there = group.Place(tokens), here = alone.Place(tokens);
  group.Run({{there.Slice(0, 40, false)}});
  alone.Run({{here.Slice(0, 40, false)}});
  const auto floats = [](const std::vector<std::byte>& bytes) {
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  };
  CHECK(Difference(floats(alone.Kv(here)), floats(group.Kv(there))) < 2e-5);
}

TEST_CASE("A group names its number of ranks in its numerics id") {
  const RandomWeights weights(LlamaShape(DType::kF32), 5);
  // The arguments behind the options are the seed and the number of ranks.
  TestBackend two(weights, {.kernels = "portable"}, 1, 2), one(weights, {.kernels = "portable"});
  CHECK(two->numerics_id() == one->numerics_id() + "-tp2");
}

TEST_CASE("A group ends an aborted pass on all ranks and completes the next one") {
  const RandomWeights weights(LlamaShape(DType::kF32), 5);
  TestBackend backend(weights, {.threads = 2}, /*seed=*/1, /*ranks=*/2);
  const TestSequence sequence = backend.Place(backend.RandomTokens(50));
  const std::vector<float> expected = backend.Run({{sequence.Slice(0, 50, true)}});
  const std::thread::id caller = std::this_thread::get_id();
  for (const int64_t last : {0, 1}) {
    std::vector<int64_t> reported;
    bool elsewhere = false;
    const auto result = backend->Forward({{sequence.Slice(0, 50, true)}}, [&](int64_t layer) {
      reported.push_back(layer);
      elsewhere |= std::this_thread::get_id() != caller;
      return layer < last;
    });
    CHECK(absl::IsAborted(result.status()));
    CHECK(std::ssize(reported) == last + 1);
    CHECK_FALSE(elsewhere);
    CHECK(SameBits(expected, backend.Run({{sequence.Slice(0, 50, true)}})));
  }
}

TEST_CASE("MakeCpuGroup refuses more ranks than KV heads") {
  const RandomWeights weights(LlamaShape(DType::kF32), 5);
  const auto backend = MakeCpuGroup(weights, 3, {}, {.kv_blocks = 4});
  CHECK(backend.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(backend.status().message() == "tensor parallelism: expected 1 to 2 ranks (each needs a KV head), got 3");
}

namespace {

// A rank that may fail at a chosen point of a pass with two collective calls.
class FakeRank final : public Backend {
 public:
  enum class Fails { kNever, kAtFirst, kBetween };
  FakeRank(Communicator& communicator, Fails fails) : communicator_(communicator), fails_(fails) {
    slab_.resize(layout_.BlockBytes());
  }

  const KvLayout& kv_layout() const override { return layout_; }
  Slab kv_slab() override { return std::span(slab_); }
  std::string numerics_id() const override { return "fake"; }

  absl::StatusOr<LogitsView> Forward(const Batch&, absl::FunctionRef<bool(int64_t)> layer_done,
                                     const Meanwhile& meanwhile) override {
    BATON_CHECK(meanwhile.next() == nullptr, "no rank begins the next step");
    const Fails fails = std::exchange(fails_, Fails::kNever);
    if (fails == Fails::kAtFirst) return absl::ResourceExhaustedError("no memory for activations");
    value_ = static_cast<float>(communicator_.rank() + 1);
    communicator_.AllReduceSum(&value_, 1);
    if (fails == Fails::kBetween) return absl::ResourceExhaustedError("no memory for activations");
    if (!layer_done(0)) return absl::AbortedError("broken off");
    communicator_.AllReduceSum(&value_, 1);
    return LogitsView{.data = &value_, .rows = 1, .vocab = 1};
  }

 private:
  Communicator& communicator_;
  Fails fails_;
  float value_ = 0;
  const KvLayout layout_{.layers = 1, .kv_heads = 1, .head_dim = 2};
  std::vector<std::byte> slab_;
};

}  // namespace

TEST_CASE("A rank that fails ends the others' pass with its error, and the next works") {
  using Fails = FakeRank::Fails;
  for (const Fails fails : {Fails::kNever, Fails::kAtFirst, Fails::kBetween}) {
    for (int failing = 0; failing < 3; ++failing) {
      INFO("rank " << failing << ", case " << static_cast<int>(fails));
      std::vector<Rank> ranks;
      for (auto& communicator : MakeMemoryCommunicators(3)) {
        auto backend =
            std::make_unique<FakeRank>(*communicator, communicator->rank() == failing ? fails : Fails::kNever);
        ranks.push_back({std::move(communicator), std::move(backend)});
      }
      const auto made = MakeTensorParallelBackend(std::move(ranks), {.layers = 1, .kv_heads = 3, .head_dim = 2});
      REQUIRE(made.ok());
      Backend* const group = made->get();
      const Batch batch, another;
      const auto next = [&] { return &another; };
      const auto forward = [&] { return group->Forward(batch, [](int64_t) { return true; }, {[] {}, next}); };
      if (fails != Fails::kNever) {
        CHECK(forward().status() == absl::ResourceExhaustedError("no memory for activations"));
      }
      for (int pass = 0; pass < 3; ++pass) {
        const auto result = forward();
        REQUIRE(result.ok());
        CHECK(result->data[0] == 18);  // (1 + 2 + 3) from each of three
      }
    }
  }
}

TEST_CASE("A sum over ranks follows their order whatever else it sums") {
  constexpr int kRanks = 3;
  auto communicators = MakeMemoryCommunicators(kRanks);
  // The result depends on the order of the sum.
  const float values[kRanks] = {1e8f, 1.0f, -1e8f};
  const float expected = (values[0] + values[1]) + values[2];
  REQUIRE(expected != values[0] + values[2] + values[1]);
  const std::vector<int64_t> counts = {1, 2, 7, 1000, 3};
  std::vector<std::vector<float>> results(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      for (const int64_t count : counts) {
        std::vector<float> data(count, values[rank]);
        communicators[rank]->AllReduceSum(data.data(), count);
        results[rank].insert(results[rank].end(), data.begin(), data.end());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<float>& result : results) {
    CHECK(SameBits(result, std::vector<float>(1013, expected)));
  }
}

}  // namespace baton
