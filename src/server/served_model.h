// What a router needs of a model: its limits, tokenizer and chat template; never its weights.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/chat_template.h"
#include "model/config.h"
#include "model/sampling_params.h"
#include "model/tokenizer.h"

namespace baton {

struct ServedModel {
  std::string name;
  int32_t context = 0;  // tokens
  int32_t vocab = 0;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;  // null: the model has none
  SamplingParams sampling;                      // the model's defaults; max_tokens is not of them
};

// The name of a model directory: its last part.
std::string ModelName(const std::string& directory);

// NOT_FOUND, INVALID_ARGUMENT: as the loaders say, with file and field.
absl::StatusOr<ServedModel> LoadServedModel(const std::string& directory);

class ServedModels {
 public:
  explicit ServedModels(std::vector<ServedModel> models) : models_(std::move(models)) {}
  // An empty name means the only model. INVALID_ARGUMENT lists the names that are served.
  absl::StatusOr<const ServedModel*> Find(const std::string& name) const;
  const std::vector<ServedModel>& all() const { return models_; }

 private:
  std::vector<ServedModel> models_;
};

}  // namespace baton
