#include "backend/cuda/device_communicator.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backend/cuda/cuda_memory.h"
#include "backend/rank_barrier.h"
#include "base/check.h"
#include "base/status.h"
#include "kernels/rank_sum.h"
#include "model/shard.h"

namespace baton {
namespace {

// Up to this number of floats, every rank reads and sums all ranks' operands. A longer sum is
// split: each rank sums its part, and then reads the other ranks' parts of the sum. That takes two
// exchanges, but no byte crosses between devices more than twice.
constexpr int64_t kMaxReplicatedSum = 1 << 16;
constexpr int64_t kAlignment = 4;  // floats

// A rank's memory that the other ranks may read after an exchange.
struct Offer {
  const float* data = nullptr;
  int64_t stride = 0;
  // Recorded in the rank's stream behind the work that writes the data. Owned by the rank.
  cudaEvent_t ready = nullptr;
};

struct Group {
  explicit Group(int ranks) : barrier(ranks) {
    for (auto& exchange : offers) exchange.resize(static_cast<size_t>(ranks));
  }
  RankBarrier barrier;
  // The offers of alternate exchanges. A rank may make its next offer while another rank still
  // reads the offers of the previous exchange.
  std::array<std::vector<Offer>, 2> offers;
};

// A communicator that synchronises streams with events. Other ranks may read a rank's offered
// memory. The rank may write it again after its next exchange, because by then the other ranks have
// enqueued all reads of it before their own offers.
class EventCommunicator final : public DeviceCommunicator {
 public:
  // `reads[r]`: whether the device can read rank r's memory directly.
  EventCommunicator(std::shared_ptr<Group> group, int device, Shard shard, std::vector<bool> reads)
      : group_(std::move(group)),
        device_(device),
        shard_(shard),
        reads_(std::move(reads)),
        unreachable_ranks_(std::ranges::count(reads_, false)) {}
  ~EventCommunicator() override {
    for (auto& offers : group_->offers) {
      const cudaEvent_t ready = offers[static_cast<size_t>(shard_.rank)].ready;
      if (ready != nullptr && cudaSetDevice(device_) == cudaSuccess) cudaEventDestroy(ready);
    }
  }

  int rank() const override { return shard_.rank; }
  int ranks() const override { return shard_.ranks; }

  absl::Status Join(cudaStream_t stream) override {
    stream_ = stream;
    for (auto& offers : group_->offers) {
      RETURN_IF_ERROR(CudaStatus(
          cudaEventCreateWithFlags(&offers[static_cast<size_t>(shard_.rank)].ready, cudaEventDisableTiming), "event"));
    }
    for (auto& staged : staged_) RETURN_IF_ERROR(staged.Reserve(kMaxReplicatedSum, "sums over ranks"));
    return copies_.Reserve(unreachable_ranks_ * kMaxReplicatedSum, "sums over ranks");
  }

  void AllReduceSum(float* data, int64_t count) override {
    if (count <= kMaxReplicatedSum) {
      SumReplicated(data, count);
    } else {
      SumSharded(data, count);
    }
  }

  void GatherColumns(const float* part, int64_t part_stride, int64_t rows, std::span<const int64_t> columns,
                     float* whole, int64_t whole_stride) override {
    const std::vector<Offer>* offers = ExchangeOffers(part, part_stride);
    if (offers == nullptr || shard_.rank != 0) return;
    for (size_t rank = 0; rank < columns.size(); ++rank) {
      const Offer& offer = (*offers)[rank];
      const auto width = static_cast<size_t>(columns[rank]) * sizeof(float);
      Check(cudaMemcpy2DAsync(whole, static_cast<size_t>(whole_stride) * sizeof(float), offer.data,
                              static_cast<size_t>(offer.stride) * sizeof(float), width, static_cast<size_t>(rows),
                              cudaMemcpyDefault, stream_),
            "gathering the ranks' logits");
      whole += columns[rank];
    }
  }

  void Abort() override { group_->barrier.Abort(); }
  absl::Status Recover() override {
    exchanges_ = 0;
    status_ = absl::OkStatus();
    group_->barrier.Reset();
    return absl::OkStatus();
  }
  const absl::Status& status() const override { return status_; }

 private:
  // Every rank sums all elements. The other ranks read a copy, because `data` is overwritten at
  // once.
  void SumReplicated(float* data, int64_t count) {
    float* copy = staged_[exchanges_ % 2].data();
    Check(cudaMemcpyAsync(copy, data, static_cast<size_t>(count) * sizeof(float), cudaMemcpyDeviceToDevice, stream_),
          "staging a sum over ranks");
    const std::vector<Offer>* offers = ExchangeOffers(copy, 0);
    if (offers != nullptr) Sum(*offers, 0, count, data);
  }

  // Every rank sums its part, and then copies the other ranks' parts of the sum.
  void SumSharded(float* data, int64_t count) {
    const ShardRange own = RangeOf(shard_, count, kAlignment);
    BATON_CHECK(exchanges_ == 0 || own.size() <= sums_.capacity(), "a later sum of a pass is longer than the first");
    if (status_.ok()) status_ = sums_.Reserve(own.size(), "sums over ranks");
    if (status_.ok()) status_ = copies_.Reserve(unreachable_ranks_ * own.size(), "sums over ranks");
    const std::vector<Offer>* offers = ExchangeOffers(data, 0);
    if (offers == nullptr) return;
    Sum(*offers, own.begin, own.size(), sums_.data());
    offers = ExchangeOffers(sums_.data(), 0);
    if (offers == nullptr) return;
    for (int rank = 0; rank < shard_.ranks; ++rank) {
      const ShardRange range = RangeOf({rank, shard_.ranks}, count, kAlignment);
      Check(cudaMemcpyAsync(data + range.begin, (*offers)[static_cast<size_t>(rank)].data,
                            static_cast<size_t>(range.size()) * sizeof(float), cudaMemcpyDefault, stream_),
            "copying another rank's sums");
    }
  }

