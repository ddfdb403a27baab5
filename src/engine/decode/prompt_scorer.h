// The prompts whose tokens' log probabilities requests want. A decode worker computes such a prompt
// itself, in chunks beside the sequences of its steps (docs/design/decode_steps.md).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "engine/decode/scheduler.h"
#include "engine/decode/scoring_share.h"
#include "kv/block_table.h"
#include "model/batch.h"
#include "model/sampler.h"
#include "request/answers.h"
#include "request/request_spec.h"
#include "request/virtual_times.h"

namespace baton {

// Chooses the chunks of each step, and collects the log probabilities.
//
// The tenant that has computed the fewest tokens comes first (VirtualTimes). SequenceId orders the
// prompts of one tenant. Each prompt holds blocks for all of its KV from the beginning, so it never
// waits for blocks, and it ends.
//
// Not thread-safe, except that the rows of a step may be scored on several threads.
class PromptScorer {
 public:
  // One row of logits: the one from which a token of a prompt follows.
  struct Row {
    TokenLogprobs* result = nullptr;
    TokenId token = 0;
    int32_t top = 0;
    absl::Status status{};
    void Score(std::span<const float> logits, SamplerScratch& scratch);
  };
  struct Plan {
    std::vector<SequenceId> prompts;
    std::vector<SequenceSlice> slices;  // one for each of `prompts`
    std::vector<Row> rows;              // of all slices, in order
  };
  // A prompt that has ended.
  struct Ended {
    SequenceId id;
    absl::Status status;  // OK: all of the prompt's KV is in the blocks
    BlockTable blocks;
    PromptLogprobs prompt;
  };

  explicit PromptScorer(ScoringLimits limits) : share_(limits) {}

  // Adds a prompt. Its steps compute KV of all tokens but the last. They compute the log
  // probabilities of the client's prompt too, unless the spec has output already. REQUIRES:
  // `blocks` is for these KV tokens, of which there is at least one. `spec` outlives the prompt.
  SequenceId Add(const RequestSpec& spec, absl::Time queue_order, BlockTable blocks, int64_t growth_blocks);
  // Ends a prompt. Returns false if the running step has it; FinishStep then returns it.
  bool Cancel(const SequenceId& id);

  // Plans the chunks of a step with this many sequences. The plan is valid until FinishStep.
  // REQUIRES: no step is running.
  Plan& BeginStep(int64_t sequences);
  // Ends a step, also one without prompts, and returns the prompts that end with it. `forward` is
  // the status of the step. If it is an error, all prompts of the step end with it.
  std::vector<Ended> FinishStep(const absl::Status& forward, int64_t sequences, absl::Duration took);

  bool empty() const { return prompts_.empty(); }
  int64_t size() const { return std::ssize(prompts_); }
  // Blocks that all prompts are expected to need beyond their blocks.
  int64_t growth_blocks() const { return growth_blocks_; }
  int64_t tokens_computed() const { return tokens_computed_; }  // since the start

 private:
  struct Prompt {
    const RequestSpec* spec = nullptr;
    BlockTable blocks;
    PromptLogprobs result;
    int64_t growth_blocks = 0;
    int32_t computed = 0;  // tokens with KV
    int32_t in_step = 0;   // further tokens that the running step computes
    bool cancelled = false;
    int32_t kv_tokens() const { return static_cast<int32_t>(spec->tokens.size()) - 1; }
  };
  using Prompts = std::map<SequenceId, Prompt>;
  struct Tenant {
    int64_t time = 0;  // virtual time, with the tokens of this step
    std::vector<Prompts::iterator> prompts{};
    size_t planned = 0;  // the number of first `prompts` that the step has
  };

  std::map<std::string, Tenant> TenantsNow();
  void AddChunk(Prompts::iterator it, int32_t tokens);
  Ended Extract(Prompts::iterator it, absl::Status status);

  ScoringShare share_;
  Prompts prompts_;
  Plan plan_;
  VirtualTimes times_;
  std::map<std::string, int64_t> prompts_of_;  // by tenant
  uint64_t added_ = 0;
  int64_t growth_blocks_ = 0;
  int64_t tokens_computed_ = 0;
};

}  // namespace baton
