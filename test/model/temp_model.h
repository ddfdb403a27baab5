// Builders of model directories, well-formed or hostile.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "temp_dir.h"

namespace baton {

inline std::string LittleEndian64(uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
  return bytes;
}

// Returns a whole safetensors file with the text of `header`.
inline std::string SafetensorsBytes(std::string header, const std::string& data) {
  header.append((8 - header.size() % 8) % 8, ' ');
  return LittleEndian64(header.size()) + header + data;
}

struct TestTensor {
  std::string dtype = "BF16";
  std::vector<int64_t> shape;
};

// Returns a safetensors file of these tensors. Their bytes differ from tensor to tensor.
inline std::string SafetensorsOf(const std::map<std::string, TestTensor>& tensors) {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    int64_t bytes = tensor.dtype == "F32" ? 4 : 2;
    for (const int64_t extent : tensor.shape) bytes *= extent;
    const size_t begin = data.size();
    for (int64_t i = 0; i < bytes; ++i) data.push_back(static_cast<char>(std::hash<std::string>()(name) + i));
    header[name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  return SafetensorsBytes(header.dump(), data);
}

// The config.json of a Llama with hidden 4, ffn 6, 2 heads of 2, 1 KV head, 5 tokens and 2 layers.
inline nlohmann::json SmallConfig() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"torch_dtype", "bfloat16"},
          {"hidden_act", "silu"},
          {"hidden_size", 4},
          {"intermediate_size", 6},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 2},
          {"num_key_value_heads", 1},
          {"max_position_embeddings", 64},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10000.0},
          {"tie_word_embeddings", false},
          {"vocab_size", 5},
          {"bos_token_id", 0},
          {"eos_token_id", 1}};
}

// The tensors that SmallConfig needs.
inline std::map<std::string, TestTensor> SmallTensors() {
  std::map<std::string, TestTensor> tensors = {{"model.embed_tokens.weight", {"BF16", {5, 4}}},
                                               {"model.norm.weight", {"BF16", {4}}},
                                               {"lm_head.weight", {"BF16", {5, 4}}}};
  for (const char* layer : {"model.layers.0.", "model.layers.1."}) {
    const std::string prefix = layer;
    tensors[prefix + "input_layernorm.weight"] = {"BF16", {4}};
    tensors[prefix + "post_attention_layernorm.weight"] = {"BF16", {4}};
    tensors[prefix + "self_attn.q_proj.weight"] = {"BF16", {4, 4}};
    tensors[prefix + "self_attn.k_proj.weight"] = {"BF16", {2, 4}};
    tensors[prefix + "self_attn.v_proj.weight"] = {"BF16", {2, 4}};
    tensors[prefix + "self_attn.o_proj.weight"] = {"BF16", {4, 4}};
    tensors[prefix + "mlp.gate_proj.weight"] = {"BF16", {6, 4}};
    tensors[prefix + "mlp.up_proj.weight"] = {"BF16", {6, 4}};
    tensors[prefix + "mlp.down_proj.weight"] = {"BF16", {4, 6}};
  }
  return tensors;
}

}  // namespace baton
