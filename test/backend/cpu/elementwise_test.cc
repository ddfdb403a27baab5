// Tests that compare the row kernels of every instruction set that this machine can run with double
// precision.
#include <cmath>
#include <random>
#include <vector>

#include "backend/cpu/cpu_features.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/random_floats.h"
#include "catch.h"

namespace baton {
TEST_CASE("RMSNorm divides by the root of the mean square") {
  std::mt19937 random(1);
  for (const KernelTable* kernels : RunnableKernels()) {
    for (const int64_t count : {2, 15, 16, 20, 64, 576}) {
      INFO(kernels->name << ", " << count << " columns");
      std::vector<float> x = RandomFloats(random, count);
      const std::vector<float> weight = RandomFloats(random, count);
      double squares = 0;
      for (const float v : x) squares += double{v} * v;
      const double scale = 1 / std::sqrt(squares / static_cast<double>(count) + 1e-5);
      std::vector<float> out(count);
      kernels->rms_norm(x.data(), weight.data(), 1e-5f, count, out.data());
      for (int64_t i = 0; i < count; ++i) CHECK(out[i] == Approx(x[i] * scale * weight[i]).margin(1e-6));
      kernels->rms_norm(x.data(), weight.data(), 1e-5f, count, x.data());
      CHECK(x == out);
    }
  }
}

TEST_CASE("RMSNorm keeps a row of zeros finite") {
  for (const KernelTable* kernels : RunnableKernels()) {
    const std::vector<float> weight(32, 1.0f);
    std::vector<float> x(32, 0.0f);
    kernels->rms_norm(x.data(), weight.data(), 1e-6f, 32, x.data());
    CHECK(x == std::vector<float>(32, 0.0f));
  }
}

TEST_CASE("Rotary embedding rotates the pairs of each head and nothing else") {
  std::mt19937 random(2);
  for (const KernelTable* kernels : RunnableKernels()) {
    for (const int64_t head_dim : {2, 8, 20, 32, 64, 128}) {
      INFO(kernels->name << ", head_dim " << head_dim);
      const int64_t heads = 3, half = head_dim / 2;
      const std::vector<float> before = RandomFloats(random, heads * head_dim + 1);
      std::vector<float> rotation(head_dim);
      for (int64_t i = 0; i < half; ++i) {
        rotation[i] = std::cos(static_cast<float>(i + 1));
        rotation[half + i] = std::sin(static_cast<float>(i + 1));
      }
      std::vector<float> x = before;
      kernels->rope(x.data(), rotation.data(), head_dim, heads);
      for (int64_t head = 0; head < heads; ++head) {
        for (int64_t i = 0; i < half; ++i) {
          const double a = before[head * head_dim + i], b = before[head * head_dim + half + i];
          const double cosine = rotation[i], sine = rotation[half + i];
          CHECK(x[head * head_dim + i] == Approx(a * cosine - b * sine).margin(1e-6));
          CHECK(x[head * head_dim + half + i] == Approx(b * cosine + a * sine).margin(1e-6));
        }
      }
      CHECK(x.back() == before.back());
    }
  }
}

}  // namespace baton
