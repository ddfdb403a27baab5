// A check of sums and gathered columns over ranks on CUDA devices. Results depend on order and
// place.
#pragma once

#include <cuda_runtime_api.h>

#include <thread>
#include <vector>

#include "backend/cuda/cuda_test_device.h"
#include "backend/cuda/device_communicator.h"

namespace baton {

class RankSums {
 public:
  // Places the ranks on as many devices as the machine has.
  static void Check() {
    const std::vector<int> devices = DevicesOf(kRanks);
    auto communicators = MakeDeviceCommunicators(devices);
    INFO(communicators.status().ToString());
    REQUIRE(communicators.ok());
    std::vector<RankSums> results(kRanks);
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] { results[rank].Run(*(*communicators)[rank], devices[rank]); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const RankSums& result : results) {
      CHECK(result.status_ == absl::OkStatus());
      CHECK(SameBits(result.sums_, Summed()));
    }
    CHECK(SameBits(results[0].gathered_, Gathered()));
  }

 private:
  static constexpr int kRanks = 3;
  // Each rank computes the short sums whole, and the ranks divide the long ones. The longest comes
  // first.
  static constexpr int64_t kCounts[] = {1 << 20, 4, 100, 400'000, 1 << 16, 8};
  static constexpr int64_t kColumns[kRanks] = {7, 8, 9}, kStride = 12, kWholeStride = 28, kRows = 5;
  static constexpr float kUnset = 0.5f;

  static float Value(int rank, int64_t i) {
    const float values[kRanks] = {1e8f, 1.0f, -1e8f};
    return values[rank] * static_cast<float>(1 + i % 1009);
  }
  static std::vector<float> Values(int rank, int64_t count) {
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(Value(rank, i));
    return values;
  }
  static std::vector<float> Summed() {
    std::vector<float> sums;
    for (const int64_t count : kCounts) {
      for (int64_t i = 0; i < count; ++i) sums.push_back((Value(0, i) + Value(1, i)) + Value(2, i));
    }
    return sums;
  }
  static std::vector<float> Gathered() {
    std::vector<float> whole;
    for (int64_t row = 0; row < kRows; ++row) {
      for (int rank = 0; rank < kRanks; ++rank) {
        for (int64_t i = 0; i < kColumns[rank]; ++i) whole.push_back(Value(rank, row * kStride + i));
      }
      whole.resize(static_cast<size_t>((row + 1) * kWholeStride), kUnset);
    }
    return whole;
  }

  void Run(DeviceCommunicator& communicator, int device) {
    cudaSetDevice(device);
    cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
    status_ = communicator.Join(stream_);
    DeviceBuffer<float> whole;
    status_.Update(data_.Reserve(kCounts[0], "test"));
    status_.Update(whole.Reserve(kRows * kWholeStride, "test"));
    const int rank = communicator.rank();
    for (const int64_t count : kCounts) {
      std::vector<float> sum = Values(rank, count);
      Copy(data_.data(), sum.data(), count, cudaMemcpyHostToDevice);
      communicator.AllReduceSum(data_.data(), count);
      Copy(sum.data(), data_.data(), count, cudaMemcpyDeviceToHost);
      sums_.insert(sums_.end(), sum.begin(), sum.end());
    }
    const std::vector<float> part = Values(rank, kRows * kStride);
    gathered_.resize(kRows * kWholeStride, kUnset);
    Copy(data_.data(), part.data(), std::ssize(part), cudaMemcpyHostToDevice);
    Copy(whole.data(), gathered_.data(), std::ssize(gathered_), cudaMemcpyHostToDevice);
    communicator.GatherColumns(data_.data(), kStride, kRows, kColumns, rank == 0 ? whole.data() : nullptr,
                               kWholeStride);
    Copy(gathered_.data(), whole.data(), std::ssize(gathered_), cudaMemcpyDeviceToHost);
    status_.Update(communicator.status());
  }
  void Copy(float* to, const float* from, int64_t count, cudaMemcpyKind kind) {
    cudaMemcpyAsync(to, from, static_cast<size_t>(count) * sizeof(float), kind, stream_);
    cudaStreamSynchronize(stream_);
  }

  cudaStream_t stream_ = nullptr;
  absl::Status status_;
  // All ranks' threads read it, so it must outlive them.
  DeviceBuffer<float> data_;
  std::vector<float> sums_, gathered_;
};

}  // namespace baton
