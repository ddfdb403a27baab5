// Tests of where --device places a model.
#include "node/loaded_model.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "base/strings.h"
#include "catch.h"
#include "node/device.h"
#include "node/transports.h"
#include "node/worker_backend.h"
#include "source_path.h"
#include "temp_dir.h"

namespace baton {
namespace {

WorkerOptions OptionsOn(const std::string& device) {
  WorkerOptions options;
  options.model = SourcePath("test/golden/tiny_llama3_bf16");
  options.device = device;
  options.kv_memory_mb = 8;
  return options;
}

}  // namespace

TEST_CASE("Option --device cpu places the model on the CPU and sizes its KV memory") {
  WorkerOptions options = OptionsOn("cpu");
  const absl::StatusOr<LoadedModel> model = LoadModel(options, {.prefill = 1, .decode = 1});
  INFO(model.status().ToString());
  REQUIRE(model.ok());
  CHECK(model->device->name() == "cpu");
  CHECK(model->devices == std::vector<int>{0});
  CHECK(model->blocks == (8 << 20) / model->block_bytes);
  CHECK(model->step.logits == options.max_batch + options.score_tokens);
  CHECK(model->step.tokens == std::max<int64_t>(options.step_tokens, options.max_batch));
}

TEST_CASE("A prefill worker reserves no memory for logits") {
  WorkerOptions options = OptionsOn("cpu");
  CHECK(LoadModel(options, {.prefill = 1}).value().step.logits == 0);
}

TEST_CASE("Each rank of a tensor-parallel worker has a device") {
  WorkerOptions options = OptionsOn("cpu");
  options.tensor_parallel = 2;
  CHECK(LoadModel(options, {.decode = 1}).value().devices == std::vector<int>{0, 0});
}

TEST_CASE("Option --device cuda fails with the reason when there is no GPU") {
  WorkerOptions options = OptionsOn("cuda:63");  // no machine has so many devices
  const absl::Status status = LoadModel(options, {.decode = 1}).status();
  INFO(Message(status));
  CHECK(absl::IsUnavailable(status));
  CHECK(absl::StrContains(status.message(), "CUDA"));
}

TEST_CASE("LoadModel refuses KV and host memory that exceed the limit together") {
  const MemoryLimit limit = FindMemoryLimit();
  WorkerOptions options = OptionsOn("cpu");
  options.guard_kv = true;
  options.kv_memory_mb = limit.bytes / 10 * 6 >> 20;
  CHECK(LoadModel(options, {.prefill = 1}).ok());
  options.kv_host_mb = options.kv_memory_mb;
  const absl::Status status = LoadModel(options, {.prefill = 1}).status();
  INFO(Message(status));
  CHECK(absl::IsInvalidArgument(status));
  CHECK(absl::StrContains(status.message(), StrCat("together do not fit into ", limit.source)));
  // Each worker of a process has KV blocks.
  options.kv_host_mb = 0;
  CHECK(absl::IsInvalidArgument(LoadModel(options, {.prefill = 1, .decode = 1}).status()));
}

TEST_CASE("MakeBackend names the flags and limits when memory is short") {
  WorkerOptions options = OptionsOn("cpu");
  LoadedModel model = LoadModel(options, {.prefill = 1}).value();
  model.blocks = (int64_t{1} << 60) / model.block_bytes;
  const Transports transports = MakeInProcessTransports(options, std::make_shared<InProcessNetwork>());
  const absl::Status status = MakeBackend(model, options, false, transports).status();
  INFO(Message(status));
  CHECK(absl::IsResourceExhausted(status));
  CHECK(absl::StrContains(status.message(), "--kv-memory-mb"));
  CHECK(absl::StrContains(status.message(), "ulimit -v"));
}

TEST_CASE("LoadModel names the flag when --model is no model's directory") {
  const TempDir directory;
  directory.Write("file", "");
  WorkerOptions options = OptionsOn("cpu");
  const auto error = [&](const std::string& model) {
    options.model = model;
    return std::string(Message(LoadModel(options, {.prefill = 1}).status()));
  };
  const std::string start =
      "model: expected a Hugging Face directory (config.json, tokenizer.json, *.safetensors), got ";
  CHECK(error(directory / "absent") ==
        start + (directory / "absent") + ": it does not exist (Baton downloads nothing; tools/fetch_model does)");
  CHECK(error(directory / "file") == start + (directory / "file") + ": it is not a directory");
  CHECK(error(directory.path()) == start + directory.path() + ": it has no config.json");
}

TEST_CASE("Option --device auto tries the CPU last") {
  REQUIRE_FALSE(Devices().empty());
  CHECK(Devices().back()->name() == "cpu");
}

}  // namespace baton
