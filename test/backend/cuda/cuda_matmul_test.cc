#include "backend/cuda/cuda_matmul.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/cuda_test_device.h"
#include "catch.h"
#include "kernels/device_array.h"
#include "kernels/random_values.h"

namespace baton {
namespace {

using cuda::Bf16;
using cuda::DeviceArray;

// Number of different rows. Longer inputs repeat these rows.
constexpr int64_t kDifferent = 8;

// Returns the bytes of y, [rows, n]. If the product adds, y begins as `before`, [kDifferent, n],
// repeated.
std::vector<std::byte> Product(CudaMatmul& matmul, const MatrixProduct& product, const std::vector<float>& before) {
  const auto size = static_cast<size_t>(product.rows * product.n);
  const DeviceArray<std::byte> y(size * (product.fp32_output ? 4 : 2));
  if (product.add) {
    std::vector<float> values(size);
    for (size_t i = 0; i < size; ++i) values[i] = before[i % before.size()];
    cuda::Must(cudaMemcpy(y.data(), values.data(), size * sizeof(float), cudaMemcpyHostToDevice));
  }
  MatrixProduct into = product;
  into.y = y.data();
  const absl::Status ran = matmul.Run(into, nullptr);
  INFO(ran.ToString());
  REQUIRE(ran.ok());
  return y.ToHost();
}

int64_t RowsThatDiffer(const std::vector<std::byte>& got, const std::vector<std::byte>& expected, size_t row_bytes) {
  int64_t differ = 0;
  for (size_t at = 0; at < got.size(); at += row_bytes) {
    differ += std::memcmp(&got[at], &expected[at % (kDifferent * row_bytes)], row_bytes) != 0;
  }
  return differ;
}

TEST_CASE("CudaMatmul gives a row the same bits at any index and count with same_bits", "[large]") {
  if (!HasDevice()) return;
  constexpr int64_t kMostRows = 4096;
  const auto matmul = CudaMatmul::Create(/*same_bits=*/true);
  REQUIRE(matmul.ok());
  std::mt19937_64 random(1);
  struct Weight {
    int64_t n, k;
    bool add;  // to an fp32 output
  };
  // The projections of Llama-3.1-8B and of a small model.
  for (const Weight& weight : {Weight{6144, 4096, false},
                               {4096, 4096, true},
                               {28672, 4096, false},
                               {4096, 14336, true},
                               {960, 576, false},
                               {576, 1536, true}}) {
    std::vector<Bf16> x = cuda::RandomBf16(static_cast<size_t>(kDifferent * weight.k), random);
    const size_t once = x.size();
    x.resize(static_cast<size_t>(kMostRows * weight.k));
    for (size_t at = once; at < x.size(); at += once)
      std::copy_n(x.begin(), once, x.begin() + static_cast<int64_t>(at));
    const DeviceArray<Bf16> rows(x), w(cuda::RandomBf16(static_cast<size_t>(weight.n * weight.k), random));
    MatrixProduct product{.x = rows.data(),
                          .w = w.data(),
                          .rows = kDifferent,
                          .n = weight.n,
                          .k = weight.k,
                          .fp32_output = weight.add,
                          .add = weight.add};
    const std::vector<float> before = cuda::RandomFloats(kDifferent * weight.n, random);
    const std::vector<std::byte> expected = Product(**matmul, product, before);
    for (const int64_t count : {1,   3,   9,   16,   23,   64,   100,  129,  255,  256,  257,  300,
                                511, 513, 700, 1000, 1024, 1025, 1500, 2047, 2049, 2499, 3000, 4096}) {
      product.rows = count;
      const std::vector<std::byte> got = Product(**matmul, product, before);
      INFO(count << " rows by [" << weight.n << ", " << weight.k << "]: " << (*matmul)->Describe(product));
      CHECK(RowsThatDiffer(got, expected, expected.size() / kDifferent) == 0);
    }
  }
}

}  // namespace
}  // namespace baton
