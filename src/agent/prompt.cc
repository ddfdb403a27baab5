#include "agent/prompt.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace baton {

Prompt::Prompt(const PromptSpec& spec) : spec_(&spec) {
  for (size_t i = 0; i < spec_->segments.size(); ++i) {
    if (std::holds_alternative<Reference>(spec_->segments[i])) references_.push_back({.segment = i, .replaced = {}});
  }
}

const Reference& Prompt::reference(size_t index) const {
  return std::get<Reference>(spec_->segments[references_[index].segment]);
}

void Prompt::Settle(size_t index) {
  State& state = references_[index];
  BATON_CHECK(!state.settled, "the reference is settled already");
  state.settled = true;
  arrivals_.push_back(index);
}

bool Prompt::Replace(size_t index, std::vector<TokenId> tokens) {
  const bool restarts = waits_for() == index && taken_ > 0;
  Settle(index);
  references_[index].replaced = std::move(tokens);
  if (restarts) {
    at_ = position_ = taken_ = 0;
    given_ = 0;
  }
  return restarts;
}

void Prompt::Cut(size_t index, std::vector<TokenId> tokens) {
  Settle(index);
  references_[index].replaced = std::move(tokens);
}

std::optional<size_t> Prompt::Source(size_t position) const {
  if (spec_->join == Join::kOrder) return position;
  if (position < arrivals_.size()) return arrivals_[position];
  if (arrivals_.size() + 1 != references_.size()) return std::nullopt;
  // The last position belongs to the only reference that is not settled.
  return std::ranges::find(references_, false, &State::settled) - references_.begin();
}

std::optional<size_t> Prompt::waits_for() const { return complete() ? std::nullopt : Source(position_); }

std::vector<TokenId> Prompt::Take(absl::FunctionRef<OutputView(size_t reference)> output) {
  std::vector<TokenId> tokens;
  for (; at_ < spec_->segments.size(); ++at_, taken_ = 0) {
    if (given_ + std::ssize(tokens) > spec_->most_tokens) break;
    if (const auto* text = std::get_if<std::vector<TokenId>>(&spec_->segments[at_])) {
      tokens.insert(tokens.end(), text->begin(), text->end());
      continue;
    }
    const std::optional<size_t> source = Source(position_);
    if (!source) break;
    const State& state = references_[*source];
    if (state.replaced) {
      tokens.insert(tokens.end(), state.replaced->begin() + static_cast<std::ptrdiff_t>(taken_), state.replaced->end());
    } else {
      const OutputView view = output(*source);
      BATON_CHECK(view.tokens.size() >= taken_, "an output has fewer tokens than before");
      tokens.insert(tokens.end(), view.tokens.begin() + static_cast<std::ptrdiff_t>(taken_), view.tokens.end());
      taken_ = view.tokens.size();
      if (!state.settled) break;
    }
    ++position_;
  }
  given_ += static_cast<int64_t>(tokens.size());
  return tokens;
}

}  // namespace baton
