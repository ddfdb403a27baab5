// Which workers RouterCore has for a request.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "model/module_digest.h"
#include "router/router_core.h"

namespace baton {

namespace {

absl::Status CheckSameDecoder(const WorkerInfo& info, const WorkerInfo& serving) {
  const auto check = [&](const char* what, const Digest& coming, const Digest& served) -> absl::Status {
    if (coming == served) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "model '", info.model, "': ", what, " ", Hex(coming), " at ", info.address, ", but ", Hex(served), " at ",
        serving.address, ", which serves it: what answers otherwise needs another name, or comes when the last worker ",
        "with these has gone"));
  };
  RETURN_IF_ERROR(check("weights", info.weights_digest, serving.weights_digest));
  return check("prefill module", info.module_digest, serving.module_digest);
}

}  // namespace

absl::Status RouterCore::MayAttach(const WorkerInfo& info) const {
  if (info.role != WorkerRole::kDecode) return absl::OkStatus();
  for (const AttachedWorker* other : DecodeCandidates(info.model)) {
    if (!other->load.draining) RETURN_IF_ERROR(CheckSameDecoder(info, other->info));
  }
  return absl::OkStatus();
}

RouterCore::Candidates RouterCore::DecodeCandidates(const std::string& model) const {
  Candidates result;
  for (const auto& [link, worker] : workers_) {
    if (worker.info.role == WorkerRole::kDecode && worker.info.model == model) result.push_back(&worker);
  }
  return result;
}

RouterCore::Candidates RouterCore::PrefillCandidates(const RouteRequest& request, const Candidates& decodes) const {
  Candidates result;
  for (const auto& [link, worker] : workers_) {
    if (worker.info.role != WorkerRole::kPrefill) continue;
    const bool serves = std::ranges::any_of(
        decodes, [&](const AttachedWorker* decode) { return CanShareKv(worker.info, decode->info); });
    if (serves || (request.prefill_only && worker.info.model == request.model)) result.push_back(&worker);
  }
  return result;
}

bool RouterCore::Waits(const RequestId& id) const {
  const auto found = live_.find(id);
  return found != live_.end() && (found->second.state == State::kWaiting || found->second.state == State::kAtHome);
}

absl::Status RouterCore::Readiness(const std::string& model, bool prefill_only) const {
  const auto decodes = DecodeCandidates(model);
  if (decodes.empty() && !prefill_only) {
    return absl::UnavailableError(absl::StrCat("no decode worker for model '", model, "' is attached"));
  }
  RouteRequest probe{.model = model, .prefill_only = prefill_only};
  if (PrefillCandidates(probe, decodes).empty()) {
    return absl::UnavailableError(absl::StrCat("no prefill worker for model '", model, "' is attached"));
  }
  return absl::OkStatus();
}

bool RouterCore::IsDraining(const WorkerAddress& link) const {
  const auto worker = workers_.find(link);
  return worker != workers_.end() && worker->second.load.draining;
}

absl::Time RouterCore::AwaitedUntil(const std::string& model, bool prefill_only) const {
  const absl::Time attached = absl::InfiniteFuture();
  std::vector<const WorkerInfo*> decodes;  // attached, or awaited
  for (const AttachedWorker* decode : DecodeCandidates(model)) decodes.push_back(&decode->info);
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

std::vector<RouterCore::Decoder> RouterCore::Decoders() const {
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

}  // namespace baton
