#include "simulator/history.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/strings.h"
#include "router/router_core.h"

namespace baton {
namespace {

using Problems = std::vector<std::string>;

// RouterLimits::worker_wait and capacity_wait, which are equal.
const absl::Duration kLeastWait = RouterLimits().worker_wait;

void CheckEnds(const RequestId& id, const ClientHistory& seen, Problems& problems) {
  if (seen.ends != 1) problems.push_back(absl::StrCat(id, " ended ", seen.ends, " times"));
  if (seen.late_tokens) problems.push_back(absl::StrCat(id, " got tokens after its end"));
}

void CheckOutput(const RequestId& id, const ClientHistory& seen, const ClientHistory& undisturbed, Problems& problems) {
  const auto [seen_end, whole_end] = std::ranges::mismatch(seen.tokens, undisturbed.tokens);
  if (seen_end != seen.tokens.end()) {
    problems.push_back(
        absl::StrCat(id, " has another token than the undisturbed run at position ", seen_end - seen.tokens.begin()));
  } else if (seen.status.ok() && whole_end != undisturbed.tokens.end()) {
    problems.push_back(
        absl::StrCat(id, " ended with OK after ", seen.tokens.size(), " of ", undisturbed.tokens.size(), " tokens"));
  }
}

// Returns whether faults may end a request with this status. The workers were gone or full for as
// long as a request waits, or kMostLostWorkers streams to workers broke while they ran it.
bool IsEndByFaults(const ClientHistory& seen, const History& run) {
  if (absl::IsInternal(seen.status)) return run.breaks >= kMostLostWorkers;
  if (!absl::IsUnavailable(seen.status) && !absl::IsResourceExhausted(seen.status)) return false;
  if (seen.ended < run.disturbed_from) return false;
  return seen.ended - seen.submitted >= kLeastWait;
}

// Returns whether the router cancelled the request because no request needed its output: requests
// referred to it, and all of them had ended. Reports of ends at about the same time reach clients
// in any order.
bool WasUnneeded(const RequestId& id, const ClientHistory& seen, const History& run) {
  if (!absl::IsCancelled(seen.status) || !Message(seen.status).starts_with("no request needs")) return false;
  bool referred = false;
  for (const auto& [other, client] : run.requests) {
    if (std::ranges::find(client.upstreams, id) == client.upstreams.end() || client.submitted > seen.ended) continue;
    referred = true;
    if (client.ends == 0 || client.ended > seen.ended + absl::Seconds(1)) return false;
  }
  return referred;
}

void CheckReason(const RequestId& id, const ClientHistory& seen, const History& run, Problems& problems) {
  if (seen.status.ok()) return;
  const bool upstream_failed = std::ranges::any_of(seen.upstreams, [&](const RequestId& upstream) {
    const auto found = run.requests.find(upstream);
    return found == run.requests.end() || !found->second.status.ok();
  });
  const bool cancelled = (absl::IsCancelled(seen.status) && seen.cancelled) || WasUnneeded(id, seen, run);
  const bool has_reason = cancelled || upstream_failed || IsEndByFaults(seen, run);
  if (!has_reason)
    problems.push_back(absl::StrCat(id, " ended after ", absl::FormatDuration(seen.ended - seen.submitted),
                                    " without a reason: ", seen.status.ToString()));
}

void CheckWait(const RequestId& id, const ClientHistory& seen, const History& run, Problems& problems) {
  const absl::Duration wait = WaitAfterFaults(seen, run);
  if (wait <= WaitBound()) return;
  problems.push_back(absl::StrCat(id, " ended ", absl::FormatDuration(wait),
                                  " after the last fault, its upstream requests and its submission; the bound is ",
                                  absl::FormatDuration(WaitBound())));
}

void CheckHoldings(const History& run, Problems& problems) {
  const SimulatedCluster::Holdings& held = run.held;
  const std::pair<const char*, int64_t> rows[] = {
      {"blocks are still referenced", held.blocks},
      {"blocks are still in quarantine", held.quarantined},
      {"requests are still at prefill workers", held.prefill_requests},
      {"requests are still at decode workers", held.decode_requests},
      {"requests are still at the router", held.router_requests},
      {"requests still wait at the router", held.waiting_requests},
      {"requests are still assigned to workers", held.assignments},
      {"sessions are still active", run.sessions.active},
      {"sessions still wait", run.sessions.waiting},
  };
  for (const auto& [what, count] : rows) {
    if (count != 0) problems.push_back(absl::StrCat(count, " ", what));
  }
}

}  // namespace

absl::Duration WaitBound() {
  // A peer that stopped is noticed, and then an attempt to attach that a fault held ends, with the
  // next backoff. Meanwhile the lease of a reservation and the quarantine of its blocks end.
  const absl::Duration attach = absl::Seconds(20) + absl::Seconds(22), leases = absl::Seconds(50);
  const absl::Duration service = absl::Seconds(10);  // the steps of all requests
  return std::max(attach, leases) + kLeastWait + service;
}

absl::Duration WaitAfterFaults(const ClientHistory& seen, const History& run) {
  absl::Time from = std::max(seen.submitted, run.quiet_from);
  for (const RequestId& upstream : seen.upstreams) {
    const auto found = run.requests.find(upstream);
    if (found != run.requests.end() && found->second.ends > 0) from = std::max(from, found->second.ended);
  }
  return std::max(seen.ended - from, absl::ZeroDuration());
}

std::vector<std::string> Violations(const History& run, const History& undisturbed) {
  Problems problems;
  for (const auto& [id, seen] : run.requests) {
    CheckEnds(id, seen, problems);
    const auto whole = undisturbed.requests.find(id);
    if (whole == undisturbed.requests.end() || !whole->second.status.ok()) {
      problems.push_back(absl::StrCat(id, " did not end with OK in the undisturbed run"));
      continue;
    }
    CheckOutput(id, seen, whole->second, problems);
    CheckReason(id, seen, run, problems);
    CheckWait(id, seen, run, problems);
  }
  CheckHoldings(run, problems);
  return problems;
}

}  // namespace baton
