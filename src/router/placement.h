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

// A request as far as routing cares; its tokens stay with the caller.
struct RouteRequest {
  RequestId id{};
  std::string tenant{};          // whose key it came with; empty: the router asks for none
  std::string model{};           // of the decode worker; the prefill worker needs the same module digest
  std::string session{};         // of one cache salt: another's is another; empty: none
  std::vector<BlockKey> keys{};  // of the prompt's full blocks, for comparing prompts within this router
  int32_t prompt_tokens = 0;     // >= 1; of an open one those that are known, >= 0
  int32_t max_new_tokens = 0;
  bool open = false;          // the prompt still grows with other requests' outputs
  RequestId upstream{};       // of an open prompt: the first request whose output it waits for
  int32_t priority = 0;       // higher first
  absl::Time turn{};          // among equal priorities: the earlier first, then what was submitted first
  bool prefill_only = false;  // needs no decode worker
  WorkerAddress holder{};     // the link of the prefill worker that has lately computed its first `held_tokens` tokens
  int32_t held_tokens = 0;
  bool at_holder = false;  // elsewhere it is of no use: it ends where the holder refuses it or is gone
  absl::Time deadline = absl::InfiniteFuture();
  bool held = false;  // its session waits for its turn; nothing is done until RouterCore::Admit
};

struct AttachedWorker {
  WorkerAddress link{};  // as configured at this router
  WorkerInfo info{};
  WorkerLoad load{};                            // as last reported: all routers' requests
  absl::flat_hash_set<RequestId> requests{};    // of this router, here now
  absl::flat_hash_set<RequestId> expected{};    // of this router: growing ones that will probably decode here
  int64_t prompt_tokens = 0;                    // of those that it still has to prefill, but in the background
  std::optional<PrefixMemory> prefix_memory{};  // prefill workers only; of this router's requests
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
int64_t UncachedTokens(const AttachedWorker& worker, const RouteRequest& request);

// Tokens that must be computed before this prompt is done: uncached tokens of its own plus those queued before it.
int64_t PrefillCost(const AttachedWorker& worker, const RouteRequest& request);

// Requests that it runs or is about to.
int64_t DecodeLoad(const AttachedWorker& worker);

// Neither batch nor blocks left for this request.
bool IsOverloaded(const AttachedWorker& decode, const RouteRequest& request);

// KV of one may be used by the other.
bool CanShareKv(const WorkerInfo& a, const WorkerInfo& b);

// The holder, if it has to be there: null without it. Under kPinned: the holder; else the worker to which rendezvous
// hashing pins the session, else the first block, else the output that a prompt begins with, as it has no block yet:
// those that share it are computed once. The cheapest one where there is none of them or the pin is overloaded. Null
// without candidates.
//
// Whether a session's pin is overloaded depends on no router's memory, but on the prompt's length and on what is
// queued: routers that see the same workers agree whatever each has seen before.
const AttachedWorker* ChoosePrefill(std::span<const AttachedWorker* const> candidates, const RouteRequest& request,
                                    const PlacementOptions& options);

// Under kPinned, `ahead`, where the KV of a growing prompt has gone, unless null, else the worker to which rendezvous
// hashing pins the session; where there is none, or it is overloaded, the least loaded, for a growing prompt with what
// is expected there. Null without candidates.
const AttachedWorker* ChooseDecode(std::span<const AttachedWorker* const> candidates, const RouteRequest& request,
                                   const AttachedWorker* ahead, const PlacementOptions& options);

}  // namespace baton
