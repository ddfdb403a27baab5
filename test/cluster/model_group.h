// One prefill module and decoders over its KV, requests to them, and their metrics.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "await.h"
#include "base/strings.h"
#include "catch.h"
#include "model/config.h"
#include "model/layer_tensors.h"
#include "model/temp_model.h"
#include "nlohmann/json.hpp"
#include "programs.h"
#include "scrape.h"
#include "source_path.h"
#include "temp_dir.h"

namespace baton {

inline const std::string kModule = SourcePath("test/golden/tiny_llama3_f32");

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Model directories made from the module's files.
class Decoders {
 public:
  explicit Decoders(int context = 512) : context_(context) {}
  std::string Copy(const std::string& name) const {
    const std::filesystem::path directory = std::filesystem::path(root_.path()) / name;
    std::filesystem::copy(kModule, directory);
    Set(directory, "max_position_embeddings", context_);
    return directory;
  }
  // Makes a model with the layers in reverse order. It swaps their names in the header, whose size
  // does not change.
  std::string Reversed(const std::string& name) const {
    const std::string directory = Copy(name);
    const std::string path = directory + "/model.safetensors";
    const std::string bytes =
        absl::StrReplaceAll(ReadFile(path), {{"layers.0.", "layers.2."}, {"layers.2.", "layers.0."}});
    std::ofstream(path, std::ios::binary) << bytes;
    return directory;
  }
  std::string With(const std::string& name, const std::string& field, const nlohmann::json& value) const {
    const std::string directory = Copy(name);
    Set(directory, field, value);
    return directory;
  }
  // Makes a model that generates only these tokens, because the logits of all other tokens are
  // zero.
  std::string Generating(const std::string& name, const std::vector<int32_t>& ids) const {
    const std::string directory = Copy(name);
    std::string bytes = ReadFile(directory + "/model.safetensors");
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
    const nlohmann::json head =
        nlohmann::json::parse(bytes.substr(sizeof header_bytes, header_bytes))["lm_head.weight"];
    const size_t begin = sizeof header_bytes + header_bytes + head["data_offsets"][0].get<size_t>();
    const size_t row = head["shape"][1].get<size_t>() * sizeof(float);
    for (int32_t id = 0; id < head["shape"][0].get<int32_t>(); ++id) {
      if (std::ranges::find(ids, id) == ids.end()) bytes.replace(begin + id * row, row, row, '\0');
    }
    std::ofstream(directory + "/model.safetensors", std::ios::binary) << bytes;
    return directory;
  }
  // Makes a model whose tensors have the shapes for `value` of `field`. Their values mean nothing.
  std::string Shaped(const std::string& name, const std::string& field, int64_t value) const {
    const std::string directory = With(name, field, value);
    const ModelConfig config = LoadModelConfig(directory).value();
    std::map<std::string, TestTensor> tensors;
    const auto add = [&](const std::string& tensor, const TensorRow& row) {
      std::vector<int64_t> shape = {SizeOf(row.rows, config)};
      if (row.cols != Extent::kOne) shape.push_back(SizeOf(row.cols, config));
      tensors[tensor] = {"F32", shape};
    };
    for (const ModelTensorRow& row : kModelTensors) add(row.checkpoint_name, row);
    for (int64_t layer = 0; layer < config.layers; ++layer) {
      for (const LayerTensorRow& row : kLayerTensors) {
        if (Has(config, row)) add(LayerTensorName(row, layer), row);
      }
    }
    std::ofstream(directory + "/model.safetensors", std::ios::binary) << SafetensorsOf(tensors);
    return directory;
  }

 private:
  static void Set(const std::string& directory, const std::string& field, const nlohmann::json& value) {
    nlohmann::json config = nlohmann::json::parse(ReadFile(directory + "/config.json"));
    config[field] = value;
    std::ofstream(directory + "/config.json") << config;
  }

