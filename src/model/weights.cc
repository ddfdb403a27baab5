#include "model/weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "base/json/json_file.h"
#include "base/status.h"
#include "model/module_digest.h"
#include "model/safetensors.h"

namespace baton {
namespace {

constexpr int64_t kMaxIndexBytes = 2 << 20;
constexpr size_t kMaxShards = 1024;

class MappedWeights final : public Weights {
 public:
  std::vector<SafetensorsFile> files;
};

struct Found {
  const SafetensorsFile* file;
  const SafetensorsEntry* entry;
};
using TensorIndex = std::map<absl::string_view, Found>;

absl::Status Error(const SafetensorsFile& file, absl::string_view tensor, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(file.path(), ": tensor '", tensor, "': ", what));
}

// Returns true if `name` is a file name without a directory. An index may name only files of the
// model's own directory.
bool IsPlainFileName(absl::string_view name) {
  return !name.empty() && name.size() <= 255 && name[0] != '.' && name.find('/') == name.npos &&
         name.find('\0') == name.npos;
}

// Reads the map from tensor name to file name in model.safetensors.index.json.
absl::StatusOr<std::map<std::string, std::string>> ReadShardMap(const std::string& index_path) {
  ASSIGN_OR_RETURN(const nlohmann::json index, ReadJsonObject(index_path, kMaxIndexBytes));
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(index_path, ": weight_map: expected an object"));
  }
  std::map<std::string, std::string> shards;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string() || !IsPlainFileName(shard.get_ref<const std::string&>())) {
      return absl::InvalidArgumentError(
          absl::StrCat(index_path, ": weight_map: tensor '", absl::CHexEscape(tensor.substr(0, 80)),
                       "': expected the name of a file in the same directory, got ",
                       shard.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).substr(0, 80)));
    }
    shards.emplace(tensor, shard.get<std::string>());
  }
  return shards;
}

absl::StatusOr<std::vector<SafetensorsFile>> OpenShards(const std::string& directory) {
  const std::string index_path = absl::StrCat(directory, "/model.safetensors.index.json");
  ASSIGN_OR_RETURN(const auto shard_map, ReadShardMap(index_path));
  std::set<std::string> names;
  for (const auto& [tensor, shard] : shard_map) names.insert(shard);
  if (names.size() > kMaxShards) {
    return absl::InvalidArgumentError(
        absl::StrCat(index_path, ": expected at most ", kMaxShards, " shards, got ", names.size()));
  }
  std::vector<SafetensorsFile> files;
  std::map<std::string, size_t> position;
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(absl::StrCat(directory, "/", name)));
    position.emplace(name, files.size());
    files.push_back(std::move(file));
  }
  for (const auto& [tensor, shard] : shard_map) {
    const SafetensorsFile& file = files[position.at(shard)];
    if (!file.tensors().contains(tensor))
      return Error(file, absl::CHexEscape(tensor.substr(0, 80)), "missing, but the index lists it in this file");
  }
  return files;
}

absl::StatusOr<std::vector<SafetensorsFile>> OpenFiles(const std::string& directory) {
  auto single = SafetensorsFile::Open(absl::StrCat(directory, "/model.safetensors"));
  if (absl::IsNotFound(single.status())) {
    auto shards = OpenShards(directory);
    if (!absl::IsNotFound(shards.status())) return shards;
    return absl::NotFoundError(absl::StrCat(
        directory,
        ": expected model.safetensors or model.safetensors.index.json with its shards: ", shards.status().message()));
  }
  RETURN_IF_ERROR(single.status());
  std::vector<SafetensorsFile> files;
  files.push_back(*std::move(single));
  return files;
}

absl::StatusOr<TensorIndex> IndexByName(const std::vector<SafetensorsFile>& files) {
  TensorIndex index;
  for (const SafetensorsFile& file : files) {
    for (const auto& [name, entry] : file.tensors()) {
      const auto [position, inserted] = index.try_emplace(name, Found{&file, &entry});
      if (!inserted) return Error(file, name, absl::StrCat("also in ", position->second.file->path()));
    }
  }
  return index;
}

// Returns tensors by name, with the shape that the config implies. It tracks the tensors that no
// part of the model has taken.
class TensorTaker {
 public:
  TensorTaker(TensorIndex index, const ModelConfig& config, const std::string& directory)
      : left_(std::move(index)), config_(config), directory_(directory) {}

  // Stores the tensor `name` in `target`. Fails if its shape is not that of `row`.
  absl::Status Take(const std::string& name, const TensorRow& row, Tensor& target) {
    const int64_t rows = SizeOf(row.rows, config_);
    if (row.cols == Extent::kOne) return TakeShaped(name, {rows}, target);
    return TakeShaped(name, {rows, SizeOf(row.cols, config_)}, target);
  }
  bool Has(absl::string_view name) const { return left_.contains(name); }

