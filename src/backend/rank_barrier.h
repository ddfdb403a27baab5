// A barrier for the threads of a tensor-parallel group's ranks.
#pragma once

#include <atomic>
#include <cstdint>

namespace baton {

// Thread-safe, except for Reset.
class RankBarrier {
 public:
  explicit RankBarrier(int ranks) : ranks_(ranks) {}

  // Waits until all ranks have arrived. Returns false if the barrier is aborted, without waiting
  // for the other ranks.
  bool Arrive() {
    // Loaded before aborted_. Abort sets aborted_ and then increments round_. So either this call
    // sees aborted_, or the wait below returns.
    const uint32_t round = round_.load();
    if (aborted_.load()) return false;
    if (arrived_.fetch_add(1) + 1 == ranks_) {
      arrived_.store(0);
      NextRound();
    } else {
      round_.wait(round);
    }
    return !aborted_.load();
  }

  // Aborts the barrier: all running and later calls of Arrive return false. Thread-safe.
  void Abort() {
    aborted_.store(true);
    NextRound();
  }

  // Makes an aborted barrier usable again. REQUIRES: no thread is in Arrive.
  void Reset() {
    arrived_.store(0);
    aborted_.store(false);
  }

 private:
  void NextRound() {
    round_.fetch_add(1);
    round_.notify_all();
  }

  const int ranks_;
  std::atomic<int> arrived_ = 0;
  std::atomic<uint32_t> round_ = 0;
  std::atomic<bool> aborted_ = false;
};

}  // namespace baton
