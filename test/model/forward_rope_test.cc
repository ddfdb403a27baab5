#include <cmath>
#include <numbers>

#include "catch.h"
#include "model/rope.h"

namespace baton {
namespace {

ModelConfig RopeShape() {
  ModelConfig shape;
  shape.head_dim = 64;
  shape.rope_theta = 500000;
  return shape;
}

}  // namespace

TEST_CASE("Rope frequencies fall from 1 to about 1/theta") {
  const std::vector<float> frequencies = RopeFrequencies(RopeShape());
  REQUIRE(frequencies.size() == 32);
  CHECK(frequencies[0] == 1.0f);
  CHECK(frequencies[16] == Approx(std::pow(500000.0, -0.5)));
  CHECK(frequencies[31] == Approx(std::pow(500000.0, -62.0 / 64)));
}

TEST_CASE("Llama 3 scaling keeps short wavelengths, slows long ones and blends between") {
  ModelConfig scaled = RopeShape();
  scaled.rope_scaling = RopeScaling{.factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_context = 8192};
  const std::vector<float> plain = RopeFrequencies(RopeShape());
  const std::vector<float> slowed = RopeFrequencies(scaled);
  int kept = 0, blended = 0, divided = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    const double wavelength = 2 * std::numbers::pi / plain[i];
    if (wavelength < 8192.0 / 4) {
      CHECK(slowed[i] == plain[i]);
      ++kept;
    } else if (wavelength > 8192) {
      CHECK(slowed[i] == Approx(plain[i] / 8));
      ++divided;
    } else {
      CHECK(slowed[i] < plain[i]);
      CHECK(slowed[i] > plain[i] / 8);
      ++blended;
    }
  }
  CHECK(kept > 0);
  CHECK(blended > 0);
  CHECK(divided > 0);
}

TEST_CASE("A rope table keeps its values when it grows") {
  RopeTable table(RopeShape());
  table.Extend(10);
  const std::vector<float> row(table.Row(9), table.Row(9) + 64);
  table.Extend(5);
  table.Extend(100);
  CHECK(row == std::vector<float>(table.Row(9), table.Row(9) + 64));
  const std::vector<float> frequencies = RopeFrequencies(RopeShape());
  CHECK(table.Row(99)[3] == Approx(std::cos(99.0 * frequencies[3])));
  CHECK(table.Row(99)[32 + 3] == Approx(std::sin(99.0 * frequencies[3])));
}

}  // namespace baton
