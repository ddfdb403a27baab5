#include "router/placement.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "base/named_value.h"
#include "base/strings.h"
#include "router/rendezvous.h"
#include "router/request.h"

namespace baton {
namespace {

// Returns the key that pins the request to a prefill worker. Empty if there is none.
std::string_view PinKey(const Route& route) {
  if (!route.session.empty()) return route.session;
  if (route.keys.empty()) return route.upstream;
  const auto& bytes = route.keys.front().bytes;
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Returns the worker to which rendezvous hashing assigns the key.
const AttachedWorker* HomeOf(std::span<const AttachedWorker* const> candidates, std::string_view key) {
  return *std::ranges::max_element(
      candidates, {}, [&](const AttachedWorker* worker) { return RendezvousWeight(key, worker->info.address); });
}

// Returns a worker that is as good as random but the same in every run. Different salts make the
// two choices for a request independent.
const AttachedWorker* RandomWorker(std::span<const AttachedWorker* const> candidates, const Request& request,
                                   std::string_view salt) {
  return HomeOf(candidates, StrCat(request.id, salt));
}

// Returns the tokens queued at the worker. The reported number may be old, but covers all routers.
// This router's own number is exact, but covers its own requests only.
int64_t QueuedTokens(const AttachedWorker& worker) { return std::max(worker.load.queued_tokens, worker.prompt_tokens); }

// Returns whether a prompt stays at its home, given the costs of the home and of the cheapest
// worker.
bool Stays(int64_t pinned_cost, int64_t cheapest_cost, const PlacementOptions& options) {
  return static_cast<double>(pinned_cost) <=
         options.pin_ratio * static_cast<double>(cheapest_cost) + static_cast<double>(options.pin_slack_tokens);
}

// Returns whether a session stays at its home. Assumes that the home has KV of the whole prompt and
// that the other workers have none, which is true of all turns but the first. The router's own
// estimate of cached KV must not count: it would keep a session where this router has moved it,
// while another router sends it home.
bool SessionStays(const AttachedWorker& home, std::span<const AttachedWorker* const> candidates, const Request& request,
                  const PlacementOptions& options) {
  int64_t least_queued = QueuedTokens(home);
  for (const AttachedWorker* worker : candidates) least_queued = std::min(least_queued, QueuedTokens(*worker));
  return Stays(QueuedTokens(home), request.placement.prompt_tokens + least_queued, options);
}

// Returns whether the home's queue stands still while the other worker's moves. The waits are
// reported ones, so all routers see the same.
bool WaitsTooLong(const AttachedWorker& home, const AttachedWorker& other, const PlacementOptions& options) {
  const absl::Duration wait = home.load.longest_wait;
  return options.pin_wait > absl::ZeroDuration() && wait > options.pin_wait && other.load.longest_wait < wait / 2;
}

using Candidates = std::span<const AttachedWorker* const>;  // not empty

const AttachedWorker* CheapestPrefill(Candidates candidates, const Request& request) {
  return *std::ranges::min_element(candidates, {}, [&](const AttachedWorker* worker) {
    // The id spreads requests over workers of equal cost.
    return std::tuple(PrefillCost(*worker, request), RendezvousWeight(request.id, worker->info.address));
  });
}

const AttachedWorker* PinnedPrefill(Candidates candidates, const Request& request, const PlacementOptions& options) {
  const auto holder = std::ranges::find(candidates, request.asked.context.holder, &AttachedWorker::link);
  const std::string_view key = PinKey(request.placement.route);
  const AttachedWorker* cheapest = CheapestPrefill(candidates, request);
  const bool held = holder != candidates.end();
  if (key.empty() && !held) return cheapest;
  const AttachedWorker* pinned = held ? *holder : HomeOf(candidates, key);
  const bool stays = held || request.placement.route.session.empty()
                         ? Stays(PrefillCost(*pinned, request), PrefillCost(*cheapest, request), options)
                         : SessionStays(*pinned, candidates, request, options);
  return stays && !WaitsTooLong(*pinned, *cheapest, options) ? pinned : cheapest;
}

const AttachedWorker* LeastQueuedPrefill(Candidates candidates, const Request& request,
                                         const PlacementOptions& /*options*/) {
  return *std::ranges::min_element(candidates, {}, [&](const AttachedWorker* worker) {
    return std::tuple(QueuedTokens(*worker), RendezvousWeight(request.id, worker->info.address));
  });
}

const AttachedWorker* RandomPrefill(Candidates candidates, const Request& request,
                                    const PlacementOptions& /*options*/) {
  return RandomWorker(candidates, request, "");
}

const AttachedWorker* LeastLoadedDecode(Candidates candidates, const Request& request, const AttachedWorker*,
                                        const PlacementOptions&) {
  return *std::ranges::min_element(candidates, {}, [&](const AttachedWorker* worker) {
    return std::tuple(IsOverloaded(*worker, request),
                      DecodeLoad(*worker) + (request.placement.route.streaming ? std::ssize(worker->expected) : 0),
                      -(worker->load.blocks_free + worker->load.blocks_cached),
                      RendezvousWeight(request.id, worker->info.address));
  });
}

const AttachedWorker* PinnedDecode(Candidates candidates, const Request& request, const AttachedWorker* ahead,
                                   const PlacementOptions& options) {
  const bool has_gone = ahead != nullptr && std::ranges::count(candidates, ahead) > 0;
  const AttachedWorker* home = has_gone ? ahead
                               : request.placement.route.session.empty()
                                   ? nullptr
                                   : HomeOf(candidates, request.placement.route.session);
  const AttachedWorker* least_loaded = LeastLoadedDecode(candidates, request, ahead, options);
  const bool stays = home != nullptr && !IsOverloaded(*home, request) && !WaitsTooLong(*home, *least_loaded, options);
  return stays ? home : least_loaded;
}

const AttachedWorker* RandomDecode(Candidates candidates, const Request& request, const AttachedWorker*,
                                   const PlacementOptions&) {
  return RandomWorker(candidates, request, " decode");
}

struct Policy : NamedValue<Routing> {
  const AttachedWorker* (*prefill)(Candidates, const Request&, const PlacementOptions&);
  const AttachedWorker* (*decode)(Candidates, const Request&, const AttachedWorker* ahead, const PlacementOptions&);
};

constexpr Policy kPolicies[] = {
    {{"pinned", Routing::kPinned}, PinnedPrefill, PinnedDecode},
    {{"least-loaded", Routing::kLeastLoaded}, LeastQueuedPrefill, LeastLoadedDecode},
    {{"random", Routing::kRandom}, RandomPrefill, RandomDecode},
};

const Policy& PolicyOf(const PlacementOptions& options) {
  return *std::ranges::find(kPolicies, options.routing, &Policy::value);
}

}  // namespace

absl::StatusOr<Routing> RoutingNamed(std::string_view name) { return ValueNamed("routing", name, kPolicies); }

int64_t AttachedWorker::HandoffsUnderWay() const {
  return std::ranges::count_if(requests, [](const Request* request) { return request->placement.asks(); });
}

void AttachedWorker::AddUnusedRoom(int64_t count) { unused_room = std::min(unused_room + count, HandoffsUnderWay()); }

bool AttachedWorker::TakeUnusedRoom() {
  AddUnusedRoom(0);
  if (unused_room == 0) return false;
  --unused_room;
  return true;
}

void Placement::BeginRefusals(absl::Time now) {
  refused_at = counted_to = now;
  waited = absl::ZeroDuration();
}

void Placement::CountTime(absl::Time now, bool is_wait) {
  if (is_wait) waited += now - counted_to;
  counted_to = now;
}

absl::Time Placement::CapacityEnd(absl::Duration capacity_wait, absl::Time now) const {
  const absl::Time last = *refused_at + kMostCapacityWaits * capacity_wait;
  return outgrown ? last : std::min(now + capacity_wait - waited, last);
}

void Placement::SetGiveUp(absl::Time end, absl::Duration bound, absl::Time began, absl::Time deadline) {
  give_up = end;
  late_at = std::min(end - bound / 2, began + (deadline - began) / 2);
}

void CheckPlacement(const Request& request) {
  using State = Placement::State;
  const Placement& placement = request.placement;
  const Route& route = placement.route;
  const State state = placement.state;
  const bool streams = state == State::kStreaming, collects = state == State::kCollecting;
  const bool unplaced = state == State::kWaiting || state == State::kHeld;
  BATON_CHECK((streams || state == State::kPrefilling) == !placement.prefill.empty(), request.id);
  BATON_CHECK((streams || unplaced || collects || request.asked.prefill_only) == placement.decode.empty(), request.id);
  BATON_CHECK(!route.at_holder || state == State::kHeld || placement.prefill == request.asked.context.holder,
              request.id);
  BATON_CHECK(unplaced || (streams || collects) == route.streaming, request.id);
  BATON_CHECK(streams || placement.expected_at.empty(), request.id);
}

std::vector<const AttachedWorker*> LargeEnough(std::span<const AttachedWorker* const> candidates, int64_t tokens) {
  std::vector<const AttachedWorker*> large;
  std::ranges::copy_if(candidates, std::back_inserter(large),
                       [&](const AttachedWorker* worker) { return worker->info.CanHold(tokens); });
  return large.empty() ? std::vector(candidates.begin(), candidates.end()) : large;
}

std::vector<const AttachedWorker*> LargeEnough(std::span<const AttachedWorker* const> decodes, const Request& request) {
  return LargeEnough(LargeEnough(decodes, request.tokens_so_far() + 1), request.TokensToHold());
}

int64_t UncachedTokens(const AttachedWorker& worker, const Request& request) {
  const int64_t hits = worker.prefix_memory ? worker.prefix_memory->LeadingHits(request.placement.route.keys) : 0;
  const int64_t held = worker.link == request.asked.context.holder ? request.asked.context.tokens : 0;
  return std::max<int64_t>(request.placement.prompt_tokens - std::max(hits * kBlockTokens, held), 0);
}

int64_t PrefillCost(const AttachedWorker& worker, const Request& request) {
  return UncachedTokens(worker, request) + QueuedTokens(worker);
}

int64_t DecodeLoad(const AttachedWorker& worker) {
  const int64_t reported = int64_t{worker.load.running_requests} + worker.load.queued_requests;
  return std::max(reported, static_cast<int64_t>(worker.requests.size()));
}

bool IsOverloaded(const AttachedWorker& decode, const Request& request) {
  return DecodeLoad(decode) >= decode.info.max_batch ||
         decode.load.blocks_free + decode.load.blocks_cached < BlocksFor(request.placement.prompt_tokens);
}

bool CanShareKv(const WorkerInfo& a, const WorkerInfo& b) {
  return a.module_digest == b.module_digest && a.layout == b.layout;
}

const AttachedWorker* ChoosePrefill(std::span<const AttachedWorker* const> all, const Request& request,
                                    const PlacementOptions& options) {
  if (all.empty()) return nullptr;
  // A worker that holds the prompt of a resumed request without its output is second best.
  const auto hold_prompt = LargeEnough(all, std::ssize(request.asked.spec.tokens));
  const auto candidates = LargeEnough(hold_prompt, request.placement.prompt_tokens);
  if (request.placement.route.at_holder) {
    const auto holder = std::ranges::find(candidates, request.asked.context.holder, &AttachedWorker::link);
    return holder == candidates.end() ? nullptr : *holder;
  }
  return PolicyOf(options).prefill(candidates, request, options);
}

const AttachedWorker* ChooseDecode(std::span<const AttachedWorker* const> all, const Request& request,
                                   const AttachedWorker* ahead, const PlacementOptions& options) {
  if (all.empty()) return nullptr;
  const auto candidates = LargeEnough(all, request);
  return PolicyOf(options).decode(candidates, request, ahead, options);
}

}  // namespace baton
