// What a Dispatcher has prefilled ahead, by requests of its own: shadows of sessions' outputs, and what follows calls.
#include <algorithm>
#include <utility>

#include "base/status.h"
#include "router/dispatcher.h"
#include "router/follower.h"
#include "router/shadow_prefill.h"

namespace baton {
namespace {

// From the end, where the branches of a session differ.
bool IsPrefix(std::span<const TokenId> a, std::span<const TokenId> of) {
  return a.size() <= of.size() && std::equal(a.rbegin(), a.rend(), of.first(a.size()).rbegin());
}

}  // namespace

// --- shadows -------------------------------------------------------------------------------------------------------

void Dispatcher::Shadow(RequestRecord& record, std::span<const TokenId> tokens, bool all, absl::Time now) {
  if (record.request.session.empty()) return;
  std::vector<TokenId>& made = record.unshadowed;
  made.insert(made.end(), tokens.begin(), tokens.end());
  if (std::ssize(made) >= kBlockTokens && !record.shadowed) StartShadow(record, now);
  const auto found = records_.find(ShadowId(record));
  if (found == records_.end()) {  // it has failed, or there is none yet
    if (record.shadowed) made.clear();
    return;
  }
  TokenBuffer& prompt = found->second.request.spec.tokens;
  if (std::ssize(made) >= kBlockTokens || all) {
    prompt.Append(made);
    made.clear();
    if (!all) core_.Grew(found->first, static_cast<int32_t>(prompt.size()));
  }
  if (!all) return;
  const RequestId id = found->first;
  core_.Closed(id, static_cast<int32_t>(prompt.size()), 0, now);
  core_.EndBy(id, now + kShadowWait);
}

void Dispatcher::StartShadow(RequestRecord& record, absl::Time now) {
  record.shadowed = true;
  if (core_.live_requests() >= most_with_shadows_) return;
  ClientRequest request = ShadowOf(record);
  RouteRequest route = ToRoute(request);
  route.open = route.at_holder = true;
  RequestRecord& shadow = records_[route.id];
  shadow.id = route.id;
  shadow.request = std::move(request);
  shadow.arrived = shadow.complete = now;
  shadow.shadow = true;
  const RequestId id = route.id;
  shadows_[SessionOf(shadow.request)].insert(id);
  if (core_.Submit(std::move(route), now).ok()) return;
  ForgetShadow(shadow);  // the next turn computes it then
  records_.erase(id);
}

void Dispatcher::ForgetShadow(const RequestRecord& shadow) {
  const auto found = shadows_.find(SessionOf(shadow.request));
  found->second.erase(shadow.id);
  if (found->second.empty()) shadows_.erase(found);
}

// What they were to prefill, its session's next turn has brought with it.
void Dispatcher::EndShadowsOf(const RequestRecord& record) {
  const auto found = shadows_.find(SessionOf(record.request));
  if (record.unheard() || found == shadows_.end()) return;
  for (const RequestId& id : found->second) {
    if (IsPrefix(records_.at(id).request.spec.tokens, record.request.spec.tokens)) core_.Cancel(id);
  }
}

// --- followers -----------------------------------------------------------------------------------------------------

absl::Status Dispatcher::MayFollow(const RequestTicket& call, const ClientRequest& prompt) const {
  const auto found = records_.find(call.id);
  if (found == records_.end() || found->second.number != call.number) return absl::NotFoundError("the call is over");
  if (found->second.placed == absl::InfiniteFuture()) return absl::ResourceExhaustedError("the call itself waits");
  if (core_.live_requests() >= most_with_shadows_) return absl::ResourceExhaustedError("no room to spare");
  const auto others = followers_.find(TenantOf(found->second.request));
  if (others != followers_.end() && others->second >= kFollowersOfTenant) {
    return absl::ResourceExhaustedError("the tenant has as many followers as it may");
  }
  return core_.Readiness(prompt.served->name, /*prefill_only=*/true);
}

absl::Status Dispatcher::Follow(const RequestTicket& call, ClientRequest prompt, absl::Time now) {
  RETURN_IF_ERROR(MayFollow(call, prompt));
  ClientRequest request = FollowerOf(records_.at(call.id), std::move(prompt), ++submitted_);
  ASSIGN_OR_RETURN(PromptGrew known, graph_.Submit(ToPromptSpec(request), now));
  request.spec.tokens = std::move(known.tokens);
  RouteRequest route = ToRoute(request);
  RequestRecord& record = records_[route.id];
  record.id = route.id;
  record.number = submitted_;
  record.arrived = record.complete = now;
  if (!request.workflow.empty()) record.upstreams = UpstreamsOf(request);
  record.request = std::move(request);
  record.follower = true;
  const RequestId id = route.id;
  if (absl::Status status = core_.Submit(std::move(route), now); !status.ok()) {
    graph_.Refused(id);
    records_.erase(id);
    return status;
  }
  ++followers_[TenantOf(records_.at(id).request)];
  Act(now);
  return absl::OkStatus();
}

}  // namespace baton
