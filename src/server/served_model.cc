#include "server/served_model.h"

#include <filesystem>
#include <limits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "model/sampling_defaults.h"

namespace baton {

std::string ModelName(const std::string& directory) {
  std::filesystem::path path = std::filesystem::path(directory).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "models/x/"
  return path.filename().string();
}

absl::StatusOr<ServedModel> LoadServedModel(const std::string& directory) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  ServedModel model;
  model.name = ModelName(directory);
  ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig(directory));
  if (config.context > kMax || config.vocab > kMax) {
    return absl::InvalidArgumentError(absl::StrCat(directory, ": context ", config.context, " and vocabulary ",
                                                   config.vocab, " must be at most ", kMax));
  }
  model.context = static_cast<int32_t>(config.context);
  model.vocab = static_cast<int32_t>(config.vocab);
  ASSIGN_OR_RETURN(model.tokenizer, Tokenizer::Load(directory));
  ASSIGN_OR_RETURN(model.sampling, LoadSamplingDefaults(directory));
  auto chat_template = ChatTemplate::Load(directory);
  if (chat_template.ok()) {
    model.chat_template = *std::move(chat_template);
  } else if (!absl::IsNotFound(chat_template.status())) {
    return chat_template.status();
  }
  return model;
}

constexpr size_t kShownNameBytes = 256;  // of an unknown name: status messages travel in headers

absl::StatusOr<const ServedModel*> ServedModels::Find(const std::string& name) const {
  if (name.empty() && models_.size() == 1) return &models_.front();
  for (const ServedModel& model : models_) {
    if (model.name == name) return &model;
  }
  const std::string served = absl::StrJoin(
      models_, ", ", [](std::string* out, const ServedModel& model) { absl::StrAppend(out, "'", model.name, "'"); });
  return absl::InvalidArgumentError(
      absl::StrCat("model: ",
                   name.empty() ? "must be named where several are served"
                                : "unknown: '" + absl::CHexEscape(name.substr(0, kShownNameBytes)) + "'",
                   "; served here: ", served));
}

}  // namespace baton
