// What a router needs of a model: its limits, tokenizer and chat template; never its weights.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/config.h"
#include "model/sampling_params.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace baton {

struct ServedModel {
  std::string name;
  int32_t context = 0;  // tokens
  int32_t vocab = 0;
  // The first served model with an equal tokenizer, itself perhaps: one's token ids mean the same to all of a family.
  std::string family;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;  // null: the model has none
  SamplingParams sampling;                            // the model's defaults; max_tokens is not of them
};

// The name of a model directory: its last part.
std::string ModelName(const std::string& directory);
// INVALID_ARGUMENT: two directories of one name (both are named).
absl::Status CheckModelNames(const std::vector<std::string>& directories);

// NOT_FOUND, INVALID_ARGUMENT: as the loaders say, with file and field.
absl::StatusOr<ServedModel> LoadServedModel(const std::string& directory);
absl::StatusOr<std::vector<ServedModel>> LoadServedModels(const std::vector<std::string>& directories);

// Those that a router was told of, and decoders of theirs that joined since. Thread-safe; pointers stay valid.
class ServedModels {
 public:
  explicit ServedModels(std::vector<ServedModel> models);
  // An empty name means the only model that the router was told of. INVALID_ARGUMENT lists the names that are served.
  absl::StatusOr<const ServedModel*> Find(const std::string& name) const;
  bool Contains(const std::string& name) const;
  std::vector<const ServedModel*> all() const;
  // A decoder that goes on from `module`'s KV is served with the module's tokenizer, which is its own, and chat
  // template. Nothing if the name is served already, or the module is not.
  void Join(const std::string& name, const std::string& module);

 private:
  const ServedModel* FindLocked(const std::string& name) const;

  const size_t told_;
  mutable std::mutex mutex_;        // guards what follows
  std::deque<ServedModel> models_;  // only grows; the first told_ never change
};

}  // namespace baton
