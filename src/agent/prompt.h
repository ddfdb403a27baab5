// A prompt as a list of segments, some of which are other requests' outputs, put together as these come.
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
  kPartial,     // what has come is taken as if it were all
  kSubstitute,  // another text takes its place
};

struct Reference {
  RequestId upstream{};  // ScopedId; until Request is made of a ClientRequest, the client's name for it
  // It may be submitted later than the prompt that refers to it.
  bool announced = false;
  OnFailure on_failure = OnFailure::kAbort;
  std::vector<TokenId> substitute{};
  // From the submission of the prompt; an output that is not complete by then has failed for this reference.
  absl::Duration timeout = absl::InfiniteDuration();
};

using PromptSegment = std::variant<std::vector<TokenId>, Reference>;

enum class Join {
  kOrder,  // each output stands where its reference does
  // The outputs fill the places of the references in the order in which they are complete. The last one's place is
  // known as soon as all others are.
  kArrival,
};

struct PromptSpec {
  std::vector<PromptSegment> segments{};
  Join join = Join::kOrder;
  const Tokenizer* tokenizer = nullptr;  // of the model that reads the prompt and writes the output; outlives the graph
  int64_t most_tokens = 0;               // longer is refused; of one that is, no more is put together than shows it
};

// What a prompt needs to know of an output; empty while the upstream has not been submitted.
struct OutputView {
  std::span<const TokenId> tokens{};  // those that nothing takes back
  bool complete = false;
};

// A token is given out once its final index is known: position-stable or nothing (design idea 3).
class Prompt {
 public:
  explicit Prompt(const PromptSpec& spec);  // REQUIRES: the spec outlives it, unchanged

  const PromptSpec& spec() const { return *spec_; }
  size_t references() const { return references_.size(); }
  const Reference& reference(size_t index) const;
  bool settled(size_t index) const { return references_[index].settled; }

  // The reference's output is complete; its place is known now under Join::kArrival.
  void Settle(size_t index);
  // Instead of the output these tokens stand there. Settles it. True: some of the output has been given out, so the
  // prompt begins anew: all that Take has returned is void.
  bool Replace(size_t index, std::vector<TokenId> tokens);
  // What has come of the output is taken for all of it; `tokens` begins with what was given out. Settles it.
  void Cut(size_t index, std::vector<TokenId> tokens);

  // The reference that holds the prompt up; none: it is complete, or under kArrival waits for any of several.
  std::optional<size_t> waits_for() const;
  // The tokens that are stable now and were not returned before. `output` gives the output of a
  // reference.
  std::vector<TokenId> Take(absl::FunctionRef<OutputView(size_t reference)> output);
  bool complete() const { return at_ == spec_->segments.size(); }
  int64_t given() const { return given_; }  // tokens since the beginning

 private:
  struct State {
    size_t segment = 0;
    bool settled = false;
    std::optional<std::vector<TokenId>> replaced;
  };
  // Which reference's output stands at the place of this one; none: not known yet.
  std::optional<size_t> Source(size_t place) const;

  const PromptSpec* spec_;
  std::vector<State> references_;
  std::vector<size_t> arrivals_;  // settled references, in order
  size_t at_ = 0;                 // segments [0, at_) are given out
  size_t place_ = 0;              // references among them
  size_t taken_ = 0;              // tokens given out of the output at at_
  int64_t given_ = 0;
};

}  // namespace baton