  int context_;
  TempDir root_;
};

inline std::vector<std::string> DecoderOf(const std::string& directory, const std::string& listen = "127.0.0.1:0") {
  return Small({"--listen", listen, "--prefill-module", kModule}, directory);
}

inline v1::GenerateRequest Ask(const std::string& model, const std::vector<int32_t>& prompt, int max_tokens) {
  v1::GenerateRequest request = MakeRequest(max_tokens, 0);
  request.set_model(model);
  auto& ids = *request.mutable_segments()->mutable_segments(0)->mutable_token_ids()->mutable_ids();
  ids.Add(prompt.begin(), prompt.end());
  request.mutable_sampling()->set_logprobs(0);
  return request;
}

struct Answer {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  int32_t cached = 0;
  friend bool operator==(const Answer& a, const Answer& b) { return a.ids == b.ids && a.logprobs == b.logprobs; }
};

inline Answer Get(v1::Inference::Stub& stub, const v1::GenerateRequest& request) {
  Call call(stub, request);
  const absl::Status status = call.Finish();
  INFO(Message(status));
  REQUIRE(status.ok());
  return {call.ids, call.logprobs, call.final.usage().cached_tokens()};
}

// `baton serve` of a module and seven more decoders. Every second one has weights of its own, and
// the others have the module's.
struct EightDecoders {
  std::vector<std::string> names;  // the module is first
  Process serve;
  const std::string metrics = MetricsOf(serve);
  const std::unique_ptr<v1::Inference::Stub> stub = v1::Inference::NewStub(DialTcp(serve.Await("listening on ")));

  EightDecoders(const Decoders& made, const std::string& module)
      : names{std::filesystem::path(module).filename()}, serve("baton", Arguments(made, module, names)) {}

 private:
  static std::vector<std::string> Arguments(const Decoders& made, const std::string& module,
                                            std::vector<std::string>& names) {
    std::vector<std::string> arguments = {"serve",       module,      "--listen", "127.0.0.1:0",    "--http",
                                          "127.0.0.1:0", "--threads", "1",        "--kv-memory-mb", "16"};
    for (int i = 1; i < 8; ++i) {
      names.push_back(absl::StrCat("d", i));
      arguments.insert(arguments.end(),
                       {"--decoder", i % 2 == 0 ? made.Copy(names.back()) : made.Reversed(names.back())});
    }
    return arguments;
  }
};

// Counts since the start of the process that serves these metrics. Computed counts tokens of
// prompts and of shadow prefill.
inline double Computed(const std::string& metrics) {
  return Scrape(metrics, "baton_worker_tokens_total{role=\"prefill\",source=\"computed\"}").value_or(0) +
         Scrape(metrics, "baton_low_priority_tokens_total{source=\"computed\"}").value_or(0);
}
inline double Moved(const std::string& metrics) { return Scrape(metrics, "baton_transfer_bytes_total").value_or(0); }
// Current numbers of blocks.
inline double HeldAtPrefill(const std::string& metrics) {
  const auto blocks = [&](const std::string& state) {
    return Scrape(metrics, absl::StrCat("baton_kv_blocks{role=\"prefill\",state=\"", state, "\"}")).value_or(0);
  };
  return blocks("used") + blocks("cached");
}
inline double CachedAtDecode(const std::string& metrics, const std::string& model) {
  return Scrape(metrics, absl::StrCat("baton_kv_blocks{model=\"", model, "\",role=\"decode\",state=\"cached\"}"))
      .value_or(0);
}
// Bytes of the module's blocks: layers, K and V, KV heads, tokens, head dimension, float.
inline constexpr double kBlockBytes = 3 * 2 * 2 * 16 * 16 * 4;

// Waits until a count is at least `expected`, and returns it. A worker's load report updates the
// count.
inline double Becomes(const std::function<double()>& read, double expected) {
  Await(absl::StrCat("a count of ", expected), [&] { return read() >= expected; });
  return read();
}

}  // namespace baton
