// The decode worker as a thread-safe object: a DecodeEngine, a backend, the thread that drives them, and one that tells
// what they made.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "backend/backend.h"
#include "base/clock.h"
#include "engine/decode/delivery.h"
#include "engine/decode/engine.h"
#include "engine/decode/step_pace.h"
#include "engine/handoff/messages.h"
#include "engine/step_loop.h"
#include "request/answers.h"
#include "request/jobs.h"

namespace baton {

// Calls body(i) for each i of [0, n), on as many threads as it likes, and returns when all are done.
using ParallelFor = absl::AnyInvocable<void(int64_t n, absl::FunctionRef<void(int64_t i)> body)>;

struct DecodeWorkerOptions {
  // From the backend come `blocks`, the layout and the numerics id.
  DecodeEngineOptions engine;
  // To sample many rows at once; unset: on the step's thread.
  ParallelFor parallel_for;
  int sampling_threads = 1;  // parts that a batch is sampled in, with parallel_for
};

class DecodeWorker {
 public:
  // Backend, listener and clock must outlive it. Only this worker uses the backend; hand-offs write to its slab.
  DecodeWorker(DecodeWorkerOptions options, Backend& backend, DecodeListener& listener, const Clock& clock);
  ~DecodeWorker() { Shutdown(absl::ZeroDuration()); }

  // From prefill workers, see HandoffReceiver. While it shuts down there is no room for reservations, so that their
  // requests go elsewhere, or wait for the worker that comes in its place.
  absl::StatusOr<LinkReply> OnLink(const LinkRequest& request);
  absl::StatusOr<ReserveReply> OnReserve(ReserveRequest request);
  absl::Status OnCommit(const Commit& commit);
  void OnRelease(const Release& release);
  absl::StatusOr<HeartbeatReply> OnHeartbeat(const Heartbeat& heartbeat);

  // From the router, see DecodeEngine. Once Start was OK, the listener hears of the request, to its end. UNAVAILABLE:
  // it has shut down.
  absl::Status Start(DecodeJob job);
  void Cancel(const RequestId& request);

  DecodeEngine::Load Load() const;

  // Takes nothing new, lets what was reserved or started go on for at most `grace`, fails the rest with UNAVAILABLE,
  // and stops. The listener has heard the end of every request when it returns. Idempotent.
  void Shutdown(absl::Duration grace);

 private:
  absl::Time Step();
  absl::Time Check();
  void Tell();
  const Batch* BeginNext();
  // What Forward made of the step.
  struct Outcome {
    absl::Status status;
    bool next_begun = false, device_waited = false;
  };
  Outcome Compute(DecodeStep& step);
  void Sample(DecodeStep& step, const LogitsView& logits);
  bool drained() const;

  Backend& backend_;
  const Clock& clock_;
  ParallelFor parallel_for_;
  std::vector<SamplerScratch> scratches_;  // one for each part of a batch

  // The standard library's, because ThreadSanitizer does not see into Debian's build of absl::Mutex.
  mutable std::mutex mutex_;
  std::condition_variable drained_;
  DecodeEngine engine_;      // guarded by mutex_, except what a running DecodeStep refers to
  bool closing_ = false;     // guarded by mutex_; nothing new is taken
  bool grace_over_ = false;  // guarded by mutex_; no further step begins, but for one that has
  StepPace pace_;            // of the step's thread
  DecodeDelivery delivery_;
  StepLoop loop_;  // its thread uses all of the above
  // With options.engine.handoff.verify: its thread digests blocks, so that no step and no message waits for that.
  std::optional<StepLoop> checker_;
};

}  // namespace baton
