// Tests that compare logits of tiny models with those of Hugging Face transformers in fp32.
// `tools/make_goldens` writes these.
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "backend/cpu/backend_fixture.h"
#include "catch.h"
#include "model/safetensors.h"
#include "source_path.h"

namespace baton {
namespace {

template <class T>
std::vector<T> Values(const SafetensorsFile& file, const std::string& name) {
  const auto entry = file.tensors().find(name);
  REQUIRE(entry != file.tensors().end());
  std::vector<T> values(entry->second.bytes.size() / sizeof(T));
  std::memcpy(values.data(), entry->second.bytes.data(), values.size() * sizeof(T));
  return values;
}

void CheckGolden(const std::string& name, const std::string& kernels, double limit) {
  const std::string directory = SourcePath("test/golden/" + name);
  const auto weights = LoadWeights(directory);
  INFO(weights.status().ToString());
  REQUIRE(weights.ok());
  const auto golden = SafetensorsFile::Open(directory + "/golden.safetensors");
  REQUIRE(golden.ok());
  const std::vector<TokenId> tokens = Values<TokenId>(*golden, "tokens");
  const std::vector<int32_t> positions = Values<int32_t>(*golden, "positions");
  const std::vector<float> expected = Values<float>(*golden, "logits");

  TestBackend backend(**weights, {.threads = 2, .kernels = kernels});
  const TestSequence sequence = backend.Place(tokens);
  std::vector<float> got;
  int64_t start = 0;
  for (const int32_t position : positions) {
    const std::vector<float> logits = backend.Run({{sequence.Slice(start, position + 1, true)}});
    got.insert(got.end(), logits.begin(), logits.end());
    start = position + 1;
  }
  REQUIRE(got.size() == expected.size());
  double squared_error = 0, squares = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    squared_error += std::pow(double{got[i]} - expected[i], 2);
    squares += std::pow(double{expected[i]}, 2);
  }
  const double error = std::sqrt(squared_error / squares);
  INFO(name << ", kernels " << kernels << ": relative error " << error);
  CHECK(error <= limit);
}

}  // namespace

TEST_CASE("CpuBackend gives the logits of transformers for tiny models") {
  for (const std::string& kernels : KernelNames()) {
    for (const std::string family : {"llama3", "qwen2_5", "qwen3"}) {
      CheckGolden("tiny_" + family + "_f32", kernels, 1e-5);
      // Most of the error is the rounding of stored keys and values, because these models'
      // attention is peaked on purpose. Kernels that multiply pairs of bf16 also round activations.
      // So does transformers in bf16, whose own logits differ from the fp32 logits by 2.3e-2,
      // 1.2e-2 and 1.5e-2.
      CheckGolden("tiny_" + family + "_bf16", kernels, kernels == "avx512bf16" ? 1.5e-2 : 1e-2);
    }
  }
}

}  // namespace baton
