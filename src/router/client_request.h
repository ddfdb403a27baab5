// What a client asks for. The reader that makes a ClientRequest has checked it, so all other parts may trust it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "agent/prompt.h"
#include "agent/scoped_id.h"
#include "base/ids.h"
#include "model/served_model.h"
#include "request/request_spec.h"
#include "router/placement.h"
#include "router/workload.h"

namespace baton {

// The context that a prompt continues.
struct ContextUse {
  std::string id{};                 // empty: none
  std::optional<int32_t> length{};  // tokens that the client believes it to have
  std::vector<TokenId> prefix{};    // what the tokenizer puts before the prompt, if the context is new
  // Known to the router:
  int32_t tokens = 0;      // of the prompt that are the context's
  WorkerAddress holder{};  // the link of the prefill worker that computed them; empty: none
};

struct ClientRequest {
  RequestId id{};
  const ServedModel* served = nullptr;  // outlives the request
  std::string session{};
  // Of n >= 1 tokens once the prompt is complete; n + sampling.max_tokens <= context. Its traceparent is that of the
  // call by which the request came. A job gets its arrival_offset when it is sent.
  RequestSpec spec{};
  // Of a prompt that refers to outputs, else empty. The router appends to spec.tokens as the outputs come.
  PromptSpec prompt{};
  ContextUse context{};             // its tokens come before the others; the router puts them there
  bool has_max_tokens = false;      // false: the router chooses sampling.max_tokens
  std::string workflow{}, agent{};  // empty: none
  int32_t expected_tokens = 0;      // of the output; 0: not known
  bool prefill_only = false;        // also a Generate of no tokens
  absl::Time deadline = absl::InfiniteFuture();
  std::string call{};  // the id of the call by which the request came, for logs; empty: it has none
};

inline constexpr int32_t kDefaultMaxTokens = 512;

// The same name under two salts is two sessions. No name has a line's end. Empty: none.
std::string ScopedSession(const ClientRequest& request);

// What a prompt may be at most.
struct Room {
  const ServedModel& model;
  int32_t reserve;  // tokens of the context that must stay free
  int64_t limit() const { return int64_t{model.context} - reserve; }

  absl::Status Check(int64_t tokens, std::string_view at_least = "") const;
  // Before text is tokenised, which takes time: whether it could fit after `before` tokens.
  absl::Status CheckText(std::string_view text, int64_t before) const;
};

// Whether what the client asked for can fit: INVALID_ARGUMENT if what is known of the prompt leaves too little.
absl::Status CheckMaxTokens(const ClientRequest& request);
// Once the prompt is complete: the default, or INVALID_ARGUMENT if what the client asked for does not fit.
absl::Status SettleMaxTokens(ClientRequest& request);

// Replaces the client's names in the references by ScopedIds, and sets the tokenizer and the limit of the model.
void ScopePrompt(ClientRequest& request);
// Placement: takes time, for it hashes the prompt. REQUIRES: ScopePrompt, if the prompt is not complete.
Route ToRoute(const ClientRequest& request);
// For Workload. `uncached`: of its tokens so far, those to compute.
Workload::Lengths LengthsOf(const ClientRequest& request, int64_t uncached);
// The client's names of the requests whose outputs it waits for, each once. REQUIRES: ScopePrompt comes later.
std::vector<RequestId> UpstreamsOf(const ClientRequest& request);

}  // namespace baton
