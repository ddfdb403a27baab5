// A barrier for the threads of a tensor-parallel group's ranks.
#pragma once

#include <atomic>
#include <cstdint>

namespace baton {

// Thread-safe, except for Mend.
class RankBarrier {
 public:
  explicit RankBarrier(int ranks) : ranks_(ranks) {}

  // Waits until all ranks have arrived. Returns false if the barrier is broken, without waiting for
  // the other ranks.
  bool Arrive() {
    // Loaded before broken_. Break sets broken_ and then increments meeting_. So either this call
    // sees broken_, or the wait below returns.
    const uint32_t meeting = meeting_.load();
    if (broken_.load()) return false;
    if (arrived_.fetch_add(1) + 1 == ranks_) {
      arrived_.store(0);
      NextMeeting();
    } else {
      meeting_.wait(meeting);
    }
    return !broken_.load();
  }

  // Breaks the barrier: all running and later calls of Arrive return false. Thread-safe.
  void Break() {
    broken_.store(true);
    NextMeeting();
  }

  // Makes a broken barrier usable again. REQUIRES: no thread is in Arrive.
  void Mend() {
    arrived_.store(0);
    broken_.store(false);
  }

 private:
  void NextMeeting() {
    meeting_.fetch_add(1);
    meeting_.notify_all();
  }

  const int ranks_;
  std::atomic<int> arrived_ = 0;
  std::atomic<uint32_t> meeting_ = 0;
  std::atomic<bool> broken_ = false;
};

}  // namespace baton
