#include "model/config.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>

#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/json/json_file.h"
#include "base/status.h"

namespace baton {
namespace {

constexpr int64_t kMaxJsonBytes = 256 << 10;
// Limits far above any dense model. The product of any three of them fits in 63 bits.
constexpr int64_t kMaxLayers = 1 << 12, kMaxWidth = 1 << 20, kMaxVocab = 1 << 24, kMaxContext = 1 << 28;
constexpr int64_t kMaxHeadDim = 1 << 10;
constexpr size_t kMaxEosIds = 64;

using Json = nlohmann::json;

// Typed access to one JSON object of a file. A null field counts as absent, as in transformers.
class Fields {
 public:
  Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  bool Has(const char* name) const { return Find(name) != nullptr; }
  const Json* Find(const char* name) const {
    const auto it = object_.find(name);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }

  absl::Status Error(absl::string_view name, absl::string_view expected, absl::string_view got) const {
    return absl::InvalidArgumentError(absl::StrCat(where_, ": ", name, ": expected ", expected, ", got ", got));
  }
  absl::Status Error(const char* name, absl::string_view expected) const {
    const Json* value = Find(name);
    return Error(name, expected, value == nullptr ? "nothing" : Shown(*value));
  }

  absl::StatusOr<int64_t> Integer(const char* name, int64_t low, int64_t high) const {
    const Json* value = Find(name);
    if (value == nullptr || !value->is_number_integer() || *value < low || *value > high) {
      return Error(name, absl::StrCat("an integer in [", low, ", ", high, "]"));
    }
    return value->get<int64_t>();
  }
  absl::StatusOr<double> Positive(const char* name) const {
    const Json* value = Find(name);
    if (value == nullptr || !value->is_number() || !(*value > 0.0)) return Error(name, "a positive number");
    return value->get<double>();
  }
  absl::StatusOr<std::string> Text(const char* name) const {
    const Json* value = Find(name);
    if (value == nullptr || !value->is_string()) return Error(name, "a string");
    return value->get<std::string>();
  }
  absl::StatusOr<bool> FlagOr(const char* name, bool otherwise) const {
    const Json* value = Find(name);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) return Error(name, "true or false");
    return value->get<bool>();
  }
  absl::StatusOr<Fields> Object(const char* name) const {
    const Json* value = Find(name);
    if (value == nullptr || !value->is_object()) return Error(name, "an object");
    return Fields(*value, absl::StrCat(where_, ": ", name));
  }

 private:
  // Returns at most 80 ASCII characters of the value, so that a hostile file cannot flood or forge
  // logs.
  static std::string Shown(const Json& value) {
    return value.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 80);
  }

  const Json& object_;
  std::string where_;
};

// Refuses options of these families that change the computation and that Baton does not implement.
absl::Status RefuseUnsupported(const Fields& fields) {
  for (const char* name : {"attention_bias", "mlp_bias", "use_sliding_window"}) {
    ASSIGN_OR_RETURN(const bool on, fields.FlagOr(name, false));
    if (on) return fields.Error(name, "false, the only supported value");
  }
  if (fields.Has("quantization_config"))
    return fields.Error("quantization_config", "no such field, since quantization is not supported");
  if (const Json* fraction = fields.Find("partial_rotary_factor"); fraction != nullptr && *fraction != 1) {
    return fields.Error("partial_rotary_factor", "1, the only supported value");
  }
  ASSIGN_OR_RETURN(const std::string activation, fields.Text("hidden_act"));
  if (activation != "silu") return fields.Error("hidden_act", "\"silu\"");
  if (const Json* types = fields.Find("layer_types"); types != nullptr) {
    const bool full = types->is_array() && std::all_of(types->begin(), types->end(),
                                                       [](const Json& type) { return type == "full_attention"; });
    if (!full) return fields.Error("layer_types", "\"full_attention\" in every layer");
  }
  return absl::OkStatus();
}

