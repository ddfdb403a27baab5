#include "backend/cuda/upload.h"

#include <random>
#include <vector>

#include "backend/cuda/cuda_test_device.h"

namespace baton {
namespace {

TEST_CASE("UploadBuffer copies its lists to the device also when its memory grows") {
  if (!HasDevice()) return;
  std::mt19937 random(1);
  UploadBuffer upload;
  for (const size_t most : {10u, 1000u, 300'000u, 5u, 1'000'000u}) {
    INFO("lists of up to " << most);
    std::vector<std::vector<int32_t>> values(5);
    std::vector<UploadedList<int32_t>> lists(values.size());
    upload.Clear();
    for (size_t i = 0; i < values.size(); ++i) {
      values[i].resize(random() % (most + 1));
      for (int32_t& value : values[i]) value = static_cast<int32_t>(random());
      REQUIRE(upload.Add(std::span<const int32_t>(values[i]), lists[i]).ok());
    }
    REQUIRE(upload.Send("test", cudaStreamPerThread).ok());
    REQUIRE(cudaStreamSynchronize(cudaStreamPerThread) == cudaSuccess);
    for (size_t i = 0; i < values.size(); ++i) CHECK(OnDevice(lists[i]) == values[i]);
  }
}

TEST_CASE("UploadBuffer can be written while the previous one is in flight or was dropped") {
  if (!HasDevice()) return;
  UploadBuffer upload;
  UploadedList<int32_t> first, next;
  const std::vector<int32_t> ones(1000, 1), twos(1000, 2), threes(1000, 3);
  for (int round = 0; round < 3; ++round) {
    upload.Clear();
    REQUIRE(upload.Add(std::span(ones), first).ok());
    REQUIRE(upload.Send("test", cudaStreamPerThread).ok());
    for (const auto& values : {twos, threes}) {
      upload.Clear();
      REQUIRE(upload.Add(std::span(values), next).ok());
    }
    REQUIRE(cudaStreamSynchronize(cudaStreamPerThread) == cudaSuccess);
    CHECK(OnDevice(first) == ones);
    REQUIRE(upload.Send("test", cudaStreamPerThread).ok());
    REQUIRE(cudaStreamSynchronize(cudaStreamPerThread) == cudaSuccess);
    CHECK(OnDevice(next) == threes);
  }
}

TEST_CASE("UploadBuffer keeps the address of a list when an earlier list leaves space") {
  if (!HasDevice()) return;
  UploadBuffer upload;
  std::vector<const int32_t*> places;
  for (const int64_t size : {0, 1, 500, 1000}) {
    const std::vector<int32_t> values(static_cast<size_t>(size), 7);
    UploadedList<int32_t> list, next;
    upload.Clear();
    REQUIRE(upload.Add(std::span<const int32_t>(values), list, /*room=*/1000).ok());
    REQUIRE(upload.Add(std::span<const int32_t>({1, 2, 3}), next).ok());
    REQUIRE(upload.Send("test", cudaStreamPerThread).ok());
    REQUIRE(cudaStreamSynchronize(cudaStreamPerThread) == cudaSuccess);
    CHECK(OnDevice(list) == values);
    CHECK(OnDevice(next) == std::vector<int32_t>{1, 2, 3});
    places.push_back(next.data());
  }
  CHECK(std::ranges::count(places, places[0]) == std::ssize(places));
}

}  // namespace
}  // namespace baton
