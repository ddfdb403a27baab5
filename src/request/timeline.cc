#include "request/timeline.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace baton {
namespace {

// A shorter pause between steps is overhead of the step loop, not a wait.
constexpr absl::Duration kShortestPause = absl::Microseconds(500);

// Appends spans. Each span begins at the end of the previous one.
class SpanBuilder {
 public:
  SpanBuilder(const RequestLife& life, absl::Time end)
      : complete_(life.stages.complete), at_(life.stages.arrived), end_(std::max(end, life.stages.arrived)) {}

  absl::Time at() const { return at_; }

  void To(absl::Time until, Phase phase, int32_t tokens = 0, int32_t steps = 0) {
    until = std::clamp(until, at_, end_);
    if (until > at_) spans_.push_back({phase, at_, until, tokens, steps});
    at_ = until;
  }
  // Appends time without computation. It counts as kWaiting while the prompt is incomplete, and as
  // kQueued after that.
  void Idle(absl::Time until) {
    To(std::min(until, complete_), Phase::kWaiting);
    To(until, Phase::kQueued);
  }
  void Step(absl::Time begin, absl::Time until, const PrefillStep& step) {
    const bool pause = spans_.empty() || spans_.back().phase != Phase::kPrefill || begin - at_ >= kShortestPause;
    if (pause) Idle(begin);
    To(until, Phase::kPrefill, step.tokens, step.steps);
  }
  std::vector<PhaseSpan> Take() { return std::move(spans_); }

 private:
  const absl::Time complete_;
  absl::Time at_;
  const absl::Time end_;
  std::vector<PhaseSpan> spans_;
};

int64_t BytesOf(const RequestLife& life) {
  const RequestOutcome& outcome = life.outcome;
  size_t bytes = sizeof(RequestLife) + life.workflow.size() + life.cache_domain.size() + life.agent.size() +
                 outcome.id.size() + outcome.call.size() + outcome.tenant.size() + outcome.model.size() +
                 outcome.trace_id.size() + outcome.prefill_worker.size() + outcome.decode_worker.size() +
                 outcome.status.message().size() + life.steps.size() * sizeof(PrefillStep);
  for (const RequestId& upstream : life.upstreams) bytes += sizeof(RequestId) + upstream.size();
  return static_cast<int64_t>(bytes);
}

const std::string& OwnerOf(const RequestLife& life) {
  return life.outcome.tenant.empty() ? life.cache_domain : life.outcome.tenant;
}

}  // namespace

std::vector<PhaseSpan> SpansOf(const RequestLife& life, absl::Time now) {
  const absl::Time end = std::min(life.stages.ended, now);
  SpanBuilder spans(life, end);
  if (life.stages.prefilled == absl::InfiniteFuture()) {
    spans.Idle(std::min(life.stages.computing, end));
    spans.To(end, Phase::kPrefill);
    return spans.Take();
  }
  const absl::Time prefilled = life.stages.prefilled, computed = std::min(life.stages.computed, prefilled);
  for (const PrefillStep& step : life.steps) {
    spans.Step(std::min(prefilled - step.began, computed), std::min(prefilled - step.ended, computed), step);
  }
  spans.Idle(computed);
  spans.To(prefilled, Phase::kHandoff);
  if (life.outcome.prefill_only) spans.To(end, Phase::kPrefill);
  spans.To(life.stages.decoding, Phase::kDecodeQueue);
  spans.To(life.stages.first_token, Phase::kFirstStep);
  spans.To(end, Phase::kDecode, life.outcome.completion_tokens);
  return spans.Take();
}

void Timeline::Keep(RequestLife life) {
  BATON_CHECK(life.stages.over(), life.outcome.id);
  BATON_CHECK(lives_.empty() || lives_.back().life->stages.ended <= life.stages.ended, life.outcome.id);
  const std::string owner = OwnerOf(life);
  const absl::Time now = life.stages.ended;
  const int64_t bytes = std::max(BytesOf(life), limits_.bytes / limits_.requests);
  lives_.push_back({std::make_shared<const RequestLife>(std::move(life)), bytes});
  shares_[owner].lives.push_back(std::prev(lives_.end()));
  AddBytes(owner, bytes);
  DropOld(now);
}

Timeline::Lives Timeline::Find(std::string_view workflow, std::string_view cache_domain, absl::Time now) {
  DropOld(now);
  Lives found;
  for (const Kept& kept : lives_) {
    const RequestLife& life = *kept.life;
    if (life.workflow == workflow && life.cache_domain == cache_domain) found.push_back(kept.life);
  }
  return found;
}

Timeline::Lives Timeline::OfCacheDomain(std::string_view cache_domain, absl::Time now) {
  DropOld(now);
  Lives found;
  for (const Kept& kept : lives_) {
    if (kept.life->cache_domain == cache_domain) found.push_back(kept.life);
  }
  return found;
}

void Timeline::DropOld(absl::Time now) {
  while (!lives_.empty() && lives_.front().life->stages.ended + limits_.age <= now) {
    DropOldestOf(OwnerOf(*lives_.front().life));
  }
  while (bytes_ > limits_.bytes) DropOldestOf(std::string(largest_.rbegin()->second));
}

void Timeline::DropOldestOf(const std::string& owner) {
  Share& share = shares_.at(owner);
  const Order::iterator oldest = share.lives.front();
  share.lives.pop_front();
  AddBytes(owner, -oldest->bytes);
  lives_.erase(oldest);
}

void Timeline::AddBytes(const std::string& owner, int64_t bytes) {
  Share& share = shares_.at(owner);
  largest_.erase({share.bytes, owner});
  share.bytes += bytes;
  bytes_ += bytes;
  if (share.lives.empty()) {
    shares_.erase(owner);
  } else {
    largest_.insert({share.bytes, owner});
  }
}

void Timeline::CheckInvariants() const {
  size_t lives = 0;
  int64_t bytes = 0;
  for (const auto& [owner, share] : shares_) {
    lives += share.lives.size();
    bytes += share.bytes;
    BATON_CHECK(!share.lives.empty() && largest_.contains({share.bytes, owner}), owner);
  }
  BATON_CHECK(lives == lives_.size() && bytes == bytes_ && bytes <= limits_.bytes && largest_.size() == shares_.size(),
              "the counts of ended requests are wrong");
}

}  // namespace baton
