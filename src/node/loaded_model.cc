#include "node/loaded_model.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "backend/cpu/cpu_backend.h"
#include "base/logging.h"
#include "base/status.h"
#include "kv/staging/file.h"
#include "model/prefill_module.h"
#include "model/shard.h"
#include "node/device.h"
#include "node/program.h"

namespace baton {
namespace {

// Sets the step limits that the options leave to the device.
void SetSteps(WorkerOptions& options, const Workers& workers, LoadedModel& model) {
  SetStepDefaults(options, model.device->name() != "cpu");
  model.step.logits = workers.decode > 0 ? options.max_batch : 0;
  model.step.tokens = std::max(workers.prefill > 0 ? options.step_tokens : 0, model.step.logits);
}

// Chooses the kind of device and the devices. For "auto" the first kind whose devices are present and can run the
// model: the CPU is the last.
absl::Status ChooseDevices(const WorkerOptions& options, LoadedModel& model) {
  const std::string wanted = options.device.substr(0, options.device.find(':'));
  absl::Status missing = absl::UnavailableError(absl::StrCat("this build has no ",
                                                             wanted == "auto" ? "CUDA" : absl::AsciiStrToUpper(wanted),
                                                             " (configure with the CUDA toolkit and -DBATON_CUDA=ON)"));
  for (const Device* device : Devices()) {
    if (wanted != "auto" && wanted != device->name()) continue;
    absl::StatusOr<std::vector<int>> found = device->Find(options, model.weights->config);
    if (!found.ok()) {
      missing = found.status();
      continue;
    }
    if (wanted == "auto" && device->name() == "cpu") {
      // A machine without a GPU is common. A GPU that is present and not used deserves a warning.
      const bool usual = absl::IsUnavailable(missing) && options.tensor_parallel == 1;
      const auto level = usual ? spdlog::level::info : spdlog::level::warn;
      spdlog::log(level, "computing on the CPU: {}", std::string(missing.message()));
    }
    model.device = device;
    model.devices = *std::move(found);
    return absl::OkStatus();
  }
  return missing;
}

// Chooses the devices of the model, and sizes the KV memory of one worker of the process there.
absl::Status Place(WorkerOptions& options, const Workers& workers, LoadedModel& model) {
  const ModelConfig& config = model.weights->config;
  model.block_bytes = CpuKvLayout(config).BlockBytes();
  RETURN_IF_ERROR(CheckShard(config, options.tensor_parallel));
  RETURN_IF_ERROR(ChooseDevices(options, model));
  SetSteps(options, workers, model);
  ASSIGN_OR_RETURN(model.blocks, model.device->BlocksThatFit(options, workers, model));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LoadedModel> LoadModel(WorkerOptions& options, const Workers& workers) {
  RETURN_IF_ERROR(Validate(options));
  LoadedModel model;
  ASSIGN_OR_RETURN(model.weights, LoadWeights(options.model));
  RETURN_IF_ERROR(Place(options, workers, model));
  if (model.device->name() == "cpu" && !options.guard_kv) WarnOfSharedMemory(model.blocks * model.block_bytes);
  ASSIGN_OR_RETURN(const StagingOptions staging, Staging(options, model.block_bytes));
  if (options.common.check && staging.disk > 0) {
    RETURN_IF_ERROR(StagingFile::Create(options.kv_disk_dir, staging.disk, model.block_bytes).status());
  }
  return model;
}

absl::StatusOr<Digest> KvDigest(const WorkerOptions& options, const LoadedModel& model, const Tokenizer& tokenizer) {
  if (options.prefill_module.empty()) return model.weights->digest;
  return PrefillModuleDigest(options.prefill_module, {model.weights->config, tokenizer});
}

}  // namespace baton
