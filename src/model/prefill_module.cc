#include "model/prefill_module.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <concepts>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/strings.h"
#include "model/layer_tensors.h"
#include "model/module_digest.h"

namespace baton {
namespace {

struct Field {
  std::string name;
  std::string module, decoder;
};

std::string Text(Architecture architecture) {
  return std::ranges::find(kModelFamilies, architecture, &ModelFamily::architecture)->model_type;
}

std::string Text(DType dtype) { return dtype == DType::kBF16 ? "bfloat16" : "float32"; }

// Returns a text that differs for any two different numbers.
template <std::floating_point Number>
std::string Text(Number number) {
  std::array<char, 32> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), number).ptr};
}

std::string Text(const std::optional<RopeScaling>& scaling) {
  if (!scaling) return "none";
  return absl::StrCat("llama3 (factor ", Text(scaling->factor), ", low ", Text(scaling->low_freq_factor), ", high ",
                      Text(scaling->high_freq_factor), ", original context ", scaling->original_context, ")");
}

absl::Status CheckSameShape(const ModelConfig& module, const ModelConfig& decoder) {
  std::vector<Field> fields = {{"architecture", Text(module.architecture), Text(decoder.architecture)},
                               {"dtype", Text(module.dtype), Text(decoder.dtype)},
                               {"layers", absl::StrCat(module.layers), absl::StrCat(decoder.layers)},
                               {"hidden size", absl::StrCat(module.hidden), absl::StrCat(decoder.hidden)},
                               {"FFN size", absl::StrCat(module.ffn), absl::StrCat(decoder.ffn)},
                               {"heads", absl::StrCat(module.heads), absl::StrCat(decoder.heads)},
                               {"KV heads", absl::StrCat(module.kv_heads), absl::StrCat(decoder.kv_heads)},
                               {"head dimension", absl::StrCat(module.head_dim), absl::StrCat(decoder.head_dim)},
                               {"vocabulary", absl::StrCat(module.vocab), absl::StrCat(decoder.vocab)},
                               {"RMS epsilon", Text(module.rms_eps), Text(decoder.rms_eps)},
                               {"rope theta", Text(module.rope_theta), Text(decoder.rope_theta)},
                               {"rope scaling", Text(module.rope_scaling), Text(decoder.rope_scaling)}};
  for (const LayerTensorRow& row : kLayerTensors) {
    fields.push_back({absl::StrCat("layer tensor ", row.name), Has(module, row) ? "one" : "none",
                      Has(decoder, row) ? "one" : "none"});
  }
  for (const Field& field : fields) {
    if (field.module == field.decoder) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(field.name, ": the prefill module has ", field.module, ", the decoder ", field.decoder));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSharesKv(const ModuleTraits& module, const ModuleTraits& decoder) {
  RETURN_IF_ERROR(CheckSameShape(module.config, decoder.config));
  if (module.tokenizer.digest() == decoder.tokenizer.digest()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("tokenizer: the prefill module has ", Hex(module.tokenizer.digest()),
                                                 ", the decoder ", Hex(decoder.tokenizer.digest()),
                                                 " (SHA-256 of the vocabulary and rules)"));
}

absl::StatusOr<Digest> PrefillModuleDigest(const std::string& directory, const ModuleTraits& decoder) {
  ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig(directory));
  ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Load(directory));
  if (const absl::Status status = CheckSharesKv({config, *tokenizer}, decoder); !status.ok()) {
    return absl::InvalidArgumentError(StrCat(directory, ": ", Message(status)));
  }
  ASSIGN_OR_RETURN(const auto weights, LoadWeights(directory));
  return weights->digest;
}

}  // namespace baton
