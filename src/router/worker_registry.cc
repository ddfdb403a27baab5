#include "router/worker_registry.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "base/strings.h"
#include "model/module_digest.h"

namespace baton {
namespace {

// Returns how many blocks of a prefill worker the router remembers: the worker's capacity, up to
// some 30 MB of the router's memory.
size_t RememberedBlocks(const WorkerInfo& info) {
  constexpr int64_t kMost = int64_t{1} << 18;
  return static_cast<size_t>(std::clamp<int64_t>(info.blocks_total + info.staging_blocks, 1, kMost));
}

absl::Status CheckSameDecoder(const WorkerInfo& info, const WorkerInfo& serving) {
  const auto check = [&](const char* what, const Digest& coming, const Digest& served) -> absl::Status {
    if (coming == served) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "model '", info.model, "': ", what, " ", Hex(coming), " at ", info.address, ", but ", Hex(served), " at ",
        serving.address, ", which serves it: expected equal digests; serve this decoder under another model name, or ",
        "attach it when all workers with the other digest have left"));
  };
  RETURN_IF_ERROR(check("weights", info.weights_digest, serving.weights_digest));
  return check("prefill module", info.module_digest, serving.module_digest);
}

}  // namespace

absl::Status WorkerRegistry::MayAttach(const WorkerInfo& info) const {
  if (info.role != WorkerRole::kDecode) return absl::OkStatus();
  // A drained worker may get requests again.
  for (const auto& [link, other] : workers_) {
    const bool serves = other.info.role == WorkerRole::kDecode && other.info.model == info.model;
    if (serves && !other.load.draining) RETURN_IF_ERROR(CheckSameDecoder(info, other.info));
  }
  return absl::OkStatus();
}

void WorkerRegistry::Attach(const WorkerAddress& link, const WorkerInfo& info) {
  BATON_CHECK(!workers_.contains(link), link);
  BATON_CHECK(MayAttach(info).ok(), link);
  AttachedWorker& worker = workers_[link];
  worker.link = link;
  worker.info = info;
  worker.load.blocks_free = info.blocks_total;  // until the worker reports its load
  if (info.role == WorkerRole::kPrefill) worker.prefix_memory.emplace(RememberedBlocks(info));
  worker.drained = drained_.contains(link);
  restarting_.erase(link);
}

void WorkerRegistry::SetHealth(const WorkerWatch::Change& change, absl::Time now) {
  AttachedWorker& worker = At(change.worker);
  worker.health = change.health;
  worker.health_reason = change.reason;
  worker.health_since = now;
}

absl::btree_set<Request*, Request::ById> WorkerRegistry::RequestsToMove() const {
  std::set<WorkerRole> roles;  // with a worker that is not avoided
  for (const auto& [link, worker] : workers_) {
    if (!worker.avoided()) roles.insert(worker.info.role);
  }
  absl::btree_set<Request*, Request::ById> requests;
  for (const auto& [link, worker] : workers_) {
    const bool can_leave = worker.avoided() && roles.contains(worker.info.role);
    // Among the requests of a hung worker may be the cause, which ends.
    if (can_leave || worker.health == WorkerHealth::kHung)
      requests.insert(worker.requests.begin(), worker.requests.end());
  }
  return requests;
}

std::vector<WorkerAddress> WorkerRegistry::HoldersOfRoom() const {
  std::vector<WorkerAddress> holders;
  for (const auto& [link, worker] : workers_) {
    if (worker.held_room > 0 && MayBeAsked(worker)) holders.push_back(link);
  }
  return holders;
}

bool WorkerRegistry::MayBeAsked(const AttachedWorker& worker) const {
  if (worker.drained) return false;
  if (worker.serves()) return true;
  const WorkerInfo& info = worker.info;
  return std::ranges::none_of(workers_, [&](const auto& entry) {
    const WorkerInfo& other = entry.second.info;
    return entry.second.serves() && other.role == info.role && other.model == info.model &&
           other.decoder() == info.decoder() && other.context >= info.context &&
           other.blocks_total >= info.blocks_total;
  });
}