absl::Status ReadFamily(const Fields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const std::string model_type, fields.Text("model_type"));
  const auto family = std::ranges::find(kModelFamilies, model_type, &ModelFamily::model_type);
  if (family == std::end(kModelFamilies)) {
    const auto name = [](std::string* out, const ModelFamily& row) { absl::StrAppend(out, row.model_type); };
    return fields.Error("model_type", absl::StrCat("one of ", absl::StrJoin(kModelFamilies, ", ", name)));
  }
  const Json* classes = fields.Find("architectures");
  if (classes != nullptr && *classes != Json::array({family->class_name})) {
    return fields.Error("architectures", absl::StrCat("[\"", family->class_name, "\"]"));
  }
  config.architecture = family->architecture;
  for (bool ModelConfig::*flag : family->flags) {
    if (flag != nullptr) config.*flag = true;
  }
  return absl::OkStatus();
}

// Reads "dtype", which transformers 5 writes, or "torch_dtype", which earlier versions write.
absl::StatusOr<DType> ReadDType(const Fields& fields) {
  const char* name = fields.Has("dtype") ? "dtype" : "torch_dtype";
  ASSIGN_OR_RETURN(const std::string dtype, fields.Text(name));
  if (dtype == "bfloat16") return DType::kBF16;
  if (dtype == "float32") return DType::kF32;
  return fields.Error(name, "\"bfloat16\" or \"float32\"");
}

absl::StatusOr<RopeScaling> ReadLlama3Scaling(const Fields& fields) {
  RopeScaling scaling;
  ASSIGN_OR_RETURN(scaling.factor, fields.Positive("factor"));
  ASSIGN_OR_RETURN(scaling.low_freq_factor, fields.Positive("low_freq_factor"));
  ASSIGN_OR_RETURN(scaling.high_freq_factor, fields.Positive("high_freq_factor"));
  ASSIGN_OR_RETURN(scaling.original_context, fields.Integer("original_max_position_embeddings", 1, kMaxContext));
  if (scaling.high_freq_factor <= scaling.low_freq_factor) {
    return fields.Error("high_freq_factor", "more than low_freq_factor");
  }
  return scaling;
}

// Reads an object "rope_scaling" (transformers 4) or "rope_parameters" (transformers 5).
absl::Status ReadRopeObject(const Fields& rope, ModelConfig& config) {
  const char* key = rope.Has("rope_type") ? "rope_type" : "type";
  ASSIGN_OR_RETURN(const std::string type, rope.Text(key));
  if (const Json* fraction = rope.Find("partial_rotary_factor"); fraction != nullptr && *fraction != 1) {
    return rope.Error("partial_rotary_factor", "1 (not supported)");
  }
  if (type == "default") return absl::OkStatus();
  if (type != "llama3") return rope.Error(key, "\"default\" or \"llama3\"");
  ASSIGN_OR_RETURN(config.rope_scaling, ReadLlama3Scaling(rope));
  return absl::OkStatus();
}

absl::Status ReadRope(const Fields& fields, ModelConfig& config) {
  if (fields.Has("rope_scaling") && fields.Has("rope_parameters")) {
    return fields.Error("rope_scaling", "either rope_scaling or rope_parameters", "both");
  }
  if (fields.Has("rope_scaling")) {
    ASSIGN_OR_RETURN(const Fields scaling, fields.Object("rope_scaling"));
    RETURN_IF_ERROR(ReadRopeObject(scaling, config));
  }
  if (!fields.Has("rope_parameters")) {
    ASSIGN_OR_RETURN(config.rope_theta, fields.Positive("rope_theta"));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Fields parameters, fields.Object("rope_parameters"));
  RETURN_IF_ERROR(ReadRopeObject(parameters, config));
  ASSIGN_OR_RETURN(config.rope_theta, parameters.Positive("rope_theta"));
  if (const Json* other = fields.Find("rope_theta"); other != nullptr && *other != config.rope_theta) {
    return fields.Error("rope_theta", absl::StrCat(config.rope_theta, ", as in rope_parameters"));
  }
  return absl::OkStatus();
}

