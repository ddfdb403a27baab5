// The shape of a model, read from its config.json.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"

namespace baton {

enum class DType { kF32, kBF16 };
int64_t BytesPerElement(DType dtype);

// The values are part of the module digest.
enum class Architecture { kLlama, kQwen2, kQwen3 };

// The rope scaling of Llama 3.1 ("rope_type": "llama3"). It divides the frequencies of long
// wavelengths by `factor`, keeps those of short wavelengths, and blends between them.
struct RopeScaling {
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_context = 8192;  // tokens
};

struct ModelConfig {
  Architecture architecture = Architecture::kLlama;
  DType dtype = DType::kBF16;  // of the weights on disk
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t ffn = 0;
  int64_t heads = 0;     // query heads
  int64_t kv_heads = 0;  // divides `heads`
  int64_t head_dim = 0;  // may differ from hidden / heads
  int64_t vocab = 0;
  int64_t context = 0;  // context length: upper bound on the tokens of one sequence
  double rms_eps = 1e-5;
  double rope_theta = 10000;
  std::optional<RopeScaling> rope_scaling;
  bool tied_embeddings = false;  // lm_head is the embedding table
  bool qkv_bias = false;         // Qwen2.5: q, k and v have biases
  bool qk_norm = false;          // Qwen3: RMSNorm over head_dim on q and k before rope
  std::vector<TokenId> eos_ids;  // from config.json and generation_config.json
  std::optional<TokenId> bos_id;
};

// A family of models.
struct ModelFamily {
  Architecture architecture;
  const char* model_type;  // "model_type" in config.json
  const char* class_name;  // the only element of "architectures" in config.json
  // The flags of ModelConfig that are true for the whole family. Null elements are unused.
  std::array<bool ModelConfig::*, 2> flags = {};
};
inline constexpr ModelFamily kModelFamilies[] = {
    {Architecture::kLlama, "llama", "LlamaForCausalLM"},
    {Architecture::kQwen2, "qwen2", "Qwen2ForCausalLM", {&ModelConfig::qkv_bias}},
    {Architecture::kQwen3, "qwen3", "Qwen3ForCausalLM", {&ModelConfig::qk_norm}},
};

// Reads config.json and, if present, generation_config.json of a Hugging Face model directory. An
// INVALID_ARGUMENT error names the file, the field, the expected value and the actual value. A
// field that changes the computation has no guessed default.
absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& directory);

}  // namespace baton
