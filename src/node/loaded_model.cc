#include "node/loaded_model.h"

#include <algorithm>
#include <utility>

#include "base/logging.h"
#include "base/status.h"
#include "kv/staging/file.h"
#include "model/prefill_module.h"
#include "model/served_model.h"
#include "model/shard.h"
#include "model/unnamed_ids.h"
#include "node/device.h"
#include "node/device_choice.h"
#include "node/program.h"

namespace baton {
namespace {

// Sets the step limits that the options leave open.
void SetSteps(WorkerOptions& options, const Workers& workers, LoadedModel& model) {
  SetStepDefaults(options, model.device->is_accelerator());
  model.step.logits = workers.decode > 0 ? options.max_batch + options.score_tokens : 0;
  model.step.tokens = std::max(workers.prefill > 0 ? options.step_tokens : 0, model.step.logits);
}

// Chooses the devices of the model, and sets the number of KV blocks of each worker.
absl::Status Place(WorkerOptions& options, const Workers& workers, LoadedModel& model) {
  const ModelConfig& config = model.weights->config;
  RETURN_IF_ERROR(CheckShard(config, options.tensor_parallel));
  ASSIGN_OR_RETURN(DeviceChoice choice, ChooseDevices(options, config, Devices()));
  model.device = choice.kind;
  model.block_bytes = choice.kind->KvLayoutOf(config).BlockBytes();
  model.devices = std::move(choice.numbers);
  SetSteps(options, workers, model);
  ASSIGN_OR_RETURN(model.blocks, model.device->BlocksThatFit(options, workers, model));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LoadedModel> LoadModel(WorkerOptions& options, const Workers& workers) {
  RETURN_IF_ERROR(Validate(options));
  LoadedModel model;
  RETURN_IF_ERROR(CheckModelDirectory("model", options.model));
  ASSIGN_OR_RETURN(model.weights, LoadWeights(options.model));
  RETURN_IF_ERROR(Place(options, workers, model));
  if (!model.device->is_accelerator() && !options.guard_kv) WarnIfSharedMemoryShort(model.blocks * model.block_bytes);
  ASSIGN_OR_RETURN(const StagingOptions staging, Staging(options, model.block_bytes));
  const int64_t slabs = model.device->is_accelerator() ? 0 : workers.prefill + workers.decode;
  RETURN_IF_ERROR(
      CheckMemorySum(slabs * model.blocks * model.block_bytes, staging.host * model.block_bytes, FindMemoryLimit()));
  if (options.common.check && staging.disk > 0) {
    RETURN_IF_ERROR(StagingFile::Create(options.kv_disk_dir, staging.disk, model.block_bytes).status());
  }
  return model;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& directory, LoadedModel& model) {
  ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer, Tokenizer::Load(directory));
  const ModelConfig& config = model.weights->config;
  model.unnamed = UnnamedIds(*tokenizer, config);
  if (!model.unnamed.empty()) {
    spdlog::info("model {}: {} of {} token ids have no token in tokenizer.json and are never sampled",
                 ModelName(directory), model.unnamed.size(), config.vocab);
  }
  return tokenizer;
}

absl::StatusOr<Digest> KvDigest(const WorkerOptions& options, const LoadedModel& model, const Tokenizer& tokenizer) {
  if (options.prefill_module.empty()) return model.weights->digest;
  RETURN_IF_ERROR(CheckModelDirectory("prefill-module", options.prefill_module));
  return PrefillModuleDigest(options.prefill_module, {model.weights->config, tokenizer});
}

}  // namespace baton
