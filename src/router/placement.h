// The choice of a prefill worker and a decode worker for a request.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "kv/prefix_key.h"
#include "router/prefix_memory.h"
#include "router/refusals.h"
#include "router/worker_state.h"

namespace baton {

// The properties of a request that placement depends on.
struct Route {
  std::string session{};  // ScopedSession; empty: none
  // Keys of the prompt's full blocks, for comparisons within this router.
  std::vector<BlockKey> keys{};
  // True for a streaming prompt.
  bool streaming = false;
  // The first upstream request of a streaming prompt.
  RequestId upstream{};
  // True if the request may run only at the holder of its context. It ends if it would run
  // elsewhere.
  bool at_holder = false;
  // True if SessionGate holds the request. The core does nothing with it until RouterCore::Admit.
  bool held = false;
  // Queue order among requests of equal priority; the earlier time goes first. Requests with equal
  // times are ordered by submission.
  absl::Time queue_order{};
};

struct Request;

// A worker that is attached to the router.
struct AttachedWorker {
  WorkerAddress link{};  // the worker's address as configured at this router
  WorkerInfo info{};
  // As last reported. Covers the requests of all routers.
  WorkerLoad load{};
  // As WorkerWatch found it, with the reason and the time of the finding.
  WorkerHealth health = WorkerHealth::kWell;
  std::string health_reason{};
  absl::Time health_since{};
  // True if an operator has drained the worker (RouterCore::Drain).
  bool drained = false;
  absl::flat_hash_set<Request*> requests{};  // of this router
  // Streaming prompts of this router that will probably decode here.
  absl::flat_hash_set<Request*> expected{};
  // Prompt tokens of `requests` that the worker still has to prefill, excluding low-priority jobs.
  int64_t prompt_tokens = 0;
  // Prefill workers only. Covers this router's requests.
  std::optional<PrefixMemory> prefix_memory{};
  // Decode workers only. Number of requests for which the worker reported room while no request
  // waited for it. Refusals arrive through prefill workers, so a report may overtake them. A
  // request whose refusal arrives later lowers this number by one and asks again at once. The
  // number is at most HandoffsUnderWay.
  int64_t unused_room = 0;
  // Number of requests for which the worker has reported room while it got no requests.
  int64_t held_room = 0;

  // Returns whether the worker gets requests like any other.
  bool serves() const { return !drained && !load.draining && health == WorkerHealth::kWell; }
  // Returns whether the router moves the worker's requests to other workers.
  bool avoided() const { return drained || IsAvoided(health); }
  // Returns how many requests of this router have a hand-off to the worker under way, or compute
  // their prompts there.
  int64_t HandoffsUnderWay() const;
  void AddUnusedRoom(int64_t count);
  // Lets one request use room that the worker has reported. Returns false if there is none.
  bool TakeUnusedRoom();
};

// A request that workers refuse ends this many capacity_wait after its first refusal, although it
// has waited for less. The rest is the time in which prefill workers compute its prompt again.
inline constexpr int32_t kMostCapacityWaits = 10;

// RouterCore's part of a request.
struct Placement {
  // - kNone: the core does not have the request. It is not submitted, or has ended.
  // - kHeld: SessionGate holds the request. Its prompt may be complete or not.
  // - kWaiting: the request waits for a worker, or for room on a worker.
  // - kCollecting: a streaming prompt for which no prefill worker has room. The router collects it.
  // - kStreaming: a streaming prompt whose increments a prefill worker computes.
  // - kPrefilling: a prefill worker computes the complete prompt and hands it off.
  // - kScoring: the decode worker computes the prompt itself, for its log probabilities. It has
  //   sent no tokens yet.
  // - kStarting: the hand-off is committed, and the decode worker has not sent tokens yet.
  // - kDecoding: the decode worker generates.
  enum class State { kNone, kHeld, kWaiting, kCollecting, kStreaming, kPrefilling, kScoring, kStarting, kDecoding };
  // A job at an avoided prefill worker, whose hedge runs at another worker.
  struct Former {
    WorkerAddress prefill, decode;  // configured addresses
    bool in_step = false;           // as Placement::in_step
    // The request's state before the hedge.
    int32_t moves = 0, hangs = 0;
    std::optional<absl::Time> refused_at{};
  };

