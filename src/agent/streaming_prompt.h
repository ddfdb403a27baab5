// A prompt some of whose references are unfinished, and the outputs that it refers to.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/agent_output.h"
#include "agent/kept_bytes.h"
#include "agent/prompt.h"
#include "base/ids.h"

namespace baton {

// An output that is not complete.
struct AwaitedOutput {
  RequestId id{};          // the client's name of its request
  bool announced = false;  // true if no client has submitted the request
  // Why the last submission failed or was refused, if another one is awaited: code and the start of
  // the message. Empty: there was none.
  std::string failure{};
  int32_t failed_attempt = 0;   // the number of the attempt that failed; 0: it was refused
  absl::Duration retry_wait{};  // from the failure or refusal until the wait ends
};
// The incomplete outputs that a prompt refers to: the first of them, and the number of all.
struct AwaitedOutputs {
  std::vector<AwaitedOutput> first{};
  int64_t count = 0;
};

struct StreamingPrompt {
  Prompt prompt;
  KeptBytes* kept = nullptr;  // of the graph, never null
  std::vector<TokenId> unreported{};
  std::vector<absl::Time> deadlines{};  // by reference
  // By reference. Null if the graph has dropped the output; the reference is settled then.
  std::vector<AgentOutput*> sources{};
  // By reference. The agent name of its output when the reference was settled.
  std::vector<std::string> settled_agents{};
  // By reference. Whether it counts in AgentOutput::needs.
  std::vector<bool> needs{};
  // The indexes of the references to each output.
  absl::flat_hash_map<AgentOutput*, std::vector<size_t>> upstreams{};

  // Returns whether the prompt waits for the output.
  bool WaitsFor(AgentOutput& output) const;
  // Returns the outputs that the prompt still needs, in the order of its references. It names at
  // most `most` of them, by the client's names.
  AwaitedOutputs Awaited(size_t most) const;
  // Whether the prompt may read the output. REQUIRES: the prompt refers to it.
  bool Reads(AgentOutput& output) const;
  // Removes an output that is about to be deleted. REQUIRES: all references to it are settled.
  void Unlink(AgentOutput& output);

  // Settles a reference after its output has ended or its timeout has passed. This may discard
  // other references. Returns true if all tokens that Next returned are void. Returns an error if
  // the prompt fails. REQUIRES: the reference is not settled.
  absl::StatusOr<bool> Settle(size_t index, const absl::Status& status);
  // Voids what the prompt took of an output that is not settled. Returns as Settle.
  bool Rewind(AgentOutput& output);

  // Tokens that follow those returned before. If `complete`, they are the last.
  struct Tokens {
    std::vector<TokenId> tokens{};
    bool complete = false;
  };
  // Returns the tokens to report now. There may be none. Returns an error if the prompt is empty or
  // too long.
  absl::StatusOr<Tokens> Next();

 private:
  // Returns the name that stands for AgentName.
  std::string AgentOf(size_t index) const;
  // Returns the tokens of a reference's output, as Output::TokensFor.
  Output::Tokens Read(size_t index, int64_t most) const;
  absl::Status TooLong(int64_t at_least) const;
};

}  // namespace baton