void WorkerRegistry::SetDrained(const WorkerAddress& link, bool drained) {
  drained ? static_cast<void>(drained_.insert(link)) : static_cast<void>(drained_.erase(link));
  if (AttachedWorker* worker = Find(link)) worker->drained = drained;
}

void WorkerRegistry::Remove(const WorkerAddress& link, absl::Time now) {
  const AttachedWorker& worker = workers_.at(link);
  BATON_CHECK(worker.requests.empty() && worker.expected.empty(), link);
  absl::erase_if(restarting_, [&](const auto& entry) { return entry.second.until <= now; });
  if (worker.load.draining) restarting_[link] = {worker.info, now + restart_wait_};
  workers_.erase(link);
}

WorkerRegistry::Candidates WorkerRegistry::Decodes(const std::string& model) const {
  Candidates result;
  for (const auto& [link, worker] : workers_) {
    const bool serves = worker.info.role == WorkerRole::kDecode && worker.info.model == model;
    if (serves && !worker.drained) result.push_back(&worker);
  }
  return result;
}

WorkerRegistry::Candidates WorkerRegistry::Prefills(const std::string& model, bool prefill_only,
                                                    const Candidates& decodes) const {
  Candidates result;
  for (const auto& [link, worker] : workers_) {
    if (worker.info.role != WorkerRole::kPrefill || worker.drained) continue;
    const bool serves = std::ranges::any_of(
        decodes, [&](const AttachedWorker* decode) { return CanShareKv(worker.info, decode->info); });
    if (serves || (prefill_only && worker.info.model == model)) result.push_back(&worker);
  }
  return result;
}

absl::Status WorkerRegistry::Readiness(const std::string& model, bool prefill_only) const {
  const auto decodes = Decodes(model);
  if (decodes.empty() && !prefill_only) {
    return absl::UnavailableError(absl::StrCat("no decode worker for model '", model, "' is attached"));
  }
  if (Prefills(model, prefill_only, decodes).empty()) {
    for (const auto& [link, worker] : workers_) {
      if (worker.info.role != WorkerRole::kPrefill || worker.info.model != model || worker.drained) continue;
      return absl::UnavailableError(absl::StrCat("prefill worker ", link, " and decode worker ", decodes.front()->link,
                                                 " serve model '", model,
                                                 "' and cannot share KV: their weights, KV formats or devices differ"));
    }
    return absl::UnavailableError(absl::StrCat("no prefill worker for model '", model, "' is attached"));
  }
  return absl::OkStatus();
}

absl::Status WorkerRegistry::BlameQuarantine(const Placement& placement, const absl::Status& refusal) const {
  if (!absl::IsResourceExhausted(refusal)) return refusal;
  for (const Refusals::Refusal& left_out : placement.refusals.all()) {
    const auto found = workers_.find(left_out.link);
    if (found == workers_.end()) continue;
    const auto& [link, worker] = *found;
    const WorkerLoad& load = worker.load;
    const bool would_fit =
        BlocksFor(placement.prompt_tokens) <= load.blocks_free + load.blocks_cached + load.blocks_quarantined;
    if (load.blocks_quarantined == 0 || !would_fit) continue;
    return absl::UnavailableError(StrCat(Message(refusal), ": ", load.blocks_quarantined, " of the ",
                                         worker.info.blocks_total, " KV blocks of ", link,
                                         " are in quarantine, because a prefill worker may still write them"));
  }
  return refusal;
}

