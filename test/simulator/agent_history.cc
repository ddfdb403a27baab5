#include "agent_history.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/retry.h"
#include "simulator/letter_tokenizer.h"

namespace baton {
namespace {

using Ids = std::vector<TokenId>;

std::vector<Reference> ReferencesOf(const SimulatedRequest& request) {
  std::vector<Reference> references;
  for (const PromptSegment& segment : request.segments) {
    if (const auto* reference = std::get_if<Reference>(&segment)) references.push_back(*reference);
  }
  return references;
}

bool RefersTo(const SimulatedRequest& request, const RequestId& id) {
  return std::ranges::any_of(ReferencesOf(request), [&](const Reference& r) { return r.upstream == id; });
}

// Adds the tokens that may stand for the reference, if this is the attempt whose output it has. An
// element without value means that the prompt fails.
void AddCandidates(const Reference& reference, absl::Time submitted, const Attempt& output,
                   std::vector<std::optional<Ids>>& candidates) {
  const Ids& shown = output.shown;
  const auto on_failure = [&](size_t least) {
    if (reference.on_failure == OnFailure::kAbort) candidates.push_back(std::nullopt);
    if (reference.on_failure == OnFailure::kSubstitute) candidates.emplace_back(reference.substitute);
    for (size_t part = least; reference.on_failure == OnFailure::kPartial && part <= shown.size(); ++part) {
      candidates.emplace_back(Ids(shown.begin(), shown.begin() + static_cast<std::ptrdiff_t>(part)));
    }
  };
  const absl::Time deadline = submitted + reference.timeout;
  // The output may have ended before the deadline.
  if (output.ended <= deadline + AgentHistory::kSlack) {
    output.status.ok() && output.over() ? static_cast<void>(candidates.emplace_back(shown)) : on_failure(shown.size());
  }
  if (output.ended > deadline - AgentHistory::kSlack && deadline != absl::InfiniteFuture()) on_failure(0);
}

void AddLabel(const std::vector<LabelPart>& label, const RequestId& agent, Ids& ids) {
  for (const LabelPart& part : label) {
    const auto* text = std::get_if<Ids>(&part);
    const Ids more = text != nullptr ? *text : LetterTokenizer().Encode(agent, Tokenizer::SpecialTokens::kAsText);
    ids.insert(ids.end(), more.begin(), more.end());
  }
}

// The part group at the position of `place`, with this output of `source`.
Ids Group(const Reference& place, const Reference& source, const Ids& output) {
  Ids ids;
  if (output.empty()) return ids;
  AddLabel(place.before, source.upstream, ids);
  ids.insert(ids.end(), output.begin(), output.end());
  AddLabel(place.after, source.upstream, ids);
  return ids;
}

}  // namespace

void AgentHistory::End(Attempt& attempt, const absl::Status& status, absl::Time now) {
  attempt.status = status;
  attempt.ended = now;
  attempt.rank = ends_++;
}

bool AgentHistory::IsReadInAnyOrder(const RequestId& id) const {
  return std::ranges::any_of(requests_, [&](const SimulatedRequest& reader) {
    return (reader.join == Join::kArrival || reader.first > 0) && RefersTo(reader, id);
  });
}

const Attempt& AgentHistory::LastOf(const RequestId& id) const {
  static const Attempt none;  // no request has this id
  const auto found = attempts_.find(id);
  return found == attempts_.end() ? none : found->second.back();
}

// The attempts of an upstream request whose end may have settled a reference of a prompt that was
// submitted at this time.
std::vector<Attempt> AgentHistory::AttemptsFor(const Reference& reference, absl::Time submitted) const {
  const auto found = attempts_.find(reference.upstream);
  if (found == attempts_.end()) return {Attempt{}};
  const std::vector<Attempt>& all = found->second;
  std::vector<Attempt> attempts;
  for (size_t i = 0; i < all.size(); ++i) {
    const bool is_last = i + 1 == all.size();
    // The next one had taken its place.
    if (!is_last && all[i + 1].submitted + kSlack < submitted) continue;
    // The prompt may wait for the next one, until a timeout.
    const bool waits = MayRetry(all[i].status) && (reference.announced || all[i].refused);
    if (!is_last && waits && reference.announced && reference.timeout == absl::InfiniteDuration()) continue;
    attempts.push_back(all[i]);
    if (all[i].ended > submitted + kSlack && !waits) break;
  }
  return attempts;
}

AgentHistory::Candidates AgentHistory::CandidatesFor(const Reference& reference, absl::Time submitted) const {
  Candidates candidates;
  for (const Attempt& attempt : AttemptsFor(reference, submitted)) {
    AddCandidates(reference, submitted, attempt, candidates);
  }
  return candidates;
}

// The possible orders in which the references were settled.
std::vector<std::vector<size_t>> AgentHistory::Orders(std::span<const Reference> references,
                                                      absl::Time submitted) const {
  // The outputs that are complete when the request arrives come first, in the prompt's order. The
  // test cannot see whether they were complete if they ended at about that time.
  std::set<absl::Time> arrivals = {submitted};
  for (const Reference& reference : references) {
    const absl::Time ended = LastOf(reference.upstream).ended;
    if (ended > submitted && ended <= submitted + kSlack) arrivals.insert(ended);
  }
  std::vector<std::vector<size_t>> orders;
  for (const absl::Time arrived : arrivals) {
    for (const bool refused_waits : {false, true}) {
      std::vector<size_t>& order = orders.emplace_back(references.size());
      std::iota(order.begin(), order.end(), size_t{0});
      std::ranges::stable_sort(order, {}, [&](size_t i) {
        const Attempt& last = LastOf(references[i].upstream);
        // The prompt waits for another attempt, which does not come.
        const bool waits = MayRetry(last.status) && (references[i].announced || (last.refused && refused_waits));
        if (last.ended <= arrived && !waits) return std::pair(absl::InfinitePast(), size_t{0});
        return std::pair(last.ended + (waits ? kRetryWait : absl::ZeroDuration()), last.rank);
      });
    }
  }
  return orders;
}

// Returns whether the output counts in `first`.
bool AgentHistory::Counts(const Reference& reference) const {
  const Attempt& last = LastOf(reference.upstream);
  return reference.on_failure != OnFailure::kAbort || (last.status.ok() && last.over());
}

std::vector<AgentHistory::Sources> AgentHistory::SourcesOf(const SimulatedRequest& request,
                                                           std::span<const Reference> references,
                                                           absl::Time submitted) const {
  if (request.join == Join::kOrder && request.first == 0) {
    Sources sources(references.size());
    for (size_t i = 0; i < sources.size(); ++i) sources[i] = i;
    return {sources};
  }
  std::vector<Sources> all;
  for (std::vector<size_t> order : Orders(references, submitted)) {
    std::vector<size_t> used;
    const auto first = static_cast<size_t>(request.first);
    std::ranges::copy_if(order, std::back_inserter(used), [&](size_t i) { return Counts(references[i]); });
    // With fewer outputs the prompt fails because of one that does not count.
    if (first > 0 && used.size() >= first) order.assign(used.begin(), used.begin() + request.first);
    Sources& sources = all.emplace_back(references.size());
    for (size_t i = 0; i < order.size(); ++i) sources[request.join == Join::kArrival ? i : order[i]] = order[i];
  }
  return all;
}

ExpectedPrompts AgentHistory::PromptsOf(const SimulatedRequest& request, absl::Time submitted) const {
  const std::vector<Reference> references = ReferencesOf(request);
  ExpectedPrompts expected;
  for (const Sources& sources : SourcesOf(request, references, submitted)) {
    std::vector<Ids> prompts = {{}};
    size_t position = 0;
    for (const PromptSegment& segment : request.segments) {
      Candidates candidates;
      if (const auto* text = std::get_if<Ids>(&segment)) {
        candidates.emplace_back(*text);
      } else if (const std::optional<size_t> source = sources[position++]; !source) {
        continue;
      } else {
        candidates = CandidatesFor(references[*source], submitted);
        for (std::optional<Ids>& output : candidates) {
          if (output) output = Group(std::get<Reference>(segment), references[*source], *output);
        }
      }
      std::vector<Ids> longer;
      for (const std::optional<Ids>& candidate : candidates) {
        expected.may_fail |= !candidate;
        for (Ids prompt : candidate ? prompts : std::vector<Ids>()) {
          prompt.insert(prompt.end(), candidate->begin(), candidate->end());
          longer.push_back(std::move(prompt));
        }
      }
      prompts = std::move(longer);
    }
    expected.prompts.insert(expected.prompts.end(), prompts.begin(), prompts.end());
  }
  std::ranges::sort(expected.prompts);
  expected.prompts.erase(std::ranges::unique(expected.prompts).begin(), expected.prompts.end());
  return expected;
}

bool AgentHistory::IsTimely(const SimulatedRequest& request, absl::Time submitted, absl::Time ended) const {
  const auto is_near = [&](absl::Time time) { return absl::AbsDuration(ended - time) <= 2 * kSlack; };
  return is_near(submitted) || std::ranges::any_of(ReferencesOf(request), [&](const Reference& reference) {
           const auto found = attempts_.find(reference.upstream);
           // The wait for an announced request begins with the first prompt that refers to it.
           if (found == attempts_.end() || is_near(submitted + reference.timeout)) return true;
           return std::ranges::any_of(found->second, [&](const Attempt& attempt) {
             return is_near(attempt.ended) || is_near(attempt.ended + kRetryWait);
           });
         });
}

// The earliest time at which the prompt may have used enough outputs of others than `without`, and
// discarded that one.
absl::Time AgentHistory::EnoughAt(const SimulatedRequest& request, const RequestId& without) const {
  if (request.first == 0) return absl::InfiniteFuture();
  std::vector<absl::Time> ends;
  for (const Reference& reference : ReferencesOf(request)) {
    if (reference.upstream != without && Counts(reference)) ends.push_back(LastOf(reference.upstream).ended);
  }
  const auto first = static_cast<size_t>(request.first);
  if (ends.size() < first) return absl::InfiniteFuture();
  std::ranges::sort(ends);
  return ends[first - 1];
}

bool AgentHistory::WasUnneeded(const RequestId& id) const {
  bool referred = false, needed = false;
  const absl::Time ended = LastOf(id).ended + kSlack;
  for (const SimulatedRequest& other : requests_) {
    for (const Reference& reference : ReferencesOf(other)) {
      const auto found = attempts_.find(other.id);
      if (reference.upstream != id || found == attempts_.end()) continue;
      for (const Attempt& attempt : found->second) {
        if (attempt.submitted > ended) continue;
        referred = true;
        // The router may have had no such request yet.
        if (attempt.refused || attempt.submitted + 2 * kSlack > ended) continue;
        const bool times_out = attempt.submitted + reference.timeout <= ended;
        // A failed attempt needs the output until the next one comes, or for ten seconds.
        const bool waits = &attempt != &found->second.back() && MayRetry(attempt.status);
        const absl::Time until = waits ? (&attempt + 1)->submitted : attempt.ended;
        needed |= std::min(until, EnoughAt(other, id)) > ended && !times_out;
      }
    }
  }
  return referred && !needed;
}

bool AgentHistory::IsInCycle(const RequestId& id) const {
  std::set<RequestId> seen;
  std::function<void(const RequestId&)> visit = [&](const RequestId& from) {
    const auto request = std::ranges::find(requests_, from, &SimulatedRequest::id);
    if (request == requests_.end()) return;
    for (const Reference& reference : ReferencesOf(*request)) {
      if (seen.insert(reference.upstream).second) visit(reference.upstream);
    }
  };
  visit(id);
  return seen.contains(id);
}

std::string AgentHistory::Text() const {
  std::string text;
  for (const auto& [id, attempts] : attempts_) {
    for (const Attempt& a : attempts) {
      absl::StrAppend(&text, id, ": ", absl::FormatDuration(a.submitted - absl::UnixEpoch()), " to ",
                      absl::FormatDuration(a.ended - absl::UnixEpoch()), a.refused ? " refused " : " ", a.shown.size(),
                      " tokens ", absl::StatusCodeToString(a.status.code()), "\n");
    }
  }
  return text;
}

}  // namespace baton
