#include "engine/decode/prompt_scorer.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/container/btree_map.h"
#include "base/check.h"
#include "model/token_logprobs.h"

namespace baton {

void PromptScorer::Row::Score(std::span<const float> logits, SamplerScratch& scratch) {
  absl::StatusOr<TokenLogprobs> logprobs = PromptLogprobsOf(logits, token, top, scratch);
  status = logprobs.status();
  if (logprobs.ok()) *result = *std::move(logprobs);
}

SequenceId PromptScorer::Add(const RequestSpec& spec, absl::Time queue_order, BlockTable blocks,
                             int64_t growth_blocks) {
  const SequenceId id{queue_order, ++added_};
  Prompt& prompt = prompts_[id];
  prompt.spec = &spec;
  prompt.blocks = std::move(blocks);
  prompt.growth_blocks = growth_blocks;
  BATON_CHECK(prompt.kv_tokens() >= 1 && std::ssize(prompt.blocks.ids()) == BlocksFor(prompt.kv_tokens()),
              "a prompt has blocks for all tokens but the last");
  if (spec.generated == 0) {
    prompt.result.tokens.assign(spec.tokens.begin(), spec.tokens.end());
    prompt.result.logprobs.resize(static_cast<size_t>(prompt.kv_tokens()));
  }
  growth_blocks_ += growth_blocks;
  if (++prompts_of_[spec.tenant] == 1) times_.BeginWait(spec.tenant);
  return id;
}

bool PromptScorer::Cancel(const SequenceId& id) {
  const auto it = prompts_.find(id);
  BATON_CHECK(it != prompts_.end(), "no such prompt");
  it->second.cancelled = true;
  if (it->second.in_step > 0) return false;
  Extract(it, absl::OkStatus());
  return true;
}

PromptScorer::Ended PromptScorer::Extract(Prompts::iterator it, absl::Status status) {
  Prompt& prompt = it->second;
  const auto of_tenant = prompts_of_.find(prompt.spec->tenant);
  if (--of_tenant->second == 0) {
    times_.EndWait(of_tenant->first);
    prompts_of_.erase(of_tenant);
  }
  growth_blocks_ -= prompt.growth_blocks;
  Ended ended{it->first, std::move(status), std::move(prompt.blocks), std::move(prompt.result)};
  prompts_.erase(it);
  return ended;
}

std::map<std::string, PromptScorer::Tenant> PromptScorer::TenantsNow() {
  std::map<std::string, Tenant> tenants;
  for (const auto& [name, count] : prompts_of_) tenants[name].time = times_.TimeOf(name);
  for (auto it = prompts_.begin(); it != prompts_.end(); ++it) {
    tenants.at(it->second.spec->tenant).prompts.push_back(it);
  }
  return tenants;
}

PromptScorer::Plan& PromptScorer::BeginStep(int64_t sequences) {
  BATON_CHECK(plan_.prompts.empty(), "BeginStep while a step runs");
  if (prompts_.empty()) return plan_;
  std::map<std::string, Tenant> tenants = TenantsNow();
  absl::btree_map<std::string, int64_t> charged;
  for (int32_t left = share_.Tokens(sequences); left > 0 && !tenants.empty();) {
    const auto first = std::ranges::min_element(tenants, {}, [](const auto& entry) {
      const Tenant& tenant = entry.second;
      return std::tuple(tenant.time, tenant.prompts[tenant.planned]->first);
    });
    Tenant& tenant = first->second;
    const Prompts::iterator it = tenant.prompts[tenant.planned++];
    const int32_t tokens = std::min(left, it->second.kv_tokens() - it->second.computed);
    AddChunk(it, tokens);
    left -= tokens;
    tenant.time += tokens;
    charged[first->first] += tokens;
    if (tenant.planned == tenant.prompts.size()) tenants.erase(first);
  }
  times_.Charge(charged);
  return plan_;
}

void PromptScorer::AddChunk(Prompts::iterator it, int32_t tokens) {
  Prompt& prompt = it->second;
  const std::span<const TokenId> all(prompt.spec->tokens);
  const auto begin = static_cast<size_t>(prompt.computed);
  const bool scores = prompt.spec->generated == 0;
  prompt.in_step = tokens;
  plan_.prompts.push_back(it->first);
  plan_.slices.push_back({.tokens = all.subspan(begin, static_cast<size_t>(tokens)),
                          .start = prompt.computed,
                          .blocks = prompt.blocks.ids(),
                          .wants_logits = scores,
                          .all_logits = scores});
  if (!scores) return;
  for (size_t i = begin; i < begin + static_cast<size_t>(tokens); ++i) {
    plan_.rows.push_back({.result = &prompt.result.logprobs[i],
                          .token = all[i + 1],
                          .top = prompt.spec->sampling.prompt_logprobs.value_or(0)});
  }
}

std::vector<PromptScorer::Ended> PromptScorer::FinishStep(const absl::Status& forward, int64_t sequences,
                                                          absl::Duration took) {
  int64_t tokens = 0;
  for (const SequenceSlice& slice : plan_.slices) tokens += std::ssize(slice.tokens);
  if (forward.ok()) tokens_computed_ += tokens;
  if (forward.ok() && sequences > 0) share_.Add(sequences, tokens, took);
  std::vector<Ended> ended;
  auto row = plan_.rows.begin();
  for (const SequenceId& id : plan_.prompts) {
    const auto it = prompts_.find(id);
    Prompt& prompt = it->second;
    absl::Status status = forward;
    const int32_t rows = prompt.spec->generated == 0 ? prompt.in_step : 0;
    for (const auto end = row + rows; row != end; ++row) status.Update(row->status);
    prompt.computed += std::exchange(prompt.in_step, 0);
    const bool complete = prompt.computed == prompt.kv_tokens();
    if (!status.ok() || complete || prompt.cancelled) ended.push_back(Extract(it, std::move(status)));
  }
  plan_.prompts.clear();
  plan_.slices.clear();
  plan_.rows.clear();
  return ended;
}

}  // namespace baton
