#include "model/weights.h"

#include <cstring>

#include "absl/strings/escaping.h"
#include "catch.h"
#include "model/module_digest.h"
#include "source_path.h"
#include "temp_model.h"

namespace baton {
namespace {

using Json = nlohmann::json;
using Tensors = std::map<std::string, TestTensor>;

const std::string kLayer0 = "model.layers.0.";

absl::StatusOr<std::unique_ptr<Weights>> Load(const TempDir& dir, const Json& config, const Tensors& tensors) {
  dir.Write("config.json", config.dump());
  dir.Write("model.safetensors", SafetensorsOf(tensors));
  return LoadWeights(dir.path());
}

bool Mentions(const absl::Status& status, const std::string& text) {
  return status.message().find(text) != absl::string_view::npos;
}

// Writes SmallTensors as two shards with an index.
void WriteShards(const TempDir& dir, Json* index = nullptr) {
  Tensors first = SmallTensors(), second;
  Json map = Json::object();
  for (const auto& [name, tensor] : SmallTensors()) {
    const bool to_second = name.find("layers.1.") != name.npos;
    if (to_second) second.insert(first.extract(name));
    map[name] = to_second ? "b.safetensors" : "a.safetensors";
  }
  dir.Write("config.json", SmallConfig().dump());
  dir.Write("a.safetensors", SafetensorsOf(first));
  dir.Write("b.safetensors", SafetensorsOf(second));
  const Json document = {{"metadata", {{"total_size", 1}}}, {"weight_map", map}};
  if (index != nullptr) *index = document;
  dir.Write("model.safetensors.index.json", document.dump());
}

}  // namespace

TEST_CASE("LoadWeights assigns each tensor of a model with its shape and bytes") {
  TempDir dir;
  const auto weights = Load(dir, SmallConfig(), SmallTensors());
  INFO(weights.status());
  REQUIRE(weights.ok());
  const Weights& model = **weights;
  REQUIRE(model.layers.size() == 2);
  CHECK(model.embedding.rows == 5);
  CHECK(model.embedding.cols == 4);
  CHECK(model.final_norm.rows == 4);
  CHECK(model.final_norm.cols == 1);
  CHECK(model.layers[1].k.rows == 2);
  CHECK(model.layers[1].down.rows == 4);
  CHECK(model.layers[1].down.cols == 6);
  CHECK(model.layers[0].q_bias.data == nullptr);
  CHECK(model.lm_head.data != model.embedding.data);
  const auto first_byte = static_cast<std::byte>(std::hash<std::string>()("model.layers.1.mlp.up_proj.weight"));
  CHECK(model.layers[1].up.data[0] == first_byte);
}

TEST_CASE("LoadWeights reads Qwen2's biases and Qwen3's head norms") {
  for (const std::string family : {"qwen2", "qwen3"}) {
    Tensors tensors = SmallTensors();
    for (const std::string prefix : {"model.layers.0.self_attn.", "model.layers.1.self_attn."}) {
      if (family == "qwen2") {
        tensors[prefix + "q_proj.bias"] = {"BF16", {4}};
        tensors[prefix + "k_proj.bias"] = tensors[prefix + "v_proj.bias"] = {"BF16", {2}};
      } else {
        tensors[prefix + "q_norm.weight"] = tensors[prefix + "k_norm.weight"] = {"BF16", {2}};
      }
    }
    Json config = SmallConfig();
    config["model_type"] = family;
    config["architectures"] = {family == "qwen2" ? "Qwen2ForCausalLM" : "Qwen3ForCausalLM"};
    config["head_dim"] = 2;
    TempDir dir;
    const auto weights = Load(dir, config, tensors);
    INFO(family << ": " << weights.status());
    REQUIRE(weights.ok());
    CHECK(((*weights)->layers[1].v_bias.rows == 2) == (family == "qwen2"));
    CHECK(((*weights)->layers[1].k_norm.rows == 2) == (family == "qwen3"));
    // A Llama has no such tensors.
    CHECK(Mentions(Load(dir, SmallConfig(), tensors).status(), "unknown tensor"));
  }
}

TEST_CASE("LoadWeights shares a tied table and accepts only an equal stored copy") {
  Json config = SmallConfig();
  config["tie_word_embeddings"] = true;
  Tensors tensors = SmallTensors();
  tensors.erase("lm_head.weight");
  TempDir dir;
  const auto weights = Load(dir, config, tensors);
  INFO(weights.status());
  REQUIRE(weights.ok());
  CHECK((*weights)->lm_head.data == (*weights)->embedding.data);
  CHECK(Mentions(Load(dir, config, SmallTensors()).status(), "tensor 'lm_head.weight': expected a copy"));
  CHECK(Mentions(Load(dir, SmallConfig(), tensors).status(), "tensor 'lm_head.weight': missing"));
}

TEST_CASE("LoadWeights names a missing, unknown or malformed tensor with its file") {
  TempDir dir;
  const auto refused = [&](const Tensors& tensors, const std::string& name, const std::string& reason) {
    const absl::Status status = Load(dir, SmallConfig(), tensors).status();
    INFO(status);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(Mentions(status, dir.path()));
    CHECK(Mentions(status, "tensor '" + name + "': " + reason));
  };
  for (const auto& [name, tensor] : SmallTensors()) {
    CAPTURE(name);
    Tensors changed = SmallTensors();
    changed.erase(name);
    refused(changed, name, "missing");
    changed[name] = {"F32", tensor.shape};
    refused(changed, name, "expected dtype BF16 as in config.json, got F32");
    changed[name] = tensor;
    changed[name].shape.back() += 1;
    refused(changed, name, "expected shape [");
    changed[name].shape = tensor.shape;
    changed[name].shape.push_back(1);
    refused(changed, name, "expected shape [");
  }
  Tensors extra = SmallTensors();
  extra["model.layers.2.input_layernorm.weight"] = {"BF16", {4}};
  refused(extra, "model.layers.2.input_layernorm.weight", "unknown tensor");
  extra = SmallTensors();
  extra[kLayer0 + "self_attn.rotary_emb.inv_freq"] = {"F32", {1}};
  CHECK(Load(dir, SmallConfig(), extra).ok());
}

TEST_CASE("LoadWeights gives shards the weights and digest of one file") {
  TempDir dir, single;
  WriteShards(dir);
  const auto sharded = LoadWeights(dir.path());
  INFO(sharded.status());
  REQUIRE(sharded.ok());
  const auto whole = Load(single, SmallConfig(), SmallTensors());
  REQUIRE(whole.ok());
  CHECK((*sharded)->digest == (*whole)->digest);
  CHECK(std::memcmp((*sharded)->layers[1].up.data, (*whole)->layers[1].up.data, 6 * 4 * 2) == 0);
}

TEST_CASE("LoadWeights refuses a malformed index or shard") {
  TempDir dir;
  Json index;
  WriteShards(dir, &index);
  const auto refused = [&](const std::string& text, const std::string& reason) {
    dir.Write("model.safetensors.index.json", text);
    const absl::Status status = LoadWeights(dir.path()).status();
    INFO(text.substr(0, 200) << ": " << status);
    CHECK_FALSE(status.ok());
    CHECK(Mentions(status, reason));
  };
  refused("{}", "weight_map: expected an object");
  refused(R"({"weight_map": []})", "weight_map: expected an object");
  for (const char* shard : {"../a.safetensors", "/etc/passwd", "x/../a.safetensors", "..", ".", "", ".hidden"}) {
    Json hostile = index;
    hostile["weight_map"]["model.norm.weight"] = shard;
    refused(hostile.dump(), "expected the name of a file in the same directory");
  }
  Json changed = index;
  changed["weight_map"]["model.norm.weight"] = std::string("a\0b", 3);
  refused(changed.dump(), "expected the name of a file in the same directory");
  changed["weight_map"]["model.norm.weight"] = 5;
  refused(changed.dump(), "expected the name of a file in the same directory");
  changed["weight_map"]["model.norm.weight"] = "c.safetensors";
  refused(changed.dump(), "c.safetensors");
  changed["weight_map"]["model.norm.weight"] = "b.safetensors";
  refused(changed.dump(), "tensor 'model.norm.weight': missing, but the index lists it in this file");

  dir.Write("model.safetensors.index.json", index.dump());
  dir.Write("b.safetensors", SafetensorsOf(SmallTensors()));
  CHECK(Mentions(LoadWeights(dir.path()).status(), "also in " + (dir / "a.safetensors")));
}

TEST_CASE("LoadWeights names the expected files when a directory has no weights") {
  TempDir dir;
  dir.Write("config.json", SmallConfig().dump());
  CHECK(LoadWeights(dir.path()).status().code() == absl::StatusCode::kNotFound);
  CHECK(Mentions(LoadWeights(dir.path()).status(), "expected model.safetensors or model.safetensors.index.json"));
}

TEST_CASE("The module digest covers the inputs of the computation and nothing else") {
  TempDir dir;
  const auto digest = [&](const Json& config) {
    const auto weights = Load(dir, config, SmallTensors());
    INFO(weights.status());
    REQUIRE(weights.ok());
    return (*weights)->digest;
  };
  const Digest base = digest(SmallConfig());
  Json config = SmallConfig();
  config["eos_token_id"] = 3;
  config["max_position_embeddings"] = 128;
  CHECK(digest(config) == base);
  for (const auto& [field, value] : std::map<std::string, Json>{{"rms_norm_eps", 1.0000001e-5},
                                                                {"rope_theta", 10000.001},
                                                                {"rope_scaling",
                                                                 {{"rope_type", "llama3"},
                                                                  {"factor", 8},
                                                                  {"low_freq_factor", 1},
                                                                  {"high_freq_factor", 4},
                                                                  {"original_max_position_embeddings", 8192}}}}) {
    CAPTURE(field);
    config = SmallConfig();
    config[field] = value;
    CHECK(digest(config) != base);
  }
  const std::string bytes = SafetensorsOf(SmallTensors());
  for (const size_t from_end : {size_t{1}, size_t{100}, size_t{300}}) {
    std::string flipped = bytes;
    flipped[flipped.size() - from_end] ^= 1;
    dir.Write("config.json", SmallConfig().dump());
    dir.Write("model.safetensors", flipped);
    CHECK((*LoadWeights(dir.path()))->digest != base);
  }
}

TEST_CASE("The module digest covers every part of a large tensor in order") {
  std::vector<std::byte> data(20 << 20);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i >> 20);
  Weights weights;
  const auto digest = [&] {
    weights.embedding = {data.data(), DType::kBF16, 1024, 10240};
    weights.final_norm = weights.lm_head = {data.data(), DType::kBF16, 16, 1};
    return ModuleDigest(weights);
  };
  const Digest base = digest();
  CHECK(digest() == base);
  for (const size_t at : {size_t{0}, size_t{7} << 20, size_t{15} << 20, data.size() - 1}) {
    data[at] ^= std::byte{1};
    CHECK(digest() != base);
    data[at] ^= std::byte{1};
  }
  std::swap_ranges(data.begin() + 64, data.begin() + (8 << 20), data.begin() + (8 << 20) + 64);
  CHECK(digest() != base);
}

