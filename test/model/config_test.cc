#include "model/config.h"

#include "catch.h"
#include "temp_model.h"

namespace baton {
namespace {

using Json = nlohmann::json;

absl::StatusOr<ModelConfig> LoadConfig(const Json& config, const std::string& generation = "") {
  TempDir dir;
  dir.Write("config.json", config.dump());
  if (!generation.empty()) dir.Write("generation_config.json", generation);
  return LoadModelConfig(dir.path());
}

// Returns SmallConfig with the fields of `change`. Null removes a field.
Json Changed(const Json& change) {
  Json config = SmallConfig();
  config.merge_patch(change);
  return config;
}

const Json kLlama3Rope = {{"rope_type", "llama3"},
                          {"factor", 32.0},
                          {"low_freq_factor", 1.0},
                          {"high_freq_factor", 4.0},
                          {"original_max_position_embeddings", 8192}};

Json With(Json object, const std::string& field, const Json& value) {
  object[field] = value;
  return object;
}
Json Without(Json object, const std::string& field) {
  object.erase(field);
  return object;
}

}  // namespace

TEST_CASE("LoadModelConfig reads a Llama config field by field") {
  const auto config = LoadConfig(SmallConfig());
  INFO(config.status());
  REQUIRE(config.ok());
  CHECK(config->architecture == Architecture::kLlama);
  CHECK(config->dtype == DType::kBF16);
  CHECK(config->layers == 2);
  CHECK(config->hidden == 4);
  CHECK(config->ffn == 6);
  CHECK(config->heads == 2);
  CHECK(config->kv_heads == 1);
  CHECK(config->head_dim == 2);  // hidden / heads
  CHECK(config->vocab == 5);
  CHECK(config->context == 64);
  CHECK(config->rms_eps == 1e-5);
  CHECK(config->rope_theta == 10000);
  CHECK_FALSE(config->rope_scaling.has_value());
  CHECK_FALSE(config->tied_embeddings);
  CHECK_FALSE(config->qkv_bias);
  CHECK_FALSE(config->qk_norm);
  CHECK(config->eos_ids == std::vector<TokenId>{1});
  CHECK(config->bos_id == 0);
}

TEST_CASE("LoadModelConfig reads each family's bias, query-key norm and head_dim") {
  const auto qwen2 = LoadConfig(Changed({{"model_type", "qwen2"}, {"architectures", {"Qwen2ForCausalLM"}}}));
  REQUIRE(qwen2.ok());
  CHECK(qwen2->qkv_bias);
  CHECK_FALSE(qwen2->qk_norm);
  const Json qwen3 = Changed({{"model_type", "qwen3"}, {"architectures", {"Qwen3ForCausalLM"}}, {"head_dim", 8}});
  REQUIRE(LoadConfig(qwen3).ok());
  CHECK(LoadConfig(qwen3)->qk_norm);
  CHECK_FALSE(LoadConfig(qwen3)->qkv_bias);
  CHECK(LoadConfig(qwen3)->head_dim == 8);
  // Transformers would take 128, not hidden / heads.
  CHECK_FALSE(LoadConfig(Without(qwen3, "head_dim")).ok());
}

TEST_CASE("LoadModelConfig reads rope scaling in the spellings of transformers 4 and 5") {
  const Json old_type = With(Without(kLlama3Rope, "rope_type"), "type", "llama3");
  const Json modern = With(kLlama3Rope, "rope_theta", 5e5);
  for (const Json& change :
       {Json{{"rope_theta", 5e5}, {"rope_scaling", kLlama3Rope}}, Json{{"rope_theta", 5e5}, {"rope_scaling", old_type}},
        Json{{"rope_theta", nullptr}, {"rope_parameters", modern}},
        Json{{"rope_theta", 500000}, {"rope_parameters", modern}}}) {
    const auto config = LoadConfig(Changed(change));
    INFO(change.dump() << ": " << config.status());
    REQUIRE(config.ok());
    CHECK(config->rope_theta == 5e5);
    REQUIRE(config->rope_scaling.has_value());
    CHECK(config->rope_scaling->factor == 32);
    CHECK(config->rope_scaling->low_freq_factor == 1);
    CHECK(config->rope_scaling->high_freq_factor == 4);
    CHECK(config->rope_scaling->original_context == 8192);
  }
  const auto plain = LoadConfig(
      Changed({{"rope_theta", nullptr}, {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 7}}}}));
  REQUIRE(plain.ok());
  CHECK(plain->rope_theta == 7);
  CHECK_FALSE(plain->rope_scaling.has_value());
}

TEST_CASE("LoadModelConfig joins end-of-sequence ids from both files") {
  const auto config = LoadConfig(Changed({{"eos_token_id", {1, 2}}}), R"({"eos_token_id": [2, 4]})");
  REQUIRE(config.ok());
  CHECK(config->eos_ids == std::vector<TokenId>{1, 2, 4});
  CHECK(LoadConfig(SmallConfig(), R"({"eos_token_id": 3})")->eos_ids == std::vector<TokenId>{1, 3});
  CHECK(LoadConfig(Changed({{"eos_token_id", nullptr}}))->eos_ids.empty());
}

TEST_CASE("LoadModelConfig reads both spellings of the weights' dtype") {
  CHECK(LoadConfig(Changed({{"torch_dtype", "float32"}}))->dtype == DType::kF32);
  CHECK(LoadConfig(Changed({{"torch_dtype", nullptr}, {"dtype", "float32"}}))->dtype == DType::kF32);
}

