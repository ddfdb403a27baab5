#include "backend/simulated/shapes.h"

#include <array>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "base/strings.h"

namespace baton {
namespace {

template <typename T, size_t n>
absl::StatusOr<T> Named(std::string_view what, std::string_view name,
                        const std::array<std::pair<const char*, T>, n>& all) {
  std::string known;
  for (const auto& [key, value] : all) {
    if (name == key) return value;
    known = StrCat(known, known.empty() ? "" : ", ", key);
  }
  return absl::InvalidArgumentError(StrCat(what, ": expected one of ", known, ", got '", name, "'"));
}

ModelConfig Shape(Architecture architecture, int64_t layers, int64_t hidden, int64_t ffn, int64_t heads,
                  int64_t kv_heads, int64_t vocab) {
  ModelConfig config;
  config.architecture = architecture;
  config.layers = layers;
  config.hidden = hidden;
  config.ffn = ffn;
  config.heads = heads;
  config.kv_heads = kv_heads;
  config.head_dim = hidden / heads;
  config.vocab = vocab;
  config.context = 32768;
  return config;
}

}  // namespace

absl::StatusOr<ModelConfig> ModelNamed(std::string_view name) {
  ModelConfig smollm2 = Shape(Architecture::kLlama, 30, 576, 1536, 9, 3, 49152);
  smollm2.tied_embeddings = true;
  const std::array<std::pair<const char*, ModelConfig>, 5> models = {{
      {"qwen2.5-7b", Shape(Architecture::kQwen2, 28, 3584, 18944, 28, 4, 152064)},
      {"qwen2.5-32b", Shape(Architecture::kQwen2, 64, 5120, 27648, 40, 8, 152064)},
      {"qwen3-14b", Shape(Architecture::kQwen3, 40, 5120, 17408, 40, 8, 151936)},
      {"llama-3.1-8b", Shape(Architecture::kLlama, 32, 4096, 14336, 32, 8, 128256)},
      {"smollm2-135m", smollm2},
  }};
  return Named("model", name, models);
}

absl::StatusOr<DeviceShape> DeviceNamed(std::string_view name) {
  constexpr absl::Duration kOverhead = absl::Microseconds(500);
  const std::array<std::pair<const char*, DeviceShape>, 3> devices = {{
      {"a100", {"a100", 312e12, 0.6, 80e9, 2.0e12, 25e9, 20e9, kOverhead}},
      {"h200", {"h200", 790e12, 0.75, 141e9, 4.3e12, 50e9, 40e9, kOverhead}},
      // Two cores with AVX2, with the rates of docs/design/overview.md, section 6.
      {"cpu", {"cpu", 200e9, 0.75, 16e9, 26e9, 5e9, 10e9, kOverhead}},
  }};
  return Named("device", name, devices);
}

}  // namespace baton