absl::Status WorkerRegistry::BlameHang(const Placement& placement) const {
  const bool prefills = !placement.prefill.empty();
  const auto found = workers_.find(prefills ? placement.prefill : placement.decode);
  const bool hangs = found != workers_.end() && found->second.health == WorkerHealth::kHung && placement.in_step;
  if (!hangs) return absl::OkStatus();
  return absl::InternalError(StrCat("worker ", found->first, " hangs in a step with the request, and ", placement.hangs,
                                    " workers did so before; this request may be the cause"));
}

AttachedWorker* WorkerRegistry::Find(const WorkerAddress& link) {
  const auto found = workers_.find(link);
  return found == workers_.end() ? nullptr : &found->second;
}

const AttachedWorker* WorkerRegistry::FindDecode(Incarnation incarnation) const {
  for (const auto& [link, worker] : workers_) {
    if (worker.info.role == WorkerRole::kDecode && worker.info.incarnation == incarnation) return &worker;
  }
  return nullptr;
}

bool WorkerRegistry::IsDraining(const WorkerAddress& link) const {
  const auto worker = workers_.find(link);
  return worker != workers_.end() && worker->second.load.draining;
}

absl::Time WorkerRegistry::AwaitedUntil(const std::string& model, bool prefill_only) const {
  const absl::Time attached = absl::InfiniteFuture();
  std::vector<const WorkerInfo*> decodes;  // attached or awaited
  for (const AttachedWorker* decode : Decodes(model)) decodes.push_back(&decode->info);
  absl::Time decode_until = decodes.empty() ? absl::InfinitePast() : attached;
  for (const auto& [link, left] : restarting_) {
    if (left.info.role != WorkerRole::kDecode || left.info.model != model) continue;
    decodes.push_back(&left.info);
    decode_until = std::max(decode_until, left.until);
  }
  const auto serves = [&](const WorkerInfo& prefill) {
    if (prefill.role != WorkerRole::kPrefill) return false;
    if (prefill_only && prefill.model == model) return true;
    return std::ranges::any_of(decodes, [&](const WorkerInfo* decode) { return CanShareKv(prefill, *decode); });
  };
  absl::Time prefill_until = absl::InfinitePast();
  for (const auto& [link, left] : restarting_) {
    if (serves(left.info)) prefill_until = std::max(prefill_until, left.until);
  }
  for (const auto& [link, worker] : workers_) {
    if (serves(worker.info)) prefill_until = attached;
  }
  const absl::Time until = prefill_only ? prefill_until : std::min(decode_until, prefill_until);
  return until == attached ? absl::InfinitePast() : until;
}

bool WorkerRegistry::MayReturn(const std::string& model, int64_t tokens, absl::Time now) const {
  const auto holds = [&](const WorkerInfo& info) {
    return info.role == WorkerRole::kDecode && info.model == model && info.CanHold(tokens);
  };
  return std::ranges::any_of(workers_,
                             [&](const auto& entry) { return entry.second.drained && holds(entry.second.info); }) ||
         std::ranges::any_of(restarting_,
                             [&](const auto& entry) { return entry.second.until > now && holds(entry.second.info); });
}

std::vector<WorkerRegistry::Decoder> WorkerRegistry::Decoders() const {
  std::vector<Decoder> result;
  for (const auto& [link, decode] : workers_) {
    if (decode.info.role != WorkerRole::kDecode) continue;
    const auto prefill = std::ranges::find_if(workers_, [&](const auto& other) {
      return other.second.info.role == WorkerRole::kPrefill && CanShareKv(other.second.info, decode.info);
    });
    if (prefill != workers_.end()) result.push_back({decode.info.model, prefill->second.info.model});
  }
  return result;
}

void WorkerRegistry::CheckInvariants() const {
  for (const auto& [link, left] : restarting_) BATON_CHECK(!workers_.contains(link), link);
  for (const auto& [link, worker] : workers_) {
    BATON_CHECK(worker.link == link, link);
    BATON_CHECK(worker.prefix_memory.has_value() == (worker.info.role == WorkerRole::kPrefill), link);
  }
}

}  // namespace baton
