#include "backend/cuda/decode_graphs.h"

#include <vector>

#include "backend/cuda/cuda_test_device.h"
#include "catch.h"
#include "kernels/device_array.h"

namespace baton {
namespace {

// Steps that set a byte of device memory. A captured step keeps the memory and the byte of its
// capture.
class ByteSteps {
 public:
  // Returns whether the host enqueued the step itself, instead of a replay.
  bool Run(const CapturedStep& step, const cuda::DeviceArray<uint8_t>& to, uint8_t value) {
    int enqueued = 0;
    const absl::Status ran = graphs_.Run(
        step,
        [&] {
          ++enqueued;
          return CudaStatus(cudaMemsetAsync(to.data(), value, to.size(), cudaStreamPerThread), "set");
        },
        cudaStreamPerThread);
    REQUIRE(ran.ok());
    REQUIRE(cudaStreamSynchronize(cudaStreamPerThread) == cudaSuccess);
    return enqueued > 0;
  }

 private:
  DecodeGraphs graphs_;
};

TEST_CASE("DecodeGraphs captures a step in its second run and replays it from then on") {
  if (!HasDevice()) return;
  const cuda::DeviceArray<uint8_t> memory(1);
  const CapturedStep step{.sizes = {4}, .addresses = {memory.data()}};
  ByteSteps steps;
  CHECK(steps.Run(step, memory, 1));
  CHECK(steps.Run(step, memory, 2));  // captured
  CHECK(!steps.Run(step, memory, 3));
  CHECK(memory.ToHost() == std::vector<uint8_t>{2});
}

TEST_CASE("DecodeGraphs does not replay a step of other sizes or other memory") {
  if (!HasDevice()) return;
  const cuda::DeviceArray<uint8_t> memory(1), other_memory(1);
  const CapturedStep step{.sizes = {4, 1}, .addresses = {memory.data()}};
  const CapturedStep larger{.sizes = {8, 1}, .addresses = {memory.data()}};
  const CapturedStep split{.sizes = {4, 2}, .addresses = {memory.data()}};
  const CapturedStep moved{.sizes = {4, 1}, .addresses = {other_memory.data()}};
  ByteSteps steps;
  for (int run = 0; run < 3; ++run) steps.Run(step, memory, 1);
  CHECK(steps.Run(larger, memory, 2));
  CHECK(memory.ToHost() == std::vector<uint8_t>{2});
  CHECK(steps.Run(split, memory, 3));
  CHECK(memory.ToHost() == std::vector<uint8_t>{3});
  CHECK(!steps.Run(step, memory, 4));  // other steps do not remove its graph
  CHECK(memory.ToHost() == std::vector<uint8_t>{1});
  CHECK(steps.Run(moved, other_memory, 5));
  CHECK(other_memory.ToHost() == std::vector<uint8_t>{5});
  CHECK(memory.ToHost() == std::vector<uint8_t>{1});
}

TEST_CASE("DecodeGraphs pads decode steps to few sizes with little padding") {
  int64_t last = 0;
  int sizes = 0;
  for (int64_t sequences = 1; sequences <= 512; ++sequences) {
    const int64_t rows = DecodeGraphs::RowsFor(sequences);
    INFO(sequences << " sequences, " << rows << " rows");
    CHECK(rows >= sequences);
    CHECK(rows >= last);
    CHECK(rows - sequences <= (sequences <= 8 ? 3 : sequences <= 64 ? 7 : 15));
    sizes += rows != last;
    last = rows;
  }
  CHECK(sizes == 4 + 7 + 28);
}

}  // namespace
}  // namespace baton