  // Fails if a tensor is left, because the architecture would then compute something else. The
  // tables of rope frequencies in old checkpoints are ignored.
  absl::Status CheckNothingLeft() const {
    for (const auto& [name, found] : left_) {
      if (!absl::EndsWith(name, ".rotary_emb.inv_freq")) {
        return Error(*found.file, name, "unknown tensor for this architecture");
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status TakeShaped(const std::string& name, const std::vector<int64_t>& shape, Tensor& target) {
    const auto position = left_.find(name);
    if (position == left_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(directory_, ": tensor '", name, "': missing from the safetensors"));
    }
    const auto [file, entry] = position->second;
    const absl::string_view dtype = config_.dtype == DType::kF32 ? "F32" : "BF16";
    if (entry->dtype != dtype) {
      return Error(*file, name, absl::StrCat("expected dtype ", dtype, " as in config.json, got ", entry->dtype));
    }
    if (entry->shape != shape) {
      return Error(*file, name, absl::StrCat("expected shape ", Shown(shape), ", got ", Shown(entry->shape)));
    }
    target = {entry->bytes.data(), config_.dtype, shape[0], shape.size() == 2 ? shape[1] : 1};
    left_.erase(position);
    return absl::OkStatus();
  }

  static std::string Shown(const std::vector<int64_t>& shape) {
    std::string text = "[";
    for (const int64_t extent : shape) absl::StrAppend(&text, text.size() == 1 ? "" : ", ", extent);
    return text + "]";
  }

  TensorIndex left_;
  const ModelConfig& config_;
  const std::string& directory_;
};

absl::Status TakeLayer(TensorTaker& take, const ModelConfig& config, int64_t number, LayerWeights& layer) {
  for (const LayerTensorRow& row : kLayerTensors) {
    if (Has(config, row)) RETURN_IF_ERROR(take.Take(LayerTensorName(row, number), row, layer.*row.tensor));
  }
  return absl::OkStatus();
}

// Sets lm_head of a model with tied embeddings to the embedding. The file may have an lm_head as
// well, but only as an equal copy.
absl::Status TieHead(Weights& weights) {
  const size_t bytes =
      static_cast<size_t>(weights.embedding.rows * weights.embedding.cols * BytesPerElement(weights.embedding.dtype));
  if (weights.lm_head.data != nullptr && std::memcmp(weights.lm_head.data, weights.embedding.data, bytes) != 0) {
    return absl::InvalidArgumentError(
        "tensor 'lm_head.weight': expected a copy of model.embed_tokens.weight, since config.json has "
        "tie_word_embeddings, got other bytes");
  }
  weights.lm_head = weights.embedding;
  return absl::OkStatus();
}

absl::Status TakeAll(TensorTaker& take, Weights& weights) {
  const ModelConfig& config = weights.config;
  for (const ModelTensorRow& row : kModelTensors) {
    const bool may_lack = config.tied_embeddings && row.tensor == &ModelTensors::lm_head;
    if (may_lack && !take.Has(row.checkpoint_name)) continue;
    RETURN_IF_ERROR(take.Take(row.checkpoint_name, row, weights.*row.tensor));
  }
  for (int64_t number = 0; number < config.layers; ++number) {
    RETURN_IF_ERROR(TakeLayer(take, config, number, weights.layers.emplace_back()));
  }
  if (config.tied_embeddings) RETURN_IF_ERROR(TieHead(weights));
  return take.CheckNothingLeft();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Weights>> LoadWeights(const std::string& directory) {
  auto weights = std::make_unique<MappedWeights>();
  ASSIGN_OR_RETURN(weights->config, LoadModelConfig(directory));
  ASSIGN_OR_RETURN(weights->files, OpenFiles(directory));
  ASSIGN_OR_RETURN(TensorIndex index, IndexByName(weights->files));
  TensorTaker take(std::move(index), weights->config, directory);
  RETURN_IF_ERROR(TakeAll(take, *weights));
  weights->digest = ModuleDigest(*weights);
  return std::unique_ptr<Weights>(std::move(weights));
}

std::vector<NamedTensor> TensorsOf(const Weights& weights) {
  std::vector<NamedTensor> list;
  for (const ModelTensorRow& row : kModelTensors) {
    const bool is_embedding = row.tensor == &ModelTensors::lm_head && weights.config.tied_embeddings &&
                              weights.lm_head.rows == weights.embedding.rows;
    if (!is_embedding) list.push_back({row.name, &(weights.*row.tensor)});
  }
  for (size_t number = 0; number < weights.layers.size(); ++number) {
    const LayerWeights& layer = weights.layers[number];
    for (const LayerTensorRow& row : kLayerTensors) {
      const Tensor& tensor = layer.*row.tensor;
      if (tensor.data != nullptr) list.push_back({absl::StrCat(number, ".", row.name), &tensor});
    }
  }
  return list;
}

}  // namespace baton