TEST_CASE("LoadModelConfig names a missing, malformed, out-of-range or unsupported field") {
  struct Case {
    Json change;
    std::string field;
  };
  std::vector<Case> cases = {
      {{{"model_type", "mistral"}}, "model_type"},
      {{{"model_type", 7}}, "model_type"},
      {{{"architectures", {"LlamaForSequenceClassification"}}}, "architectures"},
      {{{"architectures", {"LlamaForCausalLM", "Other"}}}, "architectures"},
      {{{"torch_dtype", "float16"}}, "torch_dtype"},
      {{{"torch_dtype", nullptr}}, "torch_dtype"},
      {{{"dtype", "float8_e4m3fn"}}, "dtype"},
      {{{"hidden_act", "gelu"}}, "hidden_act"},
      {{{"attention_bias", true}}, "attention_bias"},
      {{{"mlp_bias", true}}, "mlp_bias"},
      {{{"mlp_bias", "no"}}, "mlp_bias"},
      {{{"use_sliding_window", true}}, "use_sliding_window"},
      {{{"layer_types", {"full_attention", "sliding_attention"}}}, "layer_types"},
      {{{"quantization_config", {{"quant_method", "gptq"}}}}, "quantization_config"},
      {{{"partial_rotary_factor", 0.5}}, "partial_rotary_factor"},
      {{{"head_dim", 3}}, "head_dim"},
      {{{"head_dim", 4096}}, "head_dim"},
      {{{"hidden_size", 0}}, "hidden_size"},
      {{{"hidden_size", -4}}, "hidden_size"},
      {{{"hidden_size", 4.5}}, "hidden_size"},
      {{{"hidden_size", "4"}}, "hidden_size"},
      {{{"hidden_size", UINT64_MAX}}, "hidden_size"},
      {{{"hidden_size", 5}}, "head_dim"},
      {{{"vocab_size", int64_t{1} << 40}}, "vocab_size"},
      {{{"num_hidden_layers", 1 << 20}}, "num_hidden_layers"},
      {{{"num_attention_heads", 8}}, "num_attention_heads"},
      {{{"num_key_value_heads", 3}}, "num_key_value_heads"},
      {{{"num_attention_heads", 4}, {"num_key_value_heads", 3}}, "num_key_value_heads"},
      {{{"rms_norm_eps", 0}}, "rms_norm_eps"},
      {{{"rms_norm_eps", "1e-5"}}, "rms_norm_eps"},
      {{{"rope_theta", -1}}, "rope_theta"},
      {{{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4}}}}, "rope_scaling: rope_type"},
      {{{"rope_scaling", {{"type", "linear"}, {"factor", 4}}}}, "rope_scaling: type"},
      {{{"rope_scaling", {{"factor", 4}}}}, "rope_scaling: type"},
      {{{"rope_scaling", "llama3"}}, "rope_scaling"},
      {{{"rope_scaling", Without(kLlama3Rope, "factor")}}, "rope_scaling: factor"},
      {{{"rope_scaling", With(kLlama3Rope, "high_freq_factor", 1.0)}}, "rope_scaling: high_freq_factor"},
      {{{"rope_scaling", With(kLlama3Rope, "original_max_position_embeddings", 0)}},
       "rope_scaling: original_max_position_embeddings"},
      {{{"rope_scaling", kLlama3Rope}, {"rope_parameters", kLlama3Rope}}, "rope_scaling"},
      {{{"rope_theta", nullptr}, {"rope_parameters", kLlama3Rope}}, "rope_parameters: rope_theta"},
      {{{"rope_parameters", With(kLlama3Rope, "rope_theta", 5.0)}}, "rope_theta"},
      {{{"tie_word_embeddings", 1}}, "tie_word_embeddings"},
      {{{"bos_token_id", 5}}, "bos_token_id"},
      {{{"eos_token_id", 5}}, "eos_token_id"},
      {{{"eos_token_id", {0, -1}}}, "eos_token_id"},
      {{{"eos_token_id", "2"}}, "eos_token_id"},
      {{{"eos_token_id", std::vector<int>(1000, 1)}}, "eos_token_id"}};
  for (const char* field :
       {"model_type", "hidden_act", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "vocab_size", "max_position_embeddings", "rms_norm_eps", "rope_theta"}) {
    cases.push_back({{{field, nullptr}}, field});
  }
  for (const Case& each : cases) {
    const auto config = LoadConfig(Changed(each.change));
    INFO(each.change.dump().substr(0, 200) << ": " << config.status());
    CHECK(config.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(config.status().message().find("/config.json: " + each.field + ": expected") != absl::string_view::npos);
    CHECK(config.status().message().size() < 500);
  }
}

TEST_CASE("LoadModelConfig refuses a file that is absent, too large or no JSON object") {
  TempDir dir;
  CHECK(LoadModelConfig(dir.path()).status().code() == absl::StatusCode::kNotFound);
  for (const std::string& text : {std::string(), std::string("[]"), std::string("{\"a\": "), std::string(200000, '['),
                                  std::string(1 << 20, ' '), "{\"" + std::string(100000, 'x')}) {
    dir.Write("config.json", text);
    const auto config = LoadModelConfig(dir.path());
    INFO(config.status());
    CHECK(config.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(config.status().message().find("config.json") != absl::string_view::npos);
    CHECK(config.status().message().size() < 500);
  }
  CHECK(LoadConfig(SmallConfig(), "{").status().message().find("generation_config.json") != absl::string_view::npos);
}

}  // namespace baton