  Route route{};
  // Tokens of the prompt so far. Those of a resumed request include the output so far.
  int32_t prompt_tokens = 0;
  State state = State::kNone;
  int64_t sequence = 0;  // order of submission
  // Configured addresses of the workers that may hold KV of the request. Empty if there is none.
  WorkerAddress prefill{}, decode{};
  // kStreaming: configured address of the worker that will probably decode. May be empty.
  WorkerAddress expected_at{};
  // Tokens of the prompt that `prefill` has to compute.
  int64_t queued_tokens = 0;
  // kWaiting: the time at which the request ends with `reason`.
  absl::Time give_up{};
  // kWaiting: the time at which half of this wait is over, and whether it is.
  absl::Time late_at{};
  bool late = false;
  // kWaiting: the reason for the wait.
  absl::Status reason{};
  // Time of the first refusal, or of the last refusal by a worker that shuts down.
  std::optional<absl::Time> refused_at{};
  // The output has outgrown its decode worker and waits for a larger one. It is a stream that would
  // have gone on elsewhere, so `capacity_wait` does not end it.
  bool outgrown = false;
  // The part of the time from `refused_at` to `counted_to` that counts against capacity_wait.
  absl::Duration waited{};
  absl::Time counted_to{};
  Refusals refusals{};  // of workers that are left out for now
  // The decode worker that keeps room for the request (RoomKeeper). Empty: none.
  WorkerAddress room_at{};
  absl::Status last_refusal{};
  // TenantOrder's part: tokens for which the request has asked since its last hand-off, and tokens
  // for which its tenant was charged.
  int64_t asked_tokens = 0, charged_tokens = 0;
  // The weights that began the output. Unset before a decode worker has the request. Only workers
  // with these weights go on with the output.
  std::optional<DecoderDigests> decoder{};
  // Whether a step of its present worker had the request.
  bool in_step = false;
  // Numbers of events since the request's last token: workers that were lost without an announced
  // shutdown while they ran the request, and hand-offs that a decode worker could not start.
  int32_t lost_workers = 0, failed_starts = 0;
  // kPrefilling: set while a hedge runs. The fields above are then those of the hedge.
  std::optional<Former> former{};
  // Number of times since the last token that the request left an avoided worker.
  int32_t moves = 0;
  int32_t hangs = 0;  // of `moves`, those from workers that hung in a step with the request
  absl::Time timer = absl::InfiniteFuture();

