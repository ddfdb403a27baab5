#include "backend/cpu/memory_communicator.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "backend/cpu/buffer.h"
#include "backend/rank_barrier.h"

namespace baton {
namespace {

// State that the ranks share.
struct Group {
  explicit Group(int ranks) : barrier(ranks), parts(ranks), strides(ranks) {}
  RankBarrier barrier;
  // Each rank writes its own entry before the first barrier of a call. All ranks read all entries
  // between the first and the second barrier.
  std::vector<const float*> parts;
  std::vector<int64_t> strides;
  // The sums of a call, in alternate buffers. Rank 0 may grow one buffer while another rank still
  // copies the previous call's sums from the other buffer.
  std::array<Buffer<float>, 2> sums;
};

class MemoryCommunicator final : public Communicator {
 public:
  MemoryCommunicator(std::shared_ptr<Group> group, int rank, int ranks)
      : group_(std::move(group)), rank_(rank), ranks_(ranks) {}

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }

  void AllReduceSum(float* data, int64_t count) override {
    Buffer<float>& sums = group_->sums[calls_++ % 2];
    if (rank_ == 0) sums.Reserve(count);
    group_->parts[rank_] = data;
    if (!group_->barrier.Arrive()) return;
    Sum(count * rank_ / ranks_, count * (rank_ + 1) / ranks_, sums.data());
    if (!group_->barrier.Arrive()) return;
    std::memcpy(data, sums.data(), count * sizeof(float));
  }

  void GatherColumns(const float* part, int64_t part_stride, int64_t rows, std::span<const int64_t> columns,
                     float* whole, int64_t whole_stride) override {
    group_->parts[rank_] = part;
    group_->strides[rank_] = part_stride;
    if (!group_->barrier.Arrive()) return;
    if (rank_ == 0) {
      for (int64_t row = 0; row < rows; ++row) {
        float* to = whole + row * whole_stride;
        for (int rank = 0; rank < ranks_; ++rank) {
          const float* from = group_->parts[rank] + row * group_->strides[rank];
          to = std::copy(from, from + columns[rank], to);
        }
      }
    }
    // After this barrier, the parts may change.
    group_->barrier.Arrive();
  }

  void Abort() override { group_->barrier.Abort(); }
  absl::Status Recover() override {
    calls_ = 0;
    group_->barrier.Reset();
    return absl::OkStatus();
  }

 private:
  // Computes elements [begin, end) of the sum, adding the ranks in order.
  void Sum(int64_t begin, int64_t end, float* sums) const {
    for (int64_t i = begin; i < end; ++i) {
      float sum = group_->parts[0][i];
      for (int rank = 1; rank < ranks_; ++rank) sum += group_->parts[rank][i];
      sums[i] = sum;
    }
  }

  const std::shared_ptr<Group> group_;
  const int rank_;
  const int ranks_;
  int64_t calls_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> MakeMemoryCommunicators(int ranks) {
  const auto group = std::make_shared<Group>(ranks);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int rank = 0; rank < ranks; ++rank) {
    communicators.push_back(std::make_unique<MemoryCommunicator>(group, rank, ranks));
  }
  return communicators;
}

}  // namespace baton
