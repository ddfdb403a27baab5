// The part of a model that a router needs: its limits, tokenizer and chat template. A router never
// loads weights.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "model/config.h"
#include "model/model_names.h"
#include "model/sampling_params.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace baton {

struct ServedModel {
  std::string name;  // the model's own name, by which workers name it
  // The names by which the model is listed. Empty only outside of ServedModels.
  std::vector<std::string> listed_names{};
  int32_t context = 0;  // context length, in tokens
  int32_t vocab = 0;
  std::vector<TokenId> unnamed;  // ids that no request may contain (UnnamedIds)
  std::vector<TokenId> eos_ids;
  // The name of the first served model with an equal tokenizer, possibly this model. Token ids may
  // pass between models with the same value.
  std::string tokenizer_id;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;  // null: the model has none
  std::shared_ptr<const ChatTemplate> tool_template;  // of chats with tools; null: it has none
  SamplingParams sampling;                            // the model's defaults, without max_tokens

  // Returns the template for a chat with or without tools, or null.
  const ChatTemplate* TemplateFor(bool tools) const {
    return tools && tool_template != nullptr ? tool_template.get() : chat_template.get();
  }
  // The name for messages to clients.
  const std::string& shown_name() const { return listed_names.empty() ? name : listed_names.front(); }
};

// Checks the ids that a client sent in the list `field`. INVALID_ARGUMENT: the model has no token
// for an id (UnnamedIds). The message names the element, the id, and the ids that are expected.
absl::Status CheckNamed(std::string_view field, std::span<const TokenId> ids, const ServedModel& model);

// Returns the last component of a model directory's path, which is the model's name.
std::string ModelName(const std::string& directory);
// Returns INVALID_ARGUMENT, with both directories, if two directories have the same model name.
absl::Status CheckModelNames(const std::vector<std::string>& directories);

// Loads config, tokenizer, chat template and sampling defaults. Fails with NOT_FOUND or
// INVALID_ARGUMENT as the loaders do. The message names file and field.
absl::StatusOr<ServedModel> LoadServedModel(const std::string& directory);
// Loads several models after CheckModelNames.
absl::StatusOr<std::vector<ServedModel>> LoadServedModels(const std::vector<std::string>& directories);

// The models that a router serves: the configured models, and decoders that joined later.
// Thread-safe. Returned pointers stay valid as long as this object.
class ServedModels {
 public:
  // `models` are the configured models, and `names` their further names.
  explicit ServedModels(std::vector<ServedModel> models, ModelNames names = {});
  // Returns the model that a client means by `name`. A model's own name, a served name and an alias
  // without '*' come before patterns. An empty name means the only configured model. Returns
  // INVALID_ARGUMENT with the listed names if no model matches, or if the name is empty and
  // several models are configured.
  absl::StatusOr<const ServedModel*> Find(const std::string& name) const;
  // Returns true if Find would return a model, or if the name is empty.
  bool Contains(const std::string& name) const;
  std::vector<const ServedModel*> all() const;
  // Serves a decoder that continues from the KV of `module`, with the tokenizer and chat template
  // of `module`. Does nothing if `name` is served already, or if `module` is not served. Returns
  // ALREADY_EXISTS if `name` is a served name or an alias of another model. The decoder is then not
  // served.
  absl::Status Join(const std::string& name, const std::string& module);

 private:
  // Returns the model with this own name, or null.
  const ServedModel* FindLocked(const std::string& name) const;
  const ServedModel* Resolve(const std::string& name) const;

  const ModelNames names_;
  const size_t configured_;         // number of configured models
  mutable std::mutex mutex_;        // guards models_
  std::deque<ServedModel> models_;  // only grows; the configured models are the first configured_
};

}  // namespace baton
