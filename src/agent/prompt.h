// A prompt as a list of segments, some of which are outputs of other requests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "text/tokenizer.h"

namespace baton {

enum class OnFailure {
  kAbort,       // the prompt fails too
  kPartial,     // the output so far counts as complete
  kSubstitute,  // `substitute` replaces the output
};

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
  std::string path = "output_of";  // of this reference in the client's request, for errors
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
  // Tokenizer of the model that reads the prompt and writes the output. Must outlive the graph.
  const Tokenizer* tokenizer = nullptr;
  // Upper bound on the tokens. A longer prompt is refused, and is assembled only far enough to
  // exceed the bound.
  int64_t most_tokens = 0;
  std::string most_tokens_reason{};  // follows the number in errors: " (context length 64 of 'm')"
  std::string path = "prompt";       // of the prompt in the client's request, for errors
};

// The tokens of an output so far. Empty until the upstream request is submitted.
struct OutputView {
  std::span<const TokenId> tokens{};  // no later event can remove them
  bool complete = false;
};

// Assembles a prompt. Returns a token as soon as the token's final index is known (design idea 3).
class Prompt {
 public:
  // REQUIRES: `spec` outlives this, unchanged.
  explicit Prompt(const PromptSpec& spec);

  const PromptSpec& spec() const { return *spec_; }
  size_t references() const { return references_.size(); }
  const Reference& reference(size_t index) const;
  bool settled(size_t index) const { return references_[index].settled; }

  // Records that the reference's output is complete. Under Join::kArrival this fixes its position.
  // REQUIRES: the reference is not settled.
  void Settle(size_t index);
  // Settles the reference with these tokens in place of its output. Returns true if Take has
  // already returned a part of the output. Then all tokens that Take has returned are void, and the
  // prompt starts again.
  bool Replace(size_t index, std::vector<TokenId> tokens);
  // Settles the reference with the output so far. `tokens` begins with the tokens of the output
  // that Take has returned.
  void Cut(size_t index, std::vector<TokenId> tokens);

  // Returns the reference that the prompt waits for. Returns nullopt if the prompt is complete, or
  // if it waits for any of several references under kArrival.
  std::optional<size_t> waits_for() const;
  // Returns the tokens that have become final since the last call. `output` returns the output of a
  // reference.
  std::vector<TokenId> Take(absl::FunctionRef<OutputView(size_t reference)> output);
  bool complete() const { return at_ == spec_->segments.size(); }
  int64_t given() const { return given_; }  // tokens since the prompt started, or started again

 private:
  struct State {
    size_t segment = 0;
    bool settled = false;
    std::optional<std::vector<TokenId>> replaced;
  };
  // Returns the index of the reference whose output replaces the reference at `position`. Returns
  // nullopt if that reference is not fixed yet.
  std::optional<size_t> Source(size_t position) const;

  const PromptSpec* spec_;
  std::vector<State> references_;
  std::vector<size_t> arrivals_;  // settled references, in order of settling
  size_t at_ = 0;                 // Take has returned segments [0, at_)
  size_t position_ = 0;           // references among segments [0, at_)
  size_t taken_ = 0;              // tokens returned of the output at at_
  int64_t given_ = 0;
};

}  // namespace baton
