#include "router/prefill_ahead.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "router/internal_request.h"

namespace baton {
namespace {

// Returns whether `a` is a prefix of `of`. Compares from the end, where the branches of a session
// differ.
bool IsPrefix(std::span<const TokenId> a, std::span<const TokenId> of) {
  return a.size() <= of.size() && std::equal(a.rbegin(), a.rend(), of.first(a.size()).rbegin());
}

}  // namespace

// --- shadows -------------------------------------------------------------------------------------

void PrefillAhead::Generated(Request& request, std::span<const TokenId> tokens, absl::Time now) {
  // A request that scores its prompt leaves no cached KV.
  if (request.asked.scores()) return;
  // Until the request ends, the shadow prefill receives whole blocks only.
  if (options_.shadows && !request.asked.session.empty()) Shadow(request, tokens, false, now);
}

void PrefillAhead::Shadow(Request& request, std::span<const TokenId> tokens, bool all, absl::Time now) {
  std::vector<TokenId>& made = request.unshadowed;
  made.insert(made.end(), tokens.begin(), tokens.end());
  if (std::ssize(made) >= kBlockTokens && !request.shadowed) StartShadow(request, now);
  Request* shadow = request.shadow_request;
  // The shadow prefill has ended, or has not started.
  if (shadow == nullptr) {
    if (request.shadowed) made.clear();
    return;
  }
  TokenBuffer& prompt = shadow->asked.spec.tokens;
  if (std::ssize(made) >= kBlockTokens || all) {
    prompt.Append(made);
    made.clear();
    if (!all) core_.Grew(*shadow);
  }
  if (!all) return;
  core_.Closed(*shadow, now);
  core_.EndBy(*shadow, now + kShadowWait);
}

void PrefillAhead::StartShadow(Request& request, absl::Time now) {
  request.shadowed = true;
  if (core_.slots().counts().running >= options_.most_live) return;
  // The router's lock is held, so the beginning of the prompt is not hashed again.
  Request& shadow = requests_.Add(std::make_unique<Request>(ShadowOf(request), request.FixedKeys()));
  shadow.placement.route.streaming = shadow.placement.route.at_holder = true;
  shadow.stages.arrived = shadow.stages.complete = now;
  shadow.shadow = true;
  shadow.shadow_of = &request;
  request.shadow_request = &shadow;
  shadows_[SessionOf(shadow.asked)].insert(&shadow);
  if (core_.Submit(shadow, now).ok()) return;
  // The session's next turn will compute this KV.
  ForgetShadow(shadow);
  requests_.Remove(shadow);
}

void PrefillAhead::ForgetShadow(Request& shadow) {
  const auto found = shadows_.find(SessionOf(shadow.asked));
  found->second.erase(&shadow);
  if (found->second.empty()) shadows_.erase(found);
  if (shadow.shadow_of != nullptr) std::exchange(shadow.shadow_of, nullptr)->shadow_request = nullptr;
}

void PrefillAhead::Prefilled(const Request& request) {
  if (request.is_internal() || shadows_.empty()) return;
  const auto found = shadows_.find(SessionOf(request.asked));
  if (found == shadows_.end()) return;
  for (Request* shadow : found->second) {
    if (IsPrefix(shadow->asked.spec.tokens, request.asked.spec.tokens))
      core_.Fail(*shadow, absl::CancelledError("the next turn is complete"));
  }
}

void PrefillAhead::Ended(Request& request, absl::Time now) {
  if (request.shadowed) Shadow(request, {}, /*all=*/true, now);
  if (request.shadow_request != nullptr) std::exchange(request.shadow_request, nullptr)->shadow_of = nullptr;
  if (request.shadow) ForgetShadow(request);
  if (!request.prefill_hint) return;
  const auto others = hints_.find(TenantOf(request.asked));
  if (--others->second == 0) hints_.erase(others);
}

// --- prefill hints -------------------------------------------------------------------------------

absl::Status PrefillAhead::MayAddHint(const Request& call, const ClientRequest& prompt) const {
  if (call.stages.placed == absl::InfiniteFuture()) return absl::ResourceExhaustedError("the call waits for a worker");
  if (core_.slots().counts().running >= options_.most_live) {
    return absl::ResourceExhaustedError(absl::StrCat(
        core_.slots().counts().running, " live requests, prefill hints need fewer than ", options_.most_live));
  }
  const auto others = hints_.find(TenantOf(call.asked));
  if (others != hints_.end() && others->second >= kMaxPrefillHintsPerTenant) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the tenant has ", others->second, " prefill hints, limit ", kMaxPrefillHintsPerTenant));
  }
  return core_.registry().Readiness(prompt.served->name, /*prefill_only=*/true);
}

absl::Status PrefillAhead::AddPrefillHint(const Request& call, ClientRequest prompt, absl::Time now) {
  RETURN_IF_ERROR(MayAddHint(call, prompt));
  const uint64_t number = requests_.DrawNumber();
  Request& hint = requests_.Add(std::make_unique<Request>(PrefillHintOf(call, std::move(prompt), number)));
  hint.number = number;
  hint.stages.arrived = now;
  hint.prefill_hint = hint.node.is_internal = true;
  if (absl::Status status = Enter(hint, now); !status.ok()) {
    graph_.Undo(hint.node);
    requests_.Remove(hint);
    return status;
  }
  ++hints_[TenantOf(hint.asked)];
  return absl::OkStatus();
}

absl::Status PrefillAhead::Enter(Request& hint, absl::Time now) {
  ASSIGN_OR_RETURN(PromptIncrement known, graph_.Submit(hint.node, hint.asked.prompt, now));
  hint.asked.spec.tokens = std::move(known.tokens);
  hint.SetRoute(ToRoute(hint.asked, hint.FixedKeys()));
  return core_.Submit(hint, now);
}

void PrefillAhead::CheckInvariants() const {
  for (const auto& [session, shadows] : shadows_) {
    for (const Request* shadow : shadows) {
      BATON_CHECK(requests_.Find(shadow->id) == shadow && shadow->shadow, shadow->id);
      const Request* of = shadow->shadow_of;
      BATON_CHECK(of == nullptr || of->shadow_request == shadow, shadow->id);
    }
  }
  absl::flat_hash_map<std::string, int32_t> hints;
  for (const auto& [id, request] : requests_.live()) {
    if (request->prefill_hint) ++hints[TenantOf(request->asked)];
  }
  BATON_CHECK(hints == hints_, "the counts of prefill hints are wrong");
}

}  // namespace baton
