#include "backend/cuda/pass_output.h"

#include <vector>

#include "backend/cuda/cuda_test_device.h"
#include "catch.h"
#include "kernels/device_array.h"

namespace baton {
namespace {

constexpr int64_t kVocab = 64, kStride = 68;

// Rows of logits on the device, [rows, kStride]. The largest logit of each row is that of its
// token.
cuda::DeviceArray<float> LogitsFor(const std::vector<int64_t>& tokens) {
  std::vector<float> values(tokens.size() * kStride);
  for (size_t row = 0; row < tokens.size(); ++row) values[row * kStride + static_cast<size_t>(tokens[row])] = 5;
  return cuda::DeviceArray<float>(values);
}

// A PassOutput with the planner of its passes.
class Output {
 public:
  Output() : output(kVocab, /*has_logits=*/true) { REQUIRE(output.Prepare().ok()); }
  // Enqueues a pass and returns its name.
  int Send(const std::vector<const SampleSpec*>& specs, const cuda::DeviceArray<float>& logits) {
    upload_.Clear();
    REQUIRE(output.sampling()->Plan(specs, upload_).ok());
    REQUIRE(output.sampling()->ReserveShaped().ok());
    REQUIRE(output.Reserve(std::ssize(specs), cudaStreamPerThread).ok());
    REQUIRE(upload_.Send("test", cudaStreamPerThread).ok());
    REQUIRE(output.Send(logits.data(), kStride, cudaStreamPerThread).ok());
    return output.choice();
  }

  PassOutput output;

 private:
  UploadBuffer upload_;
};

TEST_CASE("PassOutput returns tokens of sampled rows and logits of the other rows") {
  if (!HasDevice()) return;
  Output pass;
  const cuda::DeviceArray<float> logits = LogitsFor({7, 8, 9, 10});
  const int choice = pass.Send({&kGreedy, nullptr, nullptr, &kGreedy}, logits);
  CHECK(!pass.output.chose_all());
  const auto view = pass.output.Fetch(choice);
  REQUIRE(view.ok());
  REQUIRE((view->rows == 4 && view->vocab == kVocab && view->sampled.size() == 4));
  CHECK(view->sampled[0].id == 7);
  CHECK(view->sampled[1].id == kNotSampled);
  CHECK(view->sampled[2].id == kNotSampled);
  CHECK(view->sampled[3].id == 10);
  for (const int64_t row : {1, 2}) {
    std::vector<float> expected(kVocab);
    expected[static_cast<size_t>(7 + row)] = 5;
    CHECK(std::vector<float>(view->data + row * kVocab, view->data + (row + 1) * kVocab) == expected);
  }
}

TEST_CASE("PassOutput keeps the tokens of a pass while the next one is enqueued") {
  if (!HasDevice()) return;
  Output pass;
  const cuda::DeviceArray<float> first_logits = LogitsFor({7, 8}), next_logits = LogitsFor({9});
  REQUIRE(pass.output.Reserve(2, cudaStreamPerThread).ok());
  const int first = pass.Send({&kGreedy, &kGreedy}, first_logits);
  CHECK(pass.output.chose_all());
  const int next = pass.Send({&kGreedy}, next_logits);
  CHECK(first != next);
  const auto first_view = pass.output.Fetch(first);
  REQUIRE((first_view.ok() && first_view->sampled.size() == 2));
  CHECK(first_view->sampled[0].id == 7);
  CHECK(first_view->sampled[1].id == 8);
  const auto next_view = pass.output.Fetch(next);
  REQUIRE((next_view.ok() && next_view->sampled.size() == 1));
  CHECK(next_view->sampled[0].id == 9);
  CHECK(pass.output.IsOver(next));
}

TEST_CASE("PassOutput of a rank without logits is empty") {
  PassOutput output(kVocab, /*has_logits=*/false);
  CHECK(output.sampling() == nullptr);
  REQUIRE(output.Reserve(4, nullptr).ok());
  REQUIRE(output.Send(nullptr, 0, nullptr).ok());
  CHECK(!output.chose_all());
  CHECK(output.Fetch(output.choice()).value().rows == 0);
}

}  // namespace
}  // namespace baton
