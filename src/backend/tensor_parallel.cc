#include "backend/tensor_parallel.h"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backend/rank_barrier.h"
#include "base/status.h"

namespace baton {
namespace {

// One thread for each rank except the first, which runs on the caller's thread.
class RankThreads {
 public:
  explicit RankThreads(int ranks) {
    for (int rank = 1; rank < ranks; ++rank) threads_.emplace_back([this, rank] { Loop(rank); });
  }
  ~RankThreads() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  // Runs body(rank) for every rank, and returns when all have returned.
  void Run(absl::FunctionRef<void(int rank)> body) {
    {
      const std::lock_guard lock(mutex_);
      body_ = &body;
      running_ = threads_.size();
      ++round_;
    }
    changed_.notify_all();
    body(0);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return running_ == 0; });
  }

 private:
  void Loop(int rank) {
    std::unique_lock lock(mutex_);
    for (int64_t rounds = 0;; ++rounds) {
      changed_.wait(lock, [&] { return round_ > rounds || stopping_; });
      if (stopping_) return;
      const auto& body = *body_;
      lock.unlock();
      body(rank);
      lock.lock();
      if (--running_ == 0) changed_.notify_all();
    }
  }

  // Guards the members below. A std::mutex, because ThreadSanitizer does not see into Debian's
  // build of absl::Mutex.
  std::mutex mutex_;
  std::condition_variable changed_;
  const absl::FunctionRef<void(int)>* body_ = nullptr;
  int64_t round_ = 0;
  size_t running_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

class TensorParallelBackend final : public Backend {
 public:
  TensorParallelBackend(std::vector<Rank> ranks, const KvLayout& layout, std::unique_ptr<StripedSlab> slab)
      : ranks_(std::move(ranks)), layout_(layout), slab_(std::move(slab)), barrier_(size()), threads_(size()) {}

  const KvLayout& kv_layout() const override { return layout_; }
  Slab kv_slab() override { return slab_->slab(); }
  std::string numerics_id() const override { return absl::StrCat(ranks_[0].backend->numerics_id(), "-tp", size()); }

  absl::StatusOr<LogitsView> Forward(const Batch& batch, absl::FunctionRef<bool(int64_t layer)> layer_done,
                                     const Meanwhile& meanwhile) override {
    barrier_.Reset();
    for (const Rank& rank : ranks_) RETURN_IF_ERROR(rank.communicator->Recover());
    std::vector<absl::StatusOr<LogitsView>> results(ranks_.size(), LogitsView{});
    threads_.Run([&](int rank) { results[rank] = RunRank(rank, batch, layer_done, meanwhile); });
    for (const auto& result : results) {
      // Skips the ranks that return ABORTED only because another rank failed.
      if (!result.ok() && !absl::IsAborted(result.status())) return result;
    }
    return results[0];
  }

 private:
  int size() const { return static_cast<int>(ranks_.size()); }

  absl::StatusOr<LogitsView> RunRank(int rank, const Batch& batch, absl::FunctionRef<bool(int64_t)> layer_done,
                                     const Meanwhile& meanwhile) {
    const auto done = [&](int64_t layer) { return LayerDone(rank, layer, layer_done); };
    const auto work = [&] {
      if (rank == 0) meanwhile.work();
    };
    // Only the first rank learns the chosen tokens, so no rank enqueues the next step early.
    const auto next = [] { return nullptr; };
    auto result = ranks_[rank].backend->Forward(batch, done, {work, next});
    if (!result.ok()) {
      barrier_.Abort();
      ranks_[rank].communicator->Abort();
    }
    return result;
  }

  // A layer is stored when all ranks have stored their heads. The first rank calls `layer_done` on
  // the caller's thread, and all ranks use its result.
  bool LayerDone(int rank, int64_t layer, absl::FunctionRef<bool(int64_t)> layer_done) {
    if (!barrier_.Arrive()) return false;
    if (rank == 0) continue_ = layer_done(layer);
    return barrier_.Arrive() && continue_;
  }

  std::vector<Rank> ranks_;
  const KvLayout layout_;
  // Presents the slabs of the ranks' backends as one.
  const std::unique_ptr<StripedSlab> slab_;
  RankBarrier barrier_;
  // The result of layer_done. Rank 0 writes it, and all ranks read it, with a barrier in between.
  bool continue_ = true;
  RankThreads threads_;
};

}  // namespace

StripeRange StripeOf(const KvLayout& layout, const Shard& shard) {
  const ShardRange heads = RangeOf(shard, layout.kv_heads);
  return {heads.begin * layout.HeadBytes(), heads.end * layout.HeadBytes()};
}

int64_t BlockBytesOf(const KvLayout& layout, const Shard& shard) {
  return layout.planes() * StripeOf(layout, shard).width();
}

absl::StatusOr<std::unique_ptr<Backend>> MakeTensorParallelBackend(std::vector<Rank> ranks, const KvLayout& layout) {
  std::vector<Stripe> stripes;
  const int count = static_cast<int>(ranks.size());
  for (int rank = 0; rank < count; ++rank) {
    stripes.push_back({ranks[rank].backend->kv_slab(), StripeOf(layout, {rank, count})});
  }
  ASSIGN_OR_RETURN(auto slab, StripedSlab::Make(layout.PlaneBytes(), std::move(stripes)));
  return std::make_unique<TensorParallelBackend>(std::move(ranks), layout, std::move(slab));
}

}  // namespace baton