absl::Status ReadShape(const Fields& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(config.layers, fields.Integer("num_hidden_layers", 1, kMaxLayers));
  ASSIGN_OR_RETURN(config.hidden, fields.Integer("hidden_size", 1, kMaxWidth));
  ASSIGN_OR_RETURN(config.ffn, fields.Integer("intermediate_size", 1, kMaxWidth));
  ASSIGN_OR_RETURN(config.heads, fields.Integer("num_attention_heads", 1, config.hidden));
  ASSIGN_OR_RETURN(config.kv_heads, fields.Integer("num_key_value_heads", 1, config.heads));
  ASSIGN_OR_RETURN(config.vocab, fields.Integer("vocab_size", 1, kMaxVocab));
  ASSIGN_OR_RETURN(config.context, fields.Integer("max_position_embeddings", 1, kMaxContext));
  if (config.heads % config.kv_heads != 0) {
    return fields.Error("num_key_value_heads", absl::StrCat("a divisor of num_attention_heads = ", config.heads));
  }
  // In Llama and Qwen2, head_dim defaults to hidden / heads. Qwen3 has no default.
  if (fields.Has("head_dim") || config.architecture == Architecture::kQwen3) {
    ASSIGN_OR_RETURN(config.head_dim, fields.Integer("head_dim", 2, kMaxHeadDim));
  } else if (config.hidden % config.heads == 0) {
    config.head_dim = config.hidden / config.heads;
  } else {
    return fields.Error("head_dim", "a value, since num_attention_heads does not divide hidden_size");
  }
  // Rope rotates pairs of elements, so head_dim must be even.
  if (config.head_dim % 2 != 0 || config.head_dim > kMaxHeadDim) {
    return fields.Error("head_dim", absl::StrCat("an even number up to ", kMaxHeadDim), absl::StrCat(config.head_dim));
  }
  return absl::OkStatus();
}

// Adds the missing ids of eos_token_id, which is an integer or a list of integers.
absl::Status ReadEos(const Fields& fields, ModelConfig& config) {
  const Json* eos = fields.Find("eos_token_id");
  if (eos == nullptr) return absl::OkStatus();
  const Json ids = eos->is_array() ? *eos : Json::array({*eos});
  if (ids.size() > kMaxEosIds) return fields.Error("eos_token_id", absl::StrCat("at most ", kMaxEosIds, " ids"));
  for (const Json& id : ids) {
    if (!id.is_number_integer() || id < 0 || id >= config.vocab) {
      return fields.Error("eos_token_id", absl::StrCat("ids in [0, ", config.vocab, ")"));
    }
    const auto token = id.get<TokenId>();
    if (std::find(config.eos_ids.begin(), config.eos_ids.end(), token) == config.eos_ids.end()) {
      config.eos_ids.push_back(token);
    }
  }
  return absl::OkStatus();
}

absl::Status ReadConfig(const Fields& fields, ModelConfig& config) {
  RETURN_IF_ERROR(ReadFamily(fields, config));
  RETURN_IF_ERROR(RefuseUnsupported(fields));
  ASSIGN_OR_RETURN(config.dtype, ReadDType(fields));
  RETURN_IF_ERROR(ReadShape(fields, config));
  ASSIGN_OR_RETURN(config.rms_eps, fields.Positive("rms_norm_eps"));
  RETURN_IF_ERROR(ReadRope(fields, config));
  // The default is false in all families. If it is wrong for a model with tied embeddings, loading
  // fails because lm_head is missing.
  ASSIGN_OR_RETURN(config.tied_embeddings, fields.FlagOr("tie_word_embeddings", false));
  if (fields.Has("bos_token_id")) {
    ASSIGN_OR_RETURN(config.bos_id, fields.Integer("bos_token_id", 0, config.vocab - 1));
  }
  return ReadEos(fields, config);
}

}  // namespace

int64_t BytesPerElement(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& directory) {
  ModelConfig config;
  const std::string config_path = absl::StrCat(directory, "/config.json");
  ASSIGN_OR_RETURN(const Json document, ReadJsonObject(config_path, kMaxJsonBytes));
  RETURN_IF_ERROR(ReadConfig(Fields(document, config_path), config));

  const std::string generation_path = absl::StrCat(directory, "/generation_config.json");
  const absl::StatusOr<Json> generation = ReadJsonObject(generation_path, kMaxJsonBytes);
  if (absl::IsNotFound(generation.status())) return config;
  RETURN_IF_ERROR(generation.status());
  RETURN_IF_ERROR(ReadEos(Fields(*generation, generation_path), config));
  return config;
}

}  // namespace baton