  // Records the first refusal, or one that counts as the first.
  void BeginRefusals(absl::Time now);
  // Ends a part of the time since `refused_at`, which counts as a wait or does not.
  void CountTime(absl::Time now, bool is_wait = true);
  // Sets the end of a wait that takes `bound` in all. The wait is late from half of `bound`, or
  // from the middle between `began` and the deadline.
  void SetGiveUp(absl::Time end, absl::Duration bound, absl::Time began, absl::Time deadline);
  // Returns when the request ends if all time from now on counts. REQUIRES: `refused_at` is set,
  // and CountTime was called now.
  absl::Time CapacityEnd(absl::Duration capacity_wait, absl::Time now) const;
  // Returns whether the request asks its decode worker for room, or has just got it there.
  bool asks() const { return state == State::kPrefilling || state == State::kScoring; }
  // Returns whether the request waits for a worker, or for room on a worker.
  bool waits() const { return state == State::kWaiting || state == State::kCollecting; }
};

// CHECKs that the fields of a live request's placement fit together.
void CheckPlacement(const Request& request);

// A routing policy. The table in placement.cc has the name of each policy and its two choices.
enum class Routing {
  // Sessions and prefixes stay at the workers that hold their KV. Routers use no other policy.
  kPinned,
  // The worker with the shortest queue. For comparisons in the simulator.
  kLeastLoaded,
  // Any worker. For comparisons in the simulator.
  kRandom,
};
// Returns INVALID_ARGUMENT if no policy has this name.
absl::StatusOr<Routing> RoutingNamed(std::string_view name);

struct PlacementOptions {
  Routing routing = Routing::kPinned;
  // A request leaves its home if the home's cost exceeds `pin_ratio` times the cheapest worker's
  // cost by more than `pin_slack_tokens`.
  double pin_ratio = 2;
  int64_t pin_slack_tokens = 1024;
  // A request also leaves its home if the first request of the home's queue has waited longer than
  // this, and the cheapest worker's less than half as long. Zero: waits do not matter.
  absl::Duration pin_wait = absl::Seconds(1);
};

// Returns the workers whose context length and pool can hold `tokens` tokens at all. If there are
// none, returns all of them, so that one of them refuses the request.
std::vector<const AttachedWorker*> LargeEnough(std::span<const AttachedWorker* const> candidates, int64_t tokens);
// Returns the decode workers that can hold Request::TokensToHold. If there are none, returns those
// that can hold one token more than the request has. If there are none either, returns all. An
// output that has outgrown a worker thus goes to larger ones only.
std::vector<const AttachedWorker*> LargeEnough(std::span<const AttachedWorker* const> decodes, const Request& request);

// Returns how many of the prompt's tokens the worker would have to compute.
int64_t UncachedTokens(const AttachedWorker& worker, const Request& request);

// Returns how many tokens the worker would compute until this prompt is done: the prompt's uncached
// tokens and the tokens queued before it.
int64_t PrefillCost(const AttachedWorker& worker, const Request& request);

// Returns how many requests the worker runs or has queued.
int64_t DecodeLoad(const AttachedWorker& worker);

// Returns true if the worker lacks a row in its batch, or blocks, for this request.
bool IsOverloaded(const AttachedWorker& decode, const Request& request);

// Returns whether each worker can use KV of the other.
bool CanShareKv(const WorkerInfo& a, const WorkerInfo& b);

// Chooses a prefill worker. Returns null without candidates.
//
// A request with Route::at_holder gets the holder of its context, or null if the holder is no
// candidate. Under kPinned, other requests get the first of these that exists:
// 1. the holder of their context
// 2. the worker to which rendezvous hashing pins the session
// 3. the worker to which rendezvous hashing pins the first block
// 4. for a prompt without a full block: the worker to which rendezvous hashing pins the first
//    upstream request, so that prompts that begin with the same output share its KV
//
// The cheapest worker is chosen if none of these exists, or if the one that exists is overloaded or
// its queue waits for too long (PlacementOptions::pin_wait).
//
// Whether a session's home is overloaded depends on the prompt's length and on the workers' queues.
// Routers that see the same queues therefore agree. They may differ while a router's own requests
// make a queue longer than the worker has reported.
const AttachedWorker* ChoosePrefill(std::span<const AttachedWorker* const> candidates, const Request& request,
                                    const PlacementOptions& options);

// Chooses a decode worker. Returns null without candidates.
//
// Under kPinned, the choice is `ahead`, or else the worker to which rendezvous hashing pins the
// session. If there is neither, or that worker is overloaded or its queue waits for too long, the
// choice is the least loaded worker. For a streaming prompt, the load includes the requests
// expected there. `ahead` is the worker that has received KV of a streaming prompt; it may be null.
const AttachedWorker* ChooseDecode(std::span<const AttachedWorker* const> candidates, const Request& request,
                                   const AttachedWorker* ahead, const PlacementOptions& options);

}  // namespace baton
