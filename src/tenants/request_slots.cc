#include "tenants/request_slots.h"

#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "request/priority.h"
#include "tenants/tenant_quotas.h"

namespace baton {

bool CountsForTenant(const RequestSpec& spec) { return !spec.tenant.empty() && !IsLowPriority(spec.priority); }

bool RequestSlots::ByRight::operator()(const Tenant* a, const Tenant* b) const {
  // Requests without a tenant come first, because they need no share.
  const auto key = [](const Tenant& tenant) {
    return std::tuple(!tenant.name.empty(), tenant.running, tenant.queue.begin()->first);
  };
  return key(*a) < key(*b);
}

// --- limits --------------------------------------------------------------------------------------

// A tenant gets at most half of the slots and one more.
bool RequestSlots::HasShare(const Tenant& tenant) const {
  return tenant.name.empty() || tenant.running <= limits_.slots - counts_.running;
}

absl::Status RequestSlots::CheckSlot(const Tenant& tenant) const {
  if (tenant.most > 0 && tenant.running >= tenant.most) return QuotaUsedUp(tenant.name, tenant.most, "requests");
  const int32_t free = limits_.slots - counts_.running;
  if (free <= 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("overloaded: ", counts_.running, " live requests, limit ", limits_.slots, " (--max-requests)"));
  }
  if (HasShare(tenant)) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("overloaded: tenant '", tenant.name, "' has ", tenant.running,
                                                   " live requests, and ", free, " of the router's ", limits_.slots,
                                                   " request slots are free; a tenant with more live requests than "
                                                   "free slots may not add one"));
}

absl::Status RequestSlots::CheckWait(const Tenant& tenant, int64_t bytes) const {
  const bool shares = !tenant.name.empty();
  const int32_t left = limits_.waiting - counts_.waiting;
  if (left <= 0 || (shares && tenant.waiting > left)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "overloaded: ", counts_.waiting, " requests wait for outputs or for their session, limit ", limits_.waiting,
        " (--max-waiting)", left > 0 ? "; a tenant with more waiting requests than free slots may not add one" : ""));
  }
  return CheckBytes(tenant, bytes);
}

absl::Status RequestSlots::CheckBytes(const Tenant& tenant, int64_t bytes) const {
  const bool shares = !tenant.name.empty();
  const int64_t free = limits_.waiting_bytes - counts_.waiting_bytes;
  if (bytes <= free && (!shares || tenant.bytes + bytes <= free - bytes)) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("overloaded: prompts that wait for outputs have ", counts_.waiting_bytes, " bytes, limit ",
                   limits_.waiting_bytes, shares ? ", and half of it for a tenant" : "", "; this prompt adds ", bytes));
}

absl::Status RequestSlots::Check(const std::string& tenant) const {
  const Tenant unknown{.name = tenant};
  const auto found = tenants_.find(tenant);
  const Tenant& known = found == tenants_.end() ? unknown : found->second;
  absl::Status slot = CheckSlot(known);
  return slot.ok() || CheckWait(known, 0).ok() ? absl::OkStatus() : slot;
}

// --- requests ------------------------------------------------------------------------------------

RequestSlots::Tenant& RequestSlots::Find(const std::string& name, int32_t most) {
  Tenant& tenant = tenants_.try_emplace(name, Tenant{.name = name}).first->second;
  Change(tenant, [&] { tenant.most = most; });
  Grant();
  return tenant;
}

// Applies `change`, which may move the tenant in `next_`.
void RequestSlots::Change(Tenant& tenant, absl::FunctionRef<void()> change) {
  if (tenant.may_have_slot()) next_.erase(&tenant);
  change();
  if (tenant.may_have_slot()) next_.insert(&tenant);
}

absl::Status RequestSlots::Run(Part& part, const RequestSpec& spec, int32_t most) {
  BATON_CHECK(part.state == State::kNone, "the request was added before");
  Tenant* tenant = nullptr;
  if (spec.tenant.empty() || CountsForTenant(spec)) tenant = &Find(spec.tenant, most);
  RETURN_IF_ERROR(CheckSlot(tenant == nullptr ? Tenant() : *tenant));
  part.state = State::kRunning;
  part.tenant = tenant;
  ++counts_.running;
  if (tenant != nullptr) Change(*tenant, [&] { ++tenant->running; });
  return absl::OkStatus();
}

