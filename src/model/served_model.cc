#include "model/served_model.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>

#include "absl/strings/escaping.h"
#include "absl/strings/str_join.h"
#include "base/logging.h"
#include "base/status.h"
#include "base/strings.h"
#include "model/sampling_defaults.h"
#include "model/unnamed_ids.h"

namespace baton {
namespace {

// Returns null if the model has no such template.
absl::StatusOr<std::shared_ptr<const ChatTemplate>> LoadTemplate(const std::string& directory, std::string_view name) {
  absl::StatusOr<std::unique_ptr<ChatTemplate>> loaded = ChatTemplate::Load(directory, name);
  if (absl::IsNotFound(loaded.status())) return nullptr;
  RETURN_IF_ERROR(loaded.status());
  return *std::move(loaded);
}

// Returns the template for chats with tools, if Baton can render it. The default template shows
// tools otherwise.
std::shared_ptr<const ChatTemplate> LoadToolTemplate(const std::string& directory) {
  const auto loaded = LoadTemplate(directory, ChatTemplate::kToolUse);
  if (loaded.ok()) return *loaded;
  spdlog::warn("{}: chats with tools use the default template: {}", directory, CodeAndMessage(loaded.status()));
  return nullptr;
}

}  // namespace

absl::Status CheckNamed(std::string_view field, std::span<const TokenId> ids, const ServedModel& model) {
  const auto unnamed = [&](TokenId id) { return std::ranges::binary_search(model.unnamed, id); };
  const auto bad = std::ranges::find_if(ids, unnamed);
  if (bad == ids.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat(field, "[", bad - ids.begin(),
                                           "]: expected an id that has a token in tokenizer.json of '",
                                           model.shown_name(), "', got ", *bad));
}

std::string ModelName(const std::string& directory) {
  std::filesystem::path path = std::filesystem::path(directory).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "models/x/"
  return path.filename().string();
}

absl::Status CheckModelNames(const std::vector<std::string>& directories) {
  std::map<std::string, std::string> by_name;
  for (const std::string& directory : directories) {
    const auto [other, is_new] = by_name.try_emplace(ModelName(directory), directory);
    if (is_new) continue;
    return absl::InvalidArgumentError(absl::StrCat("model: '", other->second, "' and '", directory,
                                                   "' would both be served as '", other->first,
                                                   "': rename one directory"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ServedModel> LoadServedModel(const std::string& directory) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  ServedModel model;
  model.name = ModelName(directory);
  ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig(directory));
  if (config.context > kMax || config.vocab > kMax) {
    return absl::InvalidArgumentError(absl::StrCat(directory, ": context length ", config.context, " and vocabulary ",
                                                   config.vocab, " must be at most ", kMax));
  }
  model.context = static_cast<int32_t>(config.context);
  model.vocab = static_cast<int32_t>(config.vocab);
  ASSIGN_OR_RETURN(model.tokenizer, Tokenizer::Load(directory));
  model.unnamed = UnnamedIds(*model.tokenizer, config);
  model.eos_ids = config.eos_ids;
  ASSIGN_OR_RETURN(model.sampling, LoadSamplingDefaults(directory));
  ASSIGN_OR_RETURN(model.chat_template, LoadTemplate(directory, ChatTemplate::kDefault));
  if (model.chat_template != nullptr) model.tool_template = LoadToolTemplate(directory);
  return model;
}

absl::StatusOr<std::vector<ServedModel>> LoadServedModels(const std::vector<std::string>& directories) {
  RETURN_IF_ERROR(CheckModelNames(directories));
  std::vector<ServedModel> models;
  for (const std::string& directory : directories) {
    ASSIGN_OR_RETURN(ServedModel model, LoadServedModel(directory));
    models.push_back(std::move(model));
  }
  return models;
}

// Bytes of an unknown name that an error message repeats. Status messages travel in headers.
constexpr size_t kShownNameBytes = 256;
// Names that the error message lists. There may be thousands of aliases.
constexpr size_t kShownNames = 16;

ServedModels::ServedModels(std::vector<ServedModel> models, ModelNames names)
    : names_(std::move(names)), configured_(models.size()) {
  for (ServedModel& model : models) {
    model.listed_names = names_.ListedNames(model.name);
    const auto same = std::ranges::find_if(
        models_, [&](const ServedModel& earlier) { return earlier.tokenizer->digest() == model.tokenizer->digest(); });
    model.tokenizer_id = same == models_.end() ? model.name : same->name;
    models_.push_back(std::move(model));
  }
}

const ServedModel* ServedModels::FindLocked(const std::string& name) const {
  const auto found = std::ranges::find(models_, name, &ServedModel::name);
  return found == models_.end() ? nullptr : &*found;
}

const ServedModel* ServedModels::Resolve(const std::string& name) const {
  if (name.empty() && configured_ == 1) return &models_.front();
  if (const std::string* own = names_.FindName(name)) return FindLocked(*own);
  if (const ServedModel* model = FindLocked(name)) return model;
  const std::string* own = names_.FindPattern(name);
  return own == nullptr ? nullptr : FindLocked(*own);
}

absl::StatusOr<const ServedModel*> ServedModels::Find(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  if (const ServedModel* model = Resolve(name)) return model;
  std::vector<std::string> listed;
  for (const ServedModel& model : models_) {
    for (const std::string& listed_name : model.listed_names) listed.push_back(StrCat("'", listed_name, "'"));
  }
  const size_t shown = std::min(listed.size(), kShownNames);
  const std::string more = listed.size() > shown ? StrCat(" or ", listed.size() - shown, " more names") : "";
  return absl::InvalidArgumentError(
      absl::StrCat("model: expected one of ", absl::StrJoin(listed.begin(), listed.begin() + shown, ", "), more,
                   ", got ", name.empty() ? "no name" : "'" + absl::CHexEscape(name.substr(0, kShownNameBytes)) + "'"));
}

bool ServedModels::Contains(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return name.empty() || Resolve(name) != nullptr;
}

std::vector<const ServedModel*> ServedModels::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<const ServedModel*> models;
  for (const ServedModel& model : models_) models.push_back(&model);
  return models;
}

absl::Status ServedModels::Join(const std::string& name, const std::string& module) {
  const std::lock_guard lock(mutex_);
  const ServedModel* base = FindLocked(module);
  if (base == nullptr || FindLocked(name) != nullptr) return absl::OkStatus();
  if (const std::string* other = names_.FindName(name)) {
    return absl::AlreadyExistsError(StrCat(
        "the decoder '", name, "' is not served, because its name is a served name or an alias of '", *other, "'"));
  }
  ServedModel decoder = *base;
  decoder.name = name;
  decoder.listed_names = {name};
  models_.push_back(std::move(decoder));
  return absl::OkStatus();
}

}  // namespace baton
