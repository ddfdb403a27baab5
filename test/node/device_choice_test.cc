// Tests of the kind of device that --device chooses.
#include "node/device_choice.h"

#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "catch.h"
#include "log_capture.h"

namespace baton {
namespace {

// A kind of device of which only the result of Find matters.
class FakeDevice final : public Device {
 public:
  FakeDevice(std::string name, bool is_accelerator, absl::StatusOr<std::vector<int>> found)
      : name_(std::move(name)), is_accelerator_(is_accelerator), found_(std::move(found)) {}
  std::string_view name() const override { return name_; }
  bool is_accelerator() const override { return is_accelerator_; }
  absl::StatusOr<std::vector<int>> Find(const WorkerOptions&, const ModelConfig&) const override { return found_; }
  KvLayout KvLayoutOf(const ModelConfig&) const override { return {}; }
  absl::StatusOr<int64_t> BlocksThatFit(const WorkerOptions&, const Workers&, const LoadedModel&) const override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<Slab> MakeSlab(int, int64_t, Transport&) const override { return absl::UnimplementedError(""); }
  absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const LoadedModel&, const WorkerOptions&, bool,
                                                       const Transports&) const override {
    return absl::UnimplementedError("");
  }

 private:
  const std::string name_;
  const bool is_accelerator_;
  const absl::StatusOr<std::vector<int>> found_;
};

absl::StatusOr<DeviceChoice> Choose(const std::string& device, const std::vector<const Device*>& kinds, int ranks = 1) {
  WorkerOptions options;
  options.device = device;
  options.tensor_parallel = ranks;
  return ChooseDevices(options, ModelConfig{}, kinds);
}

const FakeDevice kCpu("cpu", false, std::vector<int>{0});
const FakeDevice kGpus("cuda", true, std::vector<int>{2, 3});
const FakeDevice kNoGpu("cuda", true, absl::UnavailableError("there is no CUDA device"));
const FakeDevice kSmallGpu("cuda", true, absl::InvalidArgumentError("heads of 96 have no kernel"));

}  // namespace

TEST_CASE("ChooseDevices takes the first kind that can run the model with auto") {
  const LogCapture log;
  const absl::StatusOr<DeviceChoice> choice = Choose("auto", {&kGpus, &kCpu});
  REQUIRE(choice.ok());
  CHECK(choice->kind == &kGpus);
  CHECK(choice->numbers == std::vector<int>{2, 3});
  CHECK(log.Count("computing on the CPU") == 0);
}

TEST_CASE("ChooseDevices takes the CPU with a reason when no GPU can run the model") {
  for (const FakeDevice* gpu : {&kNoGpu, &kSmallGpu}) {
    const LogCapture log;
    CHECK(Choose("auto", {gpu, &kCpu})->kind == &kCpu);
    CHECK(log.Count("computing on the CPU: " + std::string(gpu->Find({}, {}).status().message())) == 1);
  }
}

TEST_CASE("ChooseDevices warns of the CPU only with a GPU present or several ranks") {
  const struct {
    std::vector<const Device*> kinds;
    int ranks;
    bool warns;
  } cases[] = {
      {{&kCpu}, 1, false}, {{&kNoGpu, &kCpu}, 1, false}, {{&kSmallGpu, &kCpu}, 1, true}, {{&kNoGpu, &kCpu}, 2, true}};
  for (const auto& [kinds, ranks, warns] : cases) {
    const LogCapture log;
    spdlog::set_level(spdlog::level::warn);
    CHECK(Choose("auto", kinds, ranks).ok());
    CHECK(log.Count("computing on the CPU") == (warns ? 1 : 0));
    spdlog::set_level(spdlog::level::info);
  }
}

TEST_CASE("ChooseDevices uses a named kind or returns its error") {
  const LogCapture log;
  CHECK(Choose("cpu", {&kGpus, &kCpu})->kind == &kCpu);
  CHECK(Choose("cuda", {&kGpus, &kCpu})->kind == &kGpus);
  CHECK(Choose("cuda:2,3", {&kGpus, &kCpu})->kind == &kGpus);
  CHECK(Choose("cuda", {&kSmallGpu, &kCpu}).status() == absl::InvalidArgumentError("heads of 96 have no kernel"));
  CHECK(Choose("cuda:1", {&kCpu}).status() ==
        absl::UnavailableError("this build has no CUDA (configure with the CUDA toolkit and -DBATON_CUDA=ON)"));
  CHECK(log.Count("computing on the CPU") == 0);
}

TEST_CASE("ChooseDevices returns the last kind's reason when all kinds fail") {
  const FakeDevice broken("cpu", false, absl::ResourceExhaustedError("no memory"));
  CHECK(Choose("auto", {&kNoGpu, &broken}).status() == absl::ResourceExhaustedError("no memory"));
}

}  // namespace baton