absl::Status RequestSlots::Wait(Part& part, const RequestSpec& spec, int32_t most, int64_t bytes) {
  BATON_CHECK(part.state == State::kNone, "the request was added before");
  Tenant& tenant = Find(spec.tenant, most);
  RETURN_IF_ERROR(CheckWait(tenant, bytes));
  part.state = State::kWaiting;
  part.tenant = &tenant;
  ++counts_.waiting;
  ++tenant.waiting;
  AddBytes(part, bytes);
  return absl::OkStatus();
}

void RequestSlots::AddBytes(Part& part, int64_t bytes) {
  part.bytes += bytes;
  part.tenant->bytes += bytes;
  counts_.waiting_bytes += bytes;
}

absl::Status RequestSlots::Grow(Part& part, int64_t bytes) {
  if (part.state != State::kWaiting && part.state != State::kQueued) return absl::OkStatus();
  if (bytes > 0) RETURN_IF_ERROR(CheckBytes(*part.tenant, bytes));
  AddBytes(part, bytes);
  return absl::OkStatus();
}

bool RequestSlots::Ready(Part& part) {
  if (part.state != State::kWaiting) return part.state == State::kRunning;
  Tenant& tenant = *part.tenant;
  if (CheckSlot(tenant).ok()) {
    Start(part);
    return true;
  }
  part.state = State::kQueued;
  part.turn = ++turns_;
  ++counts_.queued;
  Change(tenant, [&] { tenant.queue[part.turn] = &part; });
  return false;
}

// Gives a slot to a request that waits.
void RequestSlots::Start(Part& part) {
  StopWaiting(part);
  part.state = State::kRunning;
  ++counts_.running;
  Change(*part.tenant, [&] { ++part.tenant->running; });
}

void RequestSlots::StopWaiting(Part& part) {
  AddBytes(part, -part.bytes);
  --counts_.waiting;
  --part.tenant->waiting;
  if (part.state != State::kQueued) return;
  --counts_.queued;
  Change(*part.tenant, [&] { part.tenant->queue.erase(part.turn); });
}

void RequestSlots::Leave(Part& part) {
  if (part.state == State::kNone) return;
  if (part.state == State::kRunning) {
    std::erase(granted_, &part);
    --counts_.running;
    if (part.tenant != nullptr) Change(*part.tenant, [&] { --part.tenant->running; });
  } else {
    StopWaiting(part);
  }
  part = {.request = part.request};
  Grant();
}

void RequestSlots::Grant() {
  while (!next_.empty() && counts_.running < limits_.slots && HasShare(**next_.begin())) {
    Part& part = *(*next_.begin())->queue.begin()->second;
    Start(part);
    granted_.push_back(&part);
  }
}

void RequestSlots::CheckInvariants(const std::vector<const Part*>& parts) const {
  Counts counts;
  absl::flat_hash_map<const Tenant*, Counts> tenants;
  for (const Part* part : parts) {
    BATON_CHECK(part->state != State::kNone, "a live request has neither a slot nor waits for one");
    for (Counts* of : {&counts, &tenants[part->tenant]}) {
      of->running += part->state == State::kRunning;
      of->waiting += part->state != State::kRunning;
      of->queued += part->state == State::kQueued;
      of->waiting_bytes += part->bytes;
    }
  }
  BATON_CHECK(counts == counts_ && counts.running <= limits_.slots, "the counts of request slots differ");
  size_t next = 0;
  for (const auto& [name, tenant] : tenants_) {
    const Counts of{tenant.running, tenant.waiting, static_cast<int32_t>(tenant.queue.size()), tenant.bytes};
    BATON_CHECK(of == tenants[&tenant], name);
    BATON_CHECK(!tenant.may_have_slot() || next_.contains(const_cast<Tenant*>(&tenant)), name);
    next += tenant.may_have_slot();
    BATON_CHECK(tenant.queue.empty() || !CheckSlot(tenant).ok(), name);
  }
  BATON_CHECK(next == next_.size(), "a tenant without queued requests is in the order of tenants");
}

}  // namespace baton
