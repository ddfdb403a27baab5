// Where the threads of a group's ranks meet.
#pragma once

#include <atomic>
#include <cstdint>

namespace baton {

class RankBarrier {
 public:
  explicit RankBarrier(int ranks) : ranks_(ranks) {}

  // Waits until all ranks have arrived. False: it is broken, and waits for nobody.
  bool Arrive() {
    const uint32_t meeting = meeting_.load();  // before broken_, which Break sets first
    if (broken_.load()) return false;
    if (arrived_.fetch_add(1) + 1 == ranks_) {
      arrived_.store(0);
      NextMeeting();
    } else {
      meeting_.wait(meeting);
    }
    return !broken_.load();
  }

  // Lets everyone go. From any thread.
  void Break() {
    broken_.store(true);
    NextMeeting();
  }

  // REQUIRES: nobody is in Arrive.
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
