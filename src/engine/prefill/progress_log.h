// The progress of prompts: the positions that have KV, for the caller of the scheduler.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "engine/prefill/prompt.h"

namespace baton {

// Positions [begin, end) of a request have KV now. `begin` is a multiple of 16.
struct PrefillProgress {
  RequestId request_id;
  int64_t begin = 0;
  int64_t end = 0;
};

// Records progress until the caller takes it. A streaming prompt may give its blocks back, so its
// progress is not reported. After it closes, all of its KV is reported from position 0, when the
// prompt is admitted or complete. A low-priority job may give blocks back whose progress was
// reported; after that, its progress begins at 0 again.
//
// Not thread-safe.
class ProgressLog {
 public:
  // The prompt has KV for [0, done) now. A stopped prompt is not reported.
  void SetDone(PrefillPrompt& prompt, int64_t done);
  // Reports all KV of a prompt that has closed, if that is not done yet. REQUIRES: the prompt is
  // admitted or complete, so that it keeps its blocks.
  void ReportAll(PrefillPrompt& prompt);
  // Drops the progress that was not taken, because the prompt gives its blocks back.
  void Withdraw(PrefillPrompt& prompt);

  // Returns the progress since the last call.
  std::vector<PrefillProgress> Take() { return std::exchange(progress_, {}); }
  // Returns the streaming prompts that have gained KV since the last call, perhaps twice. They have
  // KV for [0, done) at this moment, but may give it back later.
  std::vector<RequestId> TakeStreaming() { return std::exchange(streaming_, {}); }

 private:
  std::vector<PrefillProgress> progress_;
  std::vector<RequestId> streaming_;
};

}  // namespace baton