  // Sums elements [begin, begin + count) of all offers. A kernel can read only memory that its
  // device reaches, so other operands are copied first.
  void Sum(const std::vector<Offer>& offers, int64_t begin, int64_t count, float* out) {
    cuda::RankParts parts{.ranks = shard_.ranks};
    float* copy = copies_.data();
    for (int rank = 0; rank < shard_.ranks; ++rank) {
      const float* part = offers[static_cast<size_t>(rank)].data + begin;
      if (!reads_[static_cast<size_t>(rank)]) {
        Check(cudaMemcpyAsync(copy, part, static_cast<size_t>(count) * sizeof(float), cudaMemcpyDefault, stream_),
              "copying another rank's operands");
        part = std::exchange(copy, copy + count);
      }
      parts.parts[rank] = part;
    }
    Check(cuda::LaunchRankSum(parts, count, out, stream_), "a sum over ranks");
  }

  // Exchanges offers with the other ranks. Work that is enqueued afterwards waits for their offers.
  // Returns null if this rank or another rank gave up.
  const std::vector<Offer>* ExchangeOffers(const float* data, int64_t stride) {
    std::vector<Offer>& offers = group_->offers[exchanges_++ % 2];
    Offer& own = offers[static_cast<size_t>(shard_.rank)];
    own.data = data;
    own.stride = stride;
    Check(cudaEventRecord(own.ready, stream_), "synchronising ranks");
    if (status_.ok() && !group_->barrier.Arrive()) status_ = absl::AbortedError("another rank aborted the pass");
    if (!status_.ok()) return nullptr;
    for (const Offer& offer : offers) {
      if (&offer != &own) Check(cudaStreamWaitEvent(stream_, offer.ready, 0), "synchronising ranks");
    }
    return status_.ok() ? &offers : nullptr;
  }

  void Check(cudaError_t error, absl::string_view what) {
    if (status_.ok()) status_ = CudaStatus(error, what);
  }

  const std::shared_ptr<Group> group_;
  const int device_;
  const Shard shard_;
  const std::vector<bool> reads_;
  // Number of ranks whose memory this device cannot read directly.
  const int64_t unreachable_ranks_;
  cudaStream_t stream_ = nullptr;
  int64_t exchanges_ = 0;  // of this pass
  absl::Status status_;
  // [kMaxReplicatedSum], for alternate exchanges.
  DeviceBuffer<float> staged_[2];
  // The sum of this rank's part.
  DeviceBuffer<float> sums_;
  // [unreachable_ranks_, count], the copied operands of one sum.
  DeviceBuffer<float> copies_;
};

absl::StatusOr<bool> CanAccessPeer(int device, int other) {
  if (device == other) return true;
  int reaches = 0;
  RETURN_IF_ERROR(
      CudaStatus(cudaDeviceCanAccessPeer(&reaches, device, other), absl::StrCat("devices ", device, " and ", other)));
  return reaches != 0;
}

// Lets the current device read the memory of device `other`.
absl::Status EnablePeerAccess(int other) {
  const cudaError_t enabled = cudaDeviceEnablePeerAccess(other, 0);
  if (enabled == cudaErrorPeerAccessAlreadyEnabled) {
    // Clears the error, which the next launch would otherwise report.
    cudaGetLastError();
    return absl::OkStatus();
  }
  return CudaStatus(enabled, absl::StrCat("enabling access to the memory of device ", other));
}

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<DeviceCommunicator>>> MakeDeviceCommunicators(std::span<const int> devices) {
  const int ranks = static_cast<int>(devices.size());
  if (ranks < 1 || ranks > cuda::kMaxRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor parallelism: expected 1 to ", cuda::kMaxRanks, " GPUs, got ", ranks));
  }
  const auto group = std::make_shared<Group>(ranks);
  std::vector<std::unique_ptr<DeviceCommunicator>> communicators;
  for (int rank = 0; rank < ranks; ++rank) {
    const int device = devices[static_cast<size_t>(rank)];
    RETURN_IF_ERROR(CudaStatus(cudaSetDevice(device), absl::StrCat("device ", device)));
    std::vector<bool> reads;
    for (const int other : devices) {
      ASSIGN_OR_RETURN(const bool reaches, CanAccessPeer(device, other));
      if (reaches && other != device) RETURN_IF_ERROR(EnablePeerAccess(other));
      reads.push_back(reaches);
    }
    communicators.push_back(std::make_unique<EventCommunicator>(group, device, Shard{rank, ranks}, std::move(reads)));
  }
  return communicators;
}

absl::StatusOr<std::string> DevicesApart(std::span<const int> devices) {
  std::string first;
  for (const int device : devices) {
    for (const int other : devices) {
      ASSIGN_OR_RETURN(const bool reaches, CanAccessPeer(device, other));
      if (reaches) continue;
      const std::string pair = absl::StrCat(std::min(device, other), " and ", std::max(device, other));
      if (first.empty()) first = pair;
      if (pair != first) return absl::StrCat(first, ", and other pairs,");
    }
  }
  return first;
}

}  // namespace baton
