// Which prefill worker and which decode worker serve a request.
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
#include "router/worker_state.h"

namespace baton {

// What a router derives from a request in order to place it.
struct Route {
  std::string session{};         // ScopedSession; empty: none
  std::vector<BlockKey> keys{};  // of the prompt's full blocks, for comparing prompts within this router
  bool open = false;             // the prompt still grows with other requests' outputs
  RequestId upstream{};          // of an open prompt: the first request whose output it waits for
  bool at_holder = false;        // of use at its context's holder only: elsewhere it ends
  bool held = false;             // its session waits for its turn; nothing is done until RouterCore::Admit
  absl::Time turn{};             // among equal priorities: the earlier first, then what was submitted first
};

struct Request;

struct AttachedWorker {
  WorkerAddress link{};  // as configured at this router
  WorkerInfo info{};
  WorkerLoad load{};                         // as last reported: all routers' requests
  absl::flat_hash_set<Request*> requests{};  // of this router, here now
  // Streaming prompts of this router that will probably decode here.
  absl::flat_hash_set<Request*> expected{};
  int64_t prompt_tokens = 0;                    // of those that it still has to prefill, but in the background
  std::optional<PrefixMemory> prefix_memory{};  // prefill workers only; of this router's requests
  // Decode workers only: requests for which the worker reported room while none waited for it. Such a
  // report may have overtaken refusals, which come through prefill workers. Each unit lets one request
  // that is refused later ask again. At most the requests that are asking now.
  int64_t unclaimed_room = 0;
};

// What RouterCore and its parts keep of a request.
struct Placement {
  // kNone: the core does not have it: it is not submitted, or has ended.
  // kHeld: not to be placed yet, complete or not.
  // kAtHome: a streaming prompt, and no prefill worker has room for such prompts.
  // kStreaming: its prompt is not complete; a prefill worker computes each increment.
  enum class State { kNone, kHeld, kWaiting, kAtHome, kStreaming, kPrefilling, kStarting, kDecoding };
  struct Refusal {
    WorkerAddress link;
    absl::Time until;
  };

  Route route{};
  int32_t prompt_tokens = 0;  // that the core knows; of a streaming prompt they may grow
  absl::Time deadline = absl::InfiniteFuture();
  State state = State::kNone;
  int64_t sequence = 0;                    // in order of submission
  WorkerAddress prefill{}, decode{};       // links of the workers that may hold something of it; empty: none
  WorkerAddress expected_at{};             // kStreaming: the link where it will probably decode, or empty
  int64_t queued_tokens = 0;               // of its prompt, for `prefill` to compute
  absl::Time give_up{};                    // kWaiting: when it ends with `reason`
  absl::Status reason{};                   // kWaiting: why it waits
  std::optional<absl::Time> refused_at{};  // first RESOURCE_EXHAUSTED from a worker that does not shut down
  std::vector<Refusal> refusals{};         // by workers that are left out for now, each at most once
  absl::Status last_refusal{};
  bool placed_again = false;  // as a worker was lost that had not said that it would go
  absl::Time timer = absl::InfiniteFuture();

  // It is live, and waits for a worker, or for room at one.
  bool waits() const { return state == State::kWaiting || state == State::kAtHome; }
};

// A routing policy. The table in placement.cc has the name and the two choices of each.
enum class Routing {
  kPinned,       // sessions and prefixes stay at the workers that hold their KV; routers use no other policy
  kLeastLoaded,  // the worker with the shortest queue; for comparisons in the simulator
  kRandom,       // any worker; for comparisons in the simulator
};
// INVALID_ARGUMENT: no policy has this name.
absl::StatusOr<Routing> RoutingNamed(std::string_view name);

struct PlacementOptions {
  Routing routing = Routing::kPinned;
  // A pin is left when its cost exceeds `pin_ratio` times the cheapest worker's by more than `pin_slack_tokens`.
  double pin_ratio = 2;
  int64_t pin_slack_tokens = 1024;
};

// Of the prompt's tokens those that the worker would have to compute.
int64_t UncachedTokens(const AttachedWorker& worker, const Request& request);

// Tokens that must be computed before this prompt is done: uncached tokens of its own plus those queued before it.
int64_t PrefillCost(const AttachedWorker& worker, const Request& request);

// Requests that it runs or is about to.
int64_t DecodeLoad(const AttachedWorker& worker);

// Neither batch nor blocks left for this request.
bool IsOverloaded(const AttachedWorker& decode, const Request& request);

// KV of one may be used by the other.
bool CanShareKv(const WorkerInfo& a, const WorkerInfo& b);

// The holder, if it has to be there: null without it. Under kPinned: the holder; else the worker to which rendezvous
// hashing pins the session, else the first block, else the output that a prompt begins with, as it has no block yet:
// those that share it are computed once. The cheapest one where there is none of them or the pin is overloaded. Null
// without candidates.
//
// Whether a session's pin is overloaded depends on no router's memory, but on the prompt's length and on what is
// queued: routers that see the same workers agree whatever each has seen before.
const AttachedWorker* ChoosePrefill(std::span<const AttachedWorker* const> candidates, const Request& request,
                                    const PlacementOptions& options);

// Under kPinned, `ahead`, where the KV of a growing prompt has gone, unless null, else the worker to which rendezvous
// hashing pins the session; where there is none, or it is overloaded, the least loaded, for a growing prompt with what
// is expected there. Null without candidates.
const AttachedWorker* ChooseDecode(std::span<const AttachedWorker* const> candidates, const Request& request,
                                   const AttachedWorker* ahead, const PlacementOptions& options);

}  // namespace baton
