// The share of a step that scored prompts get beside sequences.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace baton {

struct ScoringLimits {
  // Upper bound on prompt tokens per step, at least one.
  int32_t step_tokens = 64;
  // Upper bound on the measured time of a step that computes prompt tokens beside sequences. If the
  // sequences alone take more than four fifths of it, such a step may take a quarter longer than
  // they do. Zero: no bound.
  absl::Duration step_time = absl::Milliseconds(25);
};

// Derives from measured steps how many prompt tokens a step computes beside sequences, at least
// one. It divides the time that the bound leaves by the time of a prompt token. Both times are
// medians of a few steps, so a step that another program delays does not count.
//
// Every 17th step beside sequences computes no prompt token. It measures the sequences alone. After
// a change of their number, every second step does, until one has measured them. Until then, more
// sequences count with a time in proportion to their number, and fewer ones with the old time, so
// that steps stay within the bound.
class ScoringShare {
 public:
  explicit ScoringShare(ScoringLimits limits);

  // Upper bound on prompt tokens of the next step, which has this many sequences.
  int32_t Tokens(int64_t sequences) const;
  // Records a step that computed this many prompt tokens, perhaps none. REQUIRES: sequences >= 1.
  void Add(int64_t sequences, int64_t prompt_tokens, absl::Duration took);

 private:
  class RecentMedian {
   public:
    void Add(absl::Duration time) { times_[added_++ % times_.size()] = time; }
    bool known() const { return added_ > 0; }
    absl::Duration value() const;  // REQUIRES: known()

   private:
    std::array<absl::Duration, 5> times_;  // a ring
    size_t added_ = 0;
  };

  // Returns the time of a step with these sequences alone. REQUIRES: alone_.known().
  absl::Duration Alone(int64_t sequences) const;

  const ScoringLimits limits_;
  RecentMedian alone_;       // times of steps without prompt tokens
  int64_t sequences_ = 0;    // the number in these steps
  RecentMedian each_;        // times of a prompt token
  int64_t since_alone_ = 0;  // steps with prompt tokens since the last one without
};

}  // namespace baton
