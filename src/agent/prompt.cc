#include "agent/prompt.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace baton {

Prompt::Prompt(const PromptSpec& spec) : spec_(&spec) {
  for (size_t i = 0; i < spec_->segments.size(); ++i) {
    if (std::holds_alternative<Reference>(spec_->segments[i])) references_.push_back({.segment = i, .replaced = {}});
  }
  uses_ = spec_->first > 0 ? static_cast<size_t>(spec_->first) : references_.size();
  BATON_CHECK(uses_ <= references_.size(), "the prompt uses more outputs than it refers to");
}

const Reference& Prompt::reference(size_t index) const {
  return std::get<Reference>(spec_->segments[references_[index].segment]);
}

void Prompt::Settle(size_t index) {
  State& state = references_[index];
  BATON_CHECK(!state.settled, "the reference is settled already");
  state.settled = true;
  used_.push_back(index);
  if (used_.size() < uses_) return;
  for (size_t i = 0; i < references_.size(); ++i) {
    if (!references_[i].settled) Discard(i);
  }
}

void Prompt::Discard(size_t index) {
  State& state = references_[index];
  BATON_CHECK(!state.settled && may_discard(), "the prompt needs the reference");
  state.settled = true;
  state.replaced.emplace();
  discarded_.push_back(index);
}

bool Prompt::Replace(size_t index, std::vector<TokenId> tokens) {
  const bool restarts = Rewind(index);
  Settle(index);
  references_[index].replaced = std::move(tokens);
  return restarts;
}

bool Prompt::Rewind(size_t index) {
  if (waits_for() != index || taken_ == 0) return false;
  at_ = position_ = taken_ = 0;
  given_ = 0;
  return true;
}

void Prompt::Cut(size_t index, std::vector<TokenId> tokens) {
  Settle(index);
  references_[index].replaced = std::move(tokens);
}

std::optional<size_t> Prompt::Source(size_t position) const {
  if (spec_->join == Join::kOrder) {
    if (!references_[position].settled && may_discard()) return std::nullopt;
    return position;
  }
  if (position < used_.size()) return used_[position];
  const size_t settled = used_.size() + discarded_.size();
  if (settled == references_.size()) return discarded_[position - used_.size()];
  if (settled + 1 < references_.size()) return std::nullopt;
  // This position belongs to the only reference that is not settled. The prompt needs it: otherwise
  // it would be discarded.
  return std::ranges::find(references_, false, &State::settled) - references_.begin();
}

std::optional<size_t> Prompt::waits_for() const { return complete() ? std::nullopt : Source(position_); }

std::vector<TokenId> Prompt::Take(OutputOf output, AgentOf agent) {
  std::vector<TokenId> tokens;
  for (; at_ < spec_->segments.size(); ++at_, taken_ = 0) {
    if (given_ + std::ssize(tokens) > spec_->most_tokens) break;
    if (const auto* text = std::get_if<std::vector<TokenId>>(&spec_->segments[at_])) {
      tokens.insert(tokens.end(), text->begin(), text->end());
      continue;
    }
    if (!TakeOutput(std::get<Reference>(spec_->segments[at_]), output, agent, tokens)) break;
    ++position_;
  }
  given_ += static_cast<int64_t>(tokens.size());
  return tokens;
}

// Appends the new tokens of the reference at this position and of its part group. Returns false if
// more tokens may follow.
bool Prompt::TakeOutput(const Reference& place, OutputOf output, AgentOf agent, std::vector<TokenId>& tokens) {
  const std::optional<size_t> source = Source(position_);
  if (!source) return false;
  const auto add_label = [&](const std::vector<LabelPart>& label) {
    for (const LabelPart& part : label) {
      const auto* text = std::get_if<std::vector<TokenId>>(&part);
      const auto ids =
          text != nullptr ? *text : spec_->tokenizer->Encode(agent(*source), Tokenizer::SpecialTokens::kAsText);
      tokens.insert(tokens.end(), ids.begin(), ids.end());
    }
  };
  const State& state = references_[*source];
  const int64_t others = given_ + std::ssize(tokens) - static_cast<int64_t>(taken_);
  const int64_t most = spec_->most_tokens - others;
  const auto [made, at_least] =
      state.replaced ? Output::Tokens{*state.replaced, std::ssize(*state.replaced)} : output(*source, most);
  if (at_least > most) {
    at_least_ = others + at_least;
    return false;
  }
  BATON_CHECK(made.size() >= taken_, "an output has fewer tokens than before");
  // A group without a token of its output may still vanish.
  if (taken_ == 0 && !made.empty()) add_label(place.before);
  tokens.insert(tokens.end(), made.begin() + static_cast<std::ptrdiff_t>(taken_), made.end());
  taken_ = made.size();
  if (state.settled && !made.empty()) add_label(place.after);
  return state.settled;
}

}  // namespace baton
