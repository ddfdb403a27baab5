#include "engine/prefill/progress_log.h"

#include <vector>

namespace baton {

void ProgressLog::SetDone(PrefillPrompt& prompt, int64_t done) {
  if (done > prompt.done && !prompt.stopped && prompt.progress_reported) {
    progress_.push_back({prompt.id, prompt.done, done});
  }
  if (done > prompt.done && !prompt.stopped && prompt.streaming) streaming_.push_back(prompt.id);
  prompt.done = done;
  if (!prompt.stopped && done >= prompt.wanted) ReportAll(prompt);
}

void ProgressLog::ReportAll(PrefillPrompt& prompt) {
  if (prompt.progress_reported || prompt.streaming) return;
  prompt.progress_reported = true;
  if (prompt.done > 0) progress_.push_back({prompt.id, 0, prompt.done});
}

void ProgressLog::Withdraw(PrefillPrompt& prompt) {
  prompt.progress_reported = false;
  std::erase_if(progress_, [&](const PrefillProgress& progress) { return progress.request_id == prompt.id; });
}

}  // namespace baton
