#include <cmath>
#include <cstring>
#include <vector>

#include "backend/cpu/backend_fixture.h"
#include "backend/cpu/cpu_backend.h"
#include "catch.h"
#include "model/reference_forward.h"

namespace baton {
namespace {

// The largest difference, as a share of the largest logit.
double RelativeError(const std::vector<double>& expected, const std::vector<float>& got) {
  REQUIRE(expected.size() == got.size());
  double error = 0, largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    REQUIRE(std::isfinite(got[i]));
    error = std::max(error, std::abs(expected[i] - got[i]));
    largest = std::max(largest, std::abs(expected[i]));
  }
  return error / largest;
}

}  // namespace

TEST_CASE("CpuBackend gives the logits of the transformer in double precision") {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const ModelConfig& shape : {LlamaShape(dtype), Qwen2Shape(dtype), Qwen3Shape(dtype)}) {
      const RandomWeights weights(shape, 11);
      const std::vector<std::string> names = KernelNames();
      std::vector<TestBackend> backends;
      for (const std::string& kernels : names)
        backends.emplace_back(weights, CpuBackendOptions{.threads = 2, .kernels = kernels});
      for (const int64_t length : {1, 2, 16, 17, 65, 150}) {
        // All backends draw the same tokens, so one reference serves all kernels.
        std::vector<double> expected;
        for (size_t i = 0; i < names.size(); ++i) {
          INFO("kernels " << names[i] << ", bytes per weight " << BytesPerElement(dtype) << ", head_dim "
                          << shape.head_dim << ", tokens " << length);
          TestBackend& backend = backends[i];
          const TestSequence sequence = backend.Place(backend.RandomTokens(length));
          const std::vector<float> logits = backend.Run({{sequence.Slice(0, length, true)}});
          if (expected.empty()) expected = ReferenceForward(weights).Logits(sequence.tokens);
          CHECK(RelativeError(expected, logits) < (dtype == DType::kF32 ? 2e-5 : 3e-2));
        }
      }
    }
  }
}

TEST_CASE("CpuBackend attends across spans") {
  const RandomWeights weights(Qwen3Shape(DType::kF32), 13);
  TestBackend backend(weights, {.threads = 2});
  const TestSequence sequence = backend.Place(backend.RandomTokens(1100));
  const std::vector<float> logits = backend.Run({{sequence.Slice(0, 1100, true)}});
  CHECK(RelativeError(ReferenceForward(weights).Logits(sequence.tokens), logits) < 2e-5);
}

TEST_CASE("CpuBackend reports layers in order, each after its KV is stored") {
  const RandomWeights weights(LlamaShape(DType::kBF16), 7);
  TestBackend backend(weights, {.threads = 2});
  const TestSequence sequence = backend.Place(backend.RandomTokens(20));
  const int64_t layer_bytes = backend->kv_layout().LayerBytes();
  std::vector<std::vector<std::byte>> stored;
  const auto first_block = [&] {
    return backend->kv_slab().data() + sequence.blocks[0].value() * backend->kv_layout().BlockBytes();
  };
  const auto status = backend->Forward({{sequence.Slice(0, 20, true)}}, [&](int64_t layer) {
    REQUIRE(layer == std::ssize(stored));
    const std::byte* begin = first_block() + layer * layer_bytes;
    stored.emplace_back(begin, begin + layer_bytes);
    return true;
  });
  REQUIRE(status.ok());
  REQUIRE(std::ssize(stored) == weights.config.layers);
  for (int64_t layer = 0; layer < weights.config.layers; ++layer) {
    CHECK(std::memcmp(stored[layer].data(), first_block() + layer * layer_bytes, layer_bytes) == 0);
  }
}

TEST_CASE("CpuBackend writes only the slots of its step") {
  const RandomWeights weights(LlamaShape(DType::kBF16), 7);
  TestBackend backend(weights, {.threads = 2});
  const TestSequence sequence = backend.Place(backend.RandomTokens(40));
  backend.Run({{sequence.Slice(0, 20, false)}});
  const std::span<const std::byte> memory = backend->kv_slab().host();
  const std::vector<std::byte> slab(memory.begin(), memory.end());
  backend.Run({{sequence.Slice(20, 23, false)}});
  int64_t changed = 0;
  for (size_t i = 0; i < slab.size(); ++i) changed += slab[i] != memory[i];
  const KvLayout& layout = backend->kv_layout();
  CHECK(changed <= 3 * layout.BlockBytes() / kBlockTokens);
  CHECK(changed > 2 * layout.BlockBytes() / kBlockTokens);
}

TEST_CASE("CpuBackend returns no logits when a batch wants none") {
  const RandomWeights weights(LlamaShape(DType::kBF16), 7);
  TestBackend backend(weights, {});
  const TestSequence sequence = backend.Place(backend.RandomTokens(5));
  CHECK(backend.Run({{sequence.Slice(0, 5, false)}}).empty());
  CHECK(backend.Run({}).empty());
}

TEST_CASE("CpuBackend uses the slab that its caller provides") {
  const RandomWeights weights(LlamaShape(DType::kF32), 7);
  const KvLayout layout = CpuKvLayout(weights.config);
  CHECK(layout.format == KvFormat::kF32);
  std::vector<std::byte> slab(3 * layout.BlockBytes());
  const auto backend = MakeCpuBackend(weights, {.slab = slab});
  REQUIRE(backend.ok());
  CHECK((*backend)->kv_slab().data() == slab.data());
  CHECK((*backend)->kv_layout() == layout);
}

TEST_CASE("CpuBackend names kernels and type in its numerics id") {
  const RandomWeights weights(LlamaShape(DType::kBF16), 7);
  TestBackend backend(weights, {.kernels = "portable"});
  CHECK(backend->numerics_id() == "cpu-portable-bf16");
}

TEST_CASE("CpuBackend refuses an impossible option and names it") {
  const RandomWeights weights(LlamaShape(DType::kBF16), 7);
  const auto refused = [&](const CpuBackendOptions& options, const std::string& words) {
    const auto backend = MakeCpuBackend(weights, options);
    INFO(backend.status().ToString());
    CHECK(backend.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(backend.status().ToString().find(words) != std::string::npos);
  };
  refused({.threads = 0, .kv_blocks = 1}, "threads");
  refused({.threads = 1, .kv_blocks = 0}, "KV block");
  refused({.threads = 1, .kv_blocks = int64_t{1} << 60}, "KV block");
  refused({.threads = 1, .kv_blocks = 1, .kernels = "sse9"}, "sse9");
  std::vector<std::byte> slab(1000);
  refused({.threads = 1, .slab = slab}, "1000");
}

TEST_CASE("CpuBackend refuses an unsupported head_dim by name") {
  ModelConfig shape = LlamaShape(DType::kBF16);
  shape.head_dim = 15;
  const auto backend = MakeCpuBackend(RandomWeights(shape, 7), {.kv_blocks = 1});
  CHECK(backend.status().ToString().find("head_dim") != std::string::npos);
}

}  // namespace baton
