// A decode worker: a DecodeEngine with a backend and the threads that drive it.
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
#include "engine/decode/step_forecast.h"
#include "engine/decode/step_pace.h"
#include "engine/handoff/messages.h"
#include "engine/step_loop.h"
#include "request/answers.h"
#include "request/jobs.h"

namespace baton {

// Calls body(i) for each i of [0, n), perhaps on several threads. Returns when all calls have
// returned.
using ParallelFor = absl::AnyInvocable<void(int64_t n, absl::FunctionRef<void(int64_t i)> body)>;

struct DecodeWorkerOptions {
  // The worker sets `blocks`, the layout and the numerics id from the backend.
  DecodeEngineOptions engine;
  // Samples the rows of a step on several threads. If unset, the step's thread samples them.
  ParallelFor parallel_for;
  int sampling_threads = 1;  // calls of `body` per step, with parallel_for
};

// Drives a DecodeEngine in real time. Thread-safe. The worker owns these threads:
//
// - One thread computes steps.
// - One thread calls the listener (DecodeDelivery).
// - If HandoffReceiverOptions::verify is set, one thread digests blocks.
class DecodeWorker {
 public:
  // The backend, the listener and the clock must outlive the worker. Only this worker may use the
  // backend. Hand-offs write to the backend's slab.
  DecodeWorker(DecodeWorkerOptions options, Backend& backend, DecodeListener& listener, const Clock& clock);
  ~DecodeWorker() { Shutdown(absl::ZeroDuration()); }

  // The messages of prefill workers. HandoffReceiver describes them. During Shutdown, OnReserve
  // returns Wait, so that the requests go to other workers or wait for this worker's successor.
  absl::StatusOr<LinkReply> OnLink(const LinkRequest& request);
  absl::StatusOr<ReserveReply> OnReserve(ReserveRequest request);
  absl::Status OnCommit(const Commit& commit);
  void OnRelease(const Release& release);
  absl::StatusOr<HeartbeatReply> OnHeartbeat(const Heartbeat& heartbeat);
  // The operating system has reported the end of a prefill worker's process.
  void OnProcessEnd(const std::string& process);

  // The messages of the router. They act as the methods of DecodeEngine with the same names. After
  // OK from Start, the listener receives the request's events until its end. Start returns
  // UNAVAILABLE once the grace of Shutdown is over.
  absl::Status Start(DecodeJob job);
  void Cancel(const RequestId& request);
  // As HandoffReceiver::Keep.
  void Keep(RouterStream router, KeepRoom request);

  DecodeEngine::Load Load() const;

  // Refuses new reservations. Waits for at most `grace` until all reserved and started requests
  // have ended, and fails the rest with UNAVAILABLE. Then stops the threads. The listener has
  // received the end of every request when Shutdown returns. Idempotent.
  void Shutdown(absl::Duration grace);

 private:
  absl::Time Step();
  absl::Time Check();
  void DeliverEvents();
  const Batch* BeginNext();
  // Runs the step. The result does not have its time.
  DecodeStepResult Compute(DecodeStep& step);
  void Sample(DecodeStep& step, const LogitsView& logits);
  bool drained() const;

  Backend& backend_;
  const Clock& clock_;
  ParallelFor parallel_for_;
  std::vector<SamplerScratch> scratches_;  // one for each call of parallel_for's body

  // A std::mutex, because ThreadSanitizer cannot see into Debian's build of absl::Mutex.
  mutable std::mutex mutex_;
  std::condition_variable drained_;
  // Guarded by mutex_, except the objects that a running DecodeStep refers to.
  DecodeEngine engine_;
  bool closing_ = false;     // guarded by mutex_; no new reservation is granted
  bool grace_over_ = false;  // guarded by mutex_; only a step that is enqueued still runs
  StepForecast forecast_;    // guarded by mutex_
  StepPace pace_;            // used by the step's thread only
  DecodeDelivery delivery_;
  StepLoop loop_;  // its thread uses all members above
  // Set if HandoffReceiverOptions::verify is. Its thread digests blocks, so that no step and no
  // message waits for digests.
  std::optional<StepLoop> checker_;
};

}  // namespace baton
