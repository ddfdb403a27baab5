#include "router/worker_choice.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/strings.h"

namespace baton {
namespace {

const AttachedWorker* LargestOf(const WorkerChoice::Candidates& decodes) {
  const auto largest =
      std::ranges::max_element(decodes, {}, [](const AttachedWorker* worker) { return worker->info.most_tokens(); });
  return largest == decodes.end() ? nullptr : *largest;
}

// Returns whether none of the workers can ever hold the client's own max_tokens after the prompt.
// False without workers, and for a prompt that does not fit either: a worker refuses that one.
bool NoneCanHold(const WorkerChoice::Candidates& decodes, const Request& request) {
  const AttachedWorker* largest = LargestOf(decodes);
  return largest != nullptr && !largest->info.CanHold(request.KvTokensAsked()) &&
         largest->info.CanHold(request.tokens_so_far());
}

// Returns the healthiest of the candidates, which are large enough. Avoided workers are among them
// only if no other worker is large enough. A refusal plays no part: while the well workers are
// full, a request waits and does not go to a silent worker.
WorkerChoice::Candidates Healthiest(WorkerChoice::Candidates candidates) {
  const auto rank = [](const AttachedWorker* worker) {
    if (IsAvoided(worker->health)) return 3;
    if (worker->load.draining) return 2;  // it refuses new requests
    return worker->health == WorkerHealth::kReturning ? 1 : 0;
  };
  if (candidates.empty()) return candidates;
  const int best = rank(*std::ranges::min_element(candidates, {}, rank));
  std::erase_if(candidates, [&](const AttachedWorker* worker) { return rank(worker) > best; });
  return candidates;
}

// Returns those of the decode workers that the request may ask, before refusals.
WorkerChoice::Candidates Suitable(const WorkerChoice::Candidates& decodes, const Request& request) {
  if (NoneCanHold(decodes, request)) return {};
  return Healthiest(LargeEnough(decodes, request));
}

}  // namespace

bool WorkerChoice::Workers::CanHandOff(int64_t tokens) const {
  return decode != nullptr && decode->info.has_module_weights() &&
         prefill->info.numerics_id == decode->info.numerics_id && prefill->info.CanHold(tokens);
}

Placement::State WorkerChoice::Workers::StateOf(const Request& request) const {
  if (prefill == nullptr) return Placement::State::kScoring;
  return request.placement.route.streaming ? Placement::State::kStreaming : Placement::State::kPrefilling;
}

RouterAction WorkerChoice::Workers::ActionFor(Request& request, bool hedge) const {
  if (prefill == nullptr) {
    return {.kind = RouterAction::Kind::kStartScoring, .request = &request, .worker = decode->link};
  }
  return {.kind = RouterAction::Kind::kStartPrefill,
          .request = &request,
          .worker = prefill->link,
          .decode_worker = decode == nullptr ? "" : decode->info.address,
          .streaming = request.placement.route.streaming,
          .hedge = hedge,
          .with_output = CanHandOff(request.placement.prompt_tokens)};
}

absl::Status WorkerChoice::Readiness(const Request& request) const {
  const std::string& model = request.asked.served->name;
  RETURN_IF_ERROR(workers_.Readiness(model, request.asked.prefill_only));
  if (request.output.empty()) return absl::OkStatus();
  const Candidates decodes = DecodesFor(request);
  if (!workers_.Prefills(model, request.asked.prefill_only, decodes).empty()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("no decode worker with the weights that began the output is attached; model '", model,
                   "' has other weights now"));
}

WorkerChoice::Candidates WorkerChoice::DecodesFor(const Request& request) const {
  Candidates decodes = workers_.Decodes(request.asked.served->name);
  if (!request.output.empty()) {
    std::erase_if(decodes,
                  [&](const AttachedWorker* worker) { return worker->info.decoder() != request.placement.decoder; });
  }
  return decodes;
}

WorkerChoice::Candidates WorkerChoice::ReachableDecodes(const Request& request) const {
  Candidates decodes = DecodesFor(request);
  if (request.asked.scores()) return decodes;
  const Candidates prefills = workers_.Prefills(request.asked.served->name, request.asked.prefill_only, decodes);
  std::erase_if(decodes, [&](const AttachedWorker* decode) {
    return std::ranges::none_of(prefills, [&](const auto* prefill) { return CanShareKv(prefill->info, decode->info); });
  });
  return decodes;
}

bool WorkerChoice::Outgrows(const Request& request, const TokenUpdate& last) const {
  const int64_t made = request.completion_tokens + std::ssize(last.tokens);
  const bool cut_off = last.finish == FinishReason::kLength && made < request.asked.spec.sampling.max_tokens;
  if (!cut_off || !request.may_wait()) return false;
  const auto can_hold_more = [tokens = request.tokens_so_far() + 1](const AttachedWorker* worker) {
    return worker->info.CanHold(tokens);
  };
  return !can_hold_more(&workers_.workers().at(request.placement.decode)) &&
         std::ranges::any_of(ReachableDecodes(request), can_hold_more);
}

absl::Status WorkerChoice::CheckMaxTokens(const Request& request, absl::Time now) const {
  const Candidates decodes = ReachableDecodes(request);
  const ClientRequest& asked = request.asked;
  const int64_t kv_tokens = request.KvTokensAsked();
  if (!NoneCanHold(decodes, request) || workers_.MayReturn(asked.served->name, kv_tokens, now)) {
    return absl::OkStatus();
  }
  const WorkerInfo& largest = LargestOf(decodes)->info;
  const int64_t max_tokens = asked.spec.sampling.max_tokens, most = largest.most_tokens() + 1;
  const int64_t prompt = kv_tokens + 1 - max_tokens;
  return absl::InvalidArgumentError(
      StrCat(asked.form.paths.max_tokens, ": ", max_tokens, " after a prompt of ",
             request.placement.route.streaming ? "at least " : "", prompt, " tokens, limit ", most - prompt,
             " (KV memory for ", most, " tokens of '", asked.served->shown_name(), "': the largest decode worker has ",
             largest.blocks_total, " blocks of ", kBlockTokens, " tokens and the context length ", largest.context,
             "); send less, or leave it out to generate what fits"));
}

WorkerChoice::Workers WorkerChoice::ChooseToScore(const Request& request) const {
  Candidates decodes = Suitable(ReachableDecodes(request), request);
  std::erase_if(decodes, [&](const AttachedWorker* worker) { return request.placement.refusals.Has(worker->link); });
  return {nullptr, ChooseDecode(decodes, request, /*ahead=*/nullptr, options_)};
}

WorkerChoice::Workers WorkerChoice::Choose(const Request& request) const {
  const Placement& placement = request.placement;
  const ClientRequest& asked = request.asked;
  if (asked.scores()) return ChooseToScore(request);
  const auto refused = [&](const AttachedWorker* worker) { return placement.refusals.Has(worker->link); };
  // A well decode worker that the request cannot reach does not rule out the others.
  Candidates decodes = Suitable(ReachableDecodes(request), request);
  std::erase_if(decodes, refused);
  // A worker that holds the prompt without the output so far serves too.
  const int64_t prompt = std::ssize(asked.spec.tokens);
  Candidates prefills =
      Healthiest(LargeEnough(workers_.Prefills(asked.served->name, asked.prefill_only, decodes), prompt));
  std::erase_if(prefills, [&](const AttachedWorker* worker) {
    return refused(worker) || (placement.former && placement.former->prefill == worker->link);
  });
  const AttachedWorker* prefill = ChoosePrefill(prefills, request, options_);
  if (prefill == nullptr) return {};
  const AttachedWorker* decode = asked.prefill_only ? nullptr : DecodeFor(request, *prefill, std::move(decodes));
  if (decode == nullptr && !asked.prefill_only && !placement.route.streaming) return {};
  return {prefill, decode};
}

WorkerChoice::Workers WorkerChoice::ChooseToMove(const Request& request) const {
  const Workers chosen = Choose(request);
  if (!chosen.found() || (chosen.prefill != nullptr && chosen.prefill->avoided())) return {};
  if (chosen.decode == nullptr) return chosen;
  const auto from = workers_.workers().find(request.placement.decode);
  const bool may_stay = !request.output.empty() && from != workers_.workers().end() && !IsAvoided(from->second.health);
  return chosen.decode->avoided() || (may_stay && IsOverloaded(*chosen.decode, request)) ? Workers{} : chosen;
}

const AttachedWorker* WorkerChoice::DecodeFor(const Request& request, const AttachedWorker& prefill) const {
  Candidates decodes = DecodesFor(request);
  std::erase_if(decodes, [&](const AttachedWorker* decode) { return !CanShareKv(prefill.info, decode->info); });
  return DecodeFor(request, prefill, Suitable(decodes, request));
}

const AttachedWorker* WorkerChoice::DecodeFor(const Request& request, const AttachedWorker& prefill,
                                              Candidates decodes) const {
  std::erase_if(decodes, [&](const AttachedWorker* decode) { return !CanShareKv(prefill.info, decode->info); });
  const auto ahead = workers_.workers().find(request.placement.expected_at);
  return ChooseDecode(decodes, request, ahead == workers_.workers().end() ? nullptr : &ahead->second, options_);
}

int64_t FewestUncached(const WorkerRegistry& workers, const Request& request) {
  int64_t fewest = request.placement.prompt_tokens;
  const ClientRequest& asked = request.asked;
  if (asked.scores()) return fewest;
  const WorkerRegistry::Candidates decodes = workers.Decodes(asked.served->name);
  for (const AttachedWorker* worker : workers.Prefills(asked.served->name, asked.prefill_only, decodes)) {
    fewest = std::min(fewest, UncachedTokens(*worker, request));
  }
  return fewest;
}

}  // namespace baton