TEST_CASE("LoadWeights gives models of transformers the digests that hashlib computed") {
  // Python's hashlib, an independent implementation, computed the digests once after the
  // description in module_digest.h.
  const std::map<std::string, std::string> digests = {
      {"tiny_llama3_f32", "a4e1bb79fc38bf5b327f897bac0f15940e4d1979ed6c6daf4cc97058c8bccf98"},
      {"tiny_llama3_bf16", "8ef0fbd21c749fa4c891e4e4002554ccfefb269d721c1cf0842f8ec97a365359"},
      {"tiny_qwen2_5_f32", "64baa2c700969742ec40d2c8cd1dede86a8cafe47d60881e0987674e3064076f"},
      {"tiny_qwen2_5_bf16", "21a11dcb970c739d9ba1205d2947388ea8d3d4a543ff94bc8256ddc33a4c585a"},
      {"tiny_qwen3_f32", "007bf42373bcc8a67ec9f27ba084190225d1177982d5c1d6c812977665f8bc56"},
      {"tiny_qwen3_bf16", "2ffa8c562a644afe91174ec04f1036aa67164a65faedd82e434cbc0861d3771d"}};
  for (const auto& [name, expected] : digests) {
    const auto weights = LoadWeights(SourcePath("test/golden/" + name));
    INFO(name << ": " << weights.status());
    REQUIRE(weights.ok());
    const ModelConfig& config = (*weights)->config;
    CHECK((config.dtype == DType::kF32) == (name.find("f32") != name.npos));
    CHECK(config.rope_scaling.has_value() == (name.find("llama3") != name.npos));
    CHECK(config.qkv_bias == (name.find("qwen2_5") != name.npos));
    CHECK(config.tied_embeddings == (name.find("qwen2_5") != name.npos));
    CHECK(config.qk_norm == (name.find("qwen3") != name.npos));
    const auto& digest = (*weights)->digest;
    CHECK(absl::BytesToHexString({reinterpret_cast<const char*>(digest.data()), digest.size()}) == expected);
  }
}

}  // namespace baton
