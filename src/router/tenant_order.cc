#include "router/tenant_order.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace baton {
namespace {

const std::string& TenantNameOf(const Request& request) { return request.asked.spec.tenant; }

// Subtracts from the count of a tenant, and removes a count of 0.
void Subtract(absl::flat_hash_map<std::string, int64_t>& counts, const std::string& tenant, int64_t number) {
  if (number == 0) return;
  const auto count = counts.find(tenant);
  BATON_CHECK(count != counts.end() && count->second >= number, tenant);
  if ((count->second -= number) == 0) counts.erase(count);
}

}  // namespace

int64_t TenantOrder::TokensOf(const Request& request) {
  const RequestSpec& spec = request.asked.spec;
  return std::ssize(spec.tokens) + spec.expected_tokens;
}

void TenantOrder::BeginWait(const Request& request) {
  if (++waiting_[TenantNameOf(request)] == 1) times_.BeginWait(TenantNameOf(request));
}

void TenantOrder::EndWait(const Request& request) {
  Subtract(waiting_, TenantNameOf(request), 1);
  if (!waiting_.contains(TenantNameOf(request))) times_.EndWait(TenantNameOf(request));
}

void TenantOrder::Asked(Request& request) {
  const int64_t tokens = TokensOf(request);
  const bool others_wait = waiting_.size() > static_cast<size_t>(waiting_.contains(TenantNameOf(request)));
  if (tokens == 0 || !others_wait) return;
  asked_[TenantNameOf(request)] += tokens;
  request.placement.asked_tokens += tokens;
}

void TenantOrder::Granted(Request& request) {
  ForgetAsked(request);
  if (request.placement.charged_tokens > 0) return;
  request.placement.charged_tokens = TokensOf(request);
  times_.Charge({{TenantNameOf(request), request.placement.charged_tokens}});
}

void TenantOrder::Ended(Request& request) {
  ForgetAsked(request);
  if (request.placement.charged_tokens == 0) return;
  const int64_t used = std::ssize(request.asked.spec.tokens) + request.completion_tokens;
  times_.Settle(TenantNameOf(request), request.placement.charged_tokens, used);
}

void TenantOrder::ForgetAsked(Request& request) {
  Subtract(asked_, TenantNameOf(request), std::exchange(request.placement.asked_tokens, 0));
}

int64_t TenantOrder::AskTimeOf(const Request& request) const {
  const auto asked = asked_.find(TenantNameOf(request));
  return TimeOf(request) + (asked == asked_.end() ? 0 : asked->second);
}

void TenantOrder::CheckInvariants(const absl::flat_hash_set<Request*>& live) const {
  absl::flat_hash_map<std::string, int64_t> asked, waiting;
  for (const Request* request : live) {
    if (request->placement.asked_tokens > 0) asked[TenantNameOf(*request)] += request->placement.asked_tokens;
    if (request->placement.state == Placement::State::kWaiting) ++waiting[TenantNameOf(*request)];
  }
  BATON_CHECK(asked == asked_ && waiting == waiting_, "counts of an ended request remain");
}

}  // namespace baton
