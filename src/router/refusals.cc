#include "router/refusals.h"

#include "base/status.h"
#include "base/strings.h"
#include "router/request.h"
#include "router/worker_registry.h"

namespace baton {
namespace {

// The shortest times between attempts at a worker, for one request and for all waiting requests
// together. They bound the attempts if retry delays are short and many requests wait.
constexpr absl::Duration kShortestRetry = absl::Milliseconds(10);
constexpr absl::Duration kRetrySpacing = absl::Milliseconds(1);

}  // namespace

FailureMeaning MeaningOf(const WorkerFailure& failure, const WorkerAddress& link, const Request& request,
                         const WorkerRegistry& workers) {
  const Placement& placement = request.placement;
  const bool by_prefill = placement.prefill == link;
  FailureMeaning meaning{.reason = failure.status};
  absl::Status& reason = meaning.reason;
  if (reason.ok()) reason = absl::InternalError("the worker failed the request without a reason");
  // Requests were checked before. A worker refuses only prompts that its memory can never hold, or
  // log probabilities of prompts that it never computes. A request that has begun to decode fails
  // for its constraints, which the worker names.
  const FieldPaths& paths = request.asked.form.paths;
  if (absl::IsUnimplemented(reason) && request.asked.scores()) {
    reason = absl::InvalidArgumentError(StrCat(paths.prompt_logprobs, ": ", Message(reason)));
  } else if (absl::IsInvalidArgument(reason) && placement.state != Placement::State::kDecoding) {
    reason = absl::InvalidArgumentError(StrCat(paths.prompt, ": ", Message(reason)));
  }
  // The hand-off's lease ended before Start, or its bytes were damaged. Another hand-off may
  // succeed.
  meaning.failed_start = placement.state == Placement::State::kStarting &&
                         (absl::IsFailedPrecondition(reason) || absl::IsDataLoss(reason));
  if (meaning.failed_start) {
    reason =
        absl::UnavailableError(StrCat("the hand-off failed: ", Message(reason), "; the request may be sent again"));
  }
  const bool cannot_hand_off = by_prefill && failure.no_room_to_decode && absl::IsUnavailable(reason);
  meaning.refuser = by_prefill && failure.no_room_to_decode ? placement.decode : link;
  meaning.leaves =
      (absl::IsUnavailable(reason) || absl::IsResourceExhausted(reason)) && workers.IsDraining(meaning.refuser);
  const bool starts_again = meaning.failed_start && placement.failed_starts + 1 < kMostFailedStarts;
  meaning.again = (absl::IsResourceExhausted(reason) || cannot_hand_off || meaning.leaves || starts_again) &&
                  !placement.route.at_holder;
  meaning.unreachable = cannot_hand_off && !meaning.leaves && !failure.decode_restarted;
  meaning.until_room = absl::IsResourceExhausted(reason) && failure.no_room_to_decode && !placement.decode.empty() &&
                       failure.retry_after == absl::ZeroDuration();
  return meaning;
}

absl::Duration RetryDelay(const WorkerFailure& failure, int64_t waiting) {
  return std::max({failure.retry_after, kShortestRetry, (waiting + 1) * kRetrySpacing});
}

}  // namespace baton
