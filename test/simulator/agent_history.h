// The attempts of a random workflow, as clients saw them. The history computes the prompts that a
// request can have had, and whether it may have failed as it did. It resolves references from the
// times and outputs of the attempts, and not with the code of the router.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "agent/prompt.h"
#include "base/ids.h"
#include "simulator/cluster.h"

namespace baton {

// A submission of a request or value.
struct Attempt {
  absl::Time submitted;
  absl::Status status{};
  absl::Time ended = absl::InfiniteFuture();
  std::vector<TokenId> shown{};  // tokens of the output
  bool refused = false;
  size_t rank = SIZE_MAX;  // position among all ends
  bool over() const { return ended != absl::InfiniteFuture(); }
};

// The prompts that a request can have had.
struct ExpectedPrompts {
  std::vector<std::vector<TokenId>> prompts{};
  bool may_fail = false;  // because an upstream request failed
};

class AgentHistory {
 public:
  // Exceeds the time of a message from a client to the router and back.
  static constexpr absl::Duration kSlack = absl::Microseconds(300);
  // How long a prompt waits for another attempt of a failed request.
  static constexpr absl::Duration kRetryWait = absl::Seconds(11);

  // All requests of the workflow, which may not be submitted yet. Valid until the next call of Add.
  const std::vector<SimulatedRequest>& requests() const { return requests_; }
  SimulatedRequest& Add(SimulatedRequest request) { return requests_.emplace_back(std::move(request)); }

  // The attempts of a request or value, in order.
  std::vector<Attempt>& AttemptsOf(const RequestId& id) { return attempts_[id]; }
  void End(Attempt& attempt, const absl::Status& status, absl::Time now);

  // Returns whether the prompt of a request depends on when this output was complete. The history
  // then supports one attempt only, because it does not show for which one the prompt waited.
  bool IsReadInAnyOrder(const RequestId& id) const;
  // The prompts of the request's last attempt, which was submitted at this time.
  ExpectedPrompts PromptsOf(const SimulatedRequest& request, absl::Time submitted) const;
  // Returns whether a request that failed because of an output ended when it had to: with its
  // upstream request, after the wait for another attempt, or at a timeout.
  bool IsTimely(const SimulatedRequest& request, absl::Time submitted, absl::Time ended) const;
  // Returns whether requests referred to the output, and none may have needed it when its request
  // ended.
  bool WasUnneeded(const RequestId& id) const;
  // Returns whether the request refers to its own output, directly or through other requests.
  bool IsInCycle(const RequestId& id) const;
  // Describes all attempts, for failures.
  std::string Text() const;

 private:
  // For each position of a reference in the prompt, the index of the reference whose output stands
  // there. Unset: none does.
  using Sources = std::vector<std::optional<size_t>>;
  using Candidates = std::vector<std::optional<std::vector<TokenId>>>;

  const Attempt& LastOf(const RequestId& id) const;
  std::vector<Attempt> AttemptsFor(const Reference& reference, absl::Time submitted) const;
  Candidates CandidatesFor(const Reference& reference, absl::Time submitted) const;
  std::vector<std::vector<size_t>> Orders(std::span<const Reference> references, absl::Time submitted) const;
  std::vector<Sources> SourcesOf(const SimulatedRequest& request, std::span<const Reference> references,
                                 absl::Time submitted) const;
  bool Counts(const Reference& reference) const;
  absl::Time EnoughAt(const SimulatedRequest& request, const RequestId& without) const;

  std::vector<SimulatedRequest> requests_;
  std::map<RequestId, std::vector<Attempt>> attempts_;
  size_t ends_ = 0;  // of all attempts
};

}  // namespace baton
