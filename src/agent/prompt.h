// A prompt as a list of segments, some of which are outputs of other requests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "agent/output.h"
#include "base/ids.h"
#include "text/tokenizer.h"

namespace baton {

enum class OnFailure {
  kAbort,       // the prompt fails too
  kPartial,     // the output so far counts as complete
  kSubstitute,  // `substitute` replaces the output
};

// Stands for the name of the agent whose output a part group has. The name is the request's id if
// the request has no agent name. If the request is submitted several times, the name is that of the
// submission whose output the prompt uses.
struct AgentName {};
// A part of a part group, beside its output.
using LabelPart = std::variant<std::vector<TokenId>, AgentName>;

struct Reference {
  // A ScopedId. In a ClientRequest that ScopePrompt has not seen, the client's name for the
  // request.
  RequestId upstream{};
  // True if the upstream request may be submitted later than this prompt.
  bool announced = false;
  OnFailure on_failure = OnFailure::kAbort;
  std::vector<TokenId> substitute{};
  // Counted from the submission of the prompt. An output that is not complete in time counts as
  // failed for this reference.
  absl::Duration timeout = absl::InfiniteDuration();
  // Whether the prompt receives the thoughts of the output too, and not only the answer.
  bool with_reasoning = false;
  std::string path = "output_of";  // of this reference in the client's request, for errors
  // The other parts of the reference's part group. They belong to the position of the reference,
  // not to the output. They are left out if the output at this position is discarded or empty.
  std::vector<LabelPart> before{}, after{};
};

using PromptSegment = std::variant<std::vector<TokenId>, Reference>;

enum class Join {
  kOrder,  // each output replaces its own reference
  // The outputs replace the references in the order in which they complete. The position of the
  // last output is fixed as soon as all other outputs are complete.
  kArrival,
};

struct PromptSpec {
  std::vector<PromptSegment> segments{};
  Join join = Join::kOrder;
  // The number of outputs that the prompt uses: those that are complete first. The others are
  // discarded. 0: all. At most the number of references.
  int32_t first = 0;
  // Tokenizer of the model that reads the prompt and writes the output. Must outlive the graph.
  const Tokenizer* tokenizer = nullptr;
  // Upper bound on the tokens. A longer prompt is refused, and is assembled only far enough to
  // exceed the bound.
  int64_t most_tokens = 0;
  std::string most_tokens_reason{};  // follows the number in errors: " (context length 64 of 'm')"
  std::string path = "prompt";       // of the prompt in the client's request, for errors
};

// Assembles a prompt. Returns a token as soon as the token's final index is known (design idea 3).
//
// Settle, Replace and Cut use a reference: its output counts in PromptSpec::first. Once enough
// references are used, all that are not settled are discarded.
class Prompt {
 public:
  // REQUIRES: `spec` outlives this, unchanged.
  explicit Prompt(const PromptSpec& spec);

  const PromptSpec& spec() const { return *spec_; }
  size_t references() const { return references_.size(); }
  const Reference& reference(size_t index) const;
  bool settled(size_t index) const { return references_[index].settled; }
  // Whether Take may read the output. It never does once other tokens or a copy replace it.
  bool reads(size_t index) const { return !references_[index].replaced; }

  // Records that the reference's output is complete. Under Join::kArrival this fixes its position.
  // REQUIRES: the reference is not settled.
  void Settle(size_t index);
  // Settles the reference with these tokens in place of its output. Returns true if Take has
  // already returned a part of the output. Then all tokens that Take has returned are void, and the
  // prompt starts again.
  bool Replace(size_t index, std::vector<TokenId> tokens);
  // Voids the output so far, because another attempt of its request generates it again. Returns
  // true in the case of Replace. REQUIRES: the reference is not settled.
  bool Rewind(size_t index);
  // Settles the reference with the output so far. `tokens` begins with the tokens of the output
  // that Take has returned.
  void Cut(size_t index, std::vector<TokenId> tokens);
  // Whether a reference that is not settled may be discarded. Take returns no token of an output
  // that may be discarded.
  bool may_discard() const { return references_.size() - discarded_.size() > uses_; }
  // Settles the reference without an output. REQUIRES: may_discard().
  void Discard(size_t index);

  // Returns the reference that the prompt waits for. Returns nullopt if the prompt is complete, or
  // if it waits for any of several references.
  std::optional<size_t> waits_for() const;
  // The tokens of a reference's output so far. No later event can remove them. Empty until the
  // upstream request is submitted. `ids` may lack tokens if the output has more than `most`.
  using OutputOf = absl::FunctionRef<Output::Tokens(size_t reference, int64_t most)>;
  // The name of the agent that writes the reference's output. It does not change once the output
  // has tokens.
  using AgentOf = absl::FunctionRef<std::string(size_t reference)>;
  // Returns the tokens that have become final since the last call.
  std::vector<TokenId> Take(OutputOf output, AgentOf agent);
  bool complete() const { return at_ == spec_->segments.size(); }
  int64_t given() const { return given_; }  // tokens since the prompt started, or started again
  // Lower bound on the tokens of the whole prompt. Beyond the limit, further calls of Take return
  // no token.
  int64_t at_least() const { return std::max(given_, at_least_); }

 private:
  struct State {
    size_t segment = 0;
    bool settled = false;
    std::optional<std::vector<TokenId>> replaced;
  };
  // Returns the index of the reference whose output replaces the reference at `position`. Returns
  // nullopt if that reference is not fixed yet.
  std::optional<size_t> Source(size_t position) const;
  bool TakeOutput(const Reference& place, OutputOf output, AgentOf agent, std::vector<TokenId>& tokens);

  const PromptSpec* spec_;
  std::vector<State> references_;
  size_t uses_ = 0;                // number of references that the prompt uses
  std::vector<size_t> used_;       // settled references with an output, in order of settling
  std::vector<size_t> discarded_;  // settled references without an output
  size_t at_ = 0;                  // Take has returned segments [0, at_)
  size_t position_ = 0;            // references among segments [0, at_)
  size_t taken_ = 0;               // tokens returned of the output at at_
  int64_t given_ = 0;
  int64_t at_least_ = 0;
};

}  // namespace baton
