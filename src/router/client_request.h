// A client's request. The reader that makes a ClientRequest has checked it, so all other code may
// trust its values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "agent/prompt.h"
#include "agent/scoped_id.h"
#include "base/ids.h"
#include "model/sampling_params.h"
#include "model/served_model.h"
#include "request/output_lengths.h"
#include "request/request_spec.h"
#include "router/placement.h"
#include "router/workload.h"
#include "tenants/workflows.h"

namespace baton {

// Upper bound on a request's time limit: a year.
inline constexpr int64_t kMaxTimeoutMs = int64_t{365} * 24 * 3600 * 1000;

// The context that a prompt continues.
struct ContextUse {
  std::string id{};                 // empty: none
  std::optional<int32_t> length{};  // tokens that the client expects in it
  // Tokens that the tokenizer puts before the prompt if the context is new.
  std::vector<TokenId> prefix{};
  // The prompt is a chat with all messages. It has the context's tokens already, and must begin
  // with them.
  bool is_within_prompt = false;
  // The router sets the other fields.
  std::vector<TokenId> expected{};  // the context's tokens, until such a prompt is complete
  int32_t tokens = 0;               // tokens of the prompt that belong to the context
  // Address, as configured at this router, of the prefill worker that prefilled these tokens. Empty
  // if there is none.
  WorkerAddress holder{};
};

// The paths at which a client sends the fields of a request. Errors about a field begin with its
// path. The defaults are those of baton.v1.GenerateRequest.
struct FieldPaths {
  std::string prompt{};  // the whole prompt; empty: `segments` or `messages`
  std::string segments = "segments.segments";
  std::string messages = "chat.messages";
  std::string parts = "parts";  // of a message
  std::string group_parts = "group.parts";
  std::string max_tokens = "sampling.max_tokens";
  std::string prompt_logprobs = "sampling.prompt_logprobs";
  SamplingName sampling = WireName;
};

// The terms of a client's API that its messages do not contain.
struct RequestForm {
  // Applies to a request without max_tokens, or what the prompt leaves of the context length if
  // that is less. 0: what the prompt leaves of the context length.
  int32_t default_max_tokens = 0;
  FieldPaths paths{};  // in a ClientRequest, `prompt` is set
};

struct ClientRequest {
  RequestId id{};
  // Whether the router has drawn the id. No prompt refers to the request before it is accepted.
  bool has_drawn_id = false;
  const ServedModel* served = nullptr;  // must outlive the request
  std::string session{};
  // Has n >= 1 tokens once the prompt is complete. n + sampling.max_tokens is at most the model's
  // context length. Its traceparent is that of the call that brought the request. The
  // arrival_offset is set in jobs only, when they are sent.
  RequestSpec spec{};
  // Segments of a prompt with references, else empty. The router appends to spec.tokens as outputs
  // grow.
  PromptSpec prompt{};
  // The tenant's max_requests; 0: no limit.
  int32_t most_requests = 0;
  // The router puts the context's tokens before the prompt's own.
  ContextUse context{};
  // False: SettleMaxTokens chooses sampling.max_tokens. It is 0 before.
  bool has_max_tokens = false;
  RequestForm form{.paths = {.prompt = "prompt"}};
  std::string workflow{}, agent{};  // empty: none
  WorkflowLimits workflow_limits{};
  // Expected tokens of the output, as the client stated it. 0: it stated nothing.
  int32_t expected_tokens = 0;
  // True also for a Generate request with max_tokens 0.
  bool prefill_only = false;
  // Whether the request goes on when no request needs its output.
  bool keep = false;
  // When the call arrived that brought the request.
  absl::Time received = absl::InfiniteFuture();
  absl::Time deadline = absl::InfiniteFuture();  // RouterCore::EndBy may set an earlier one
  // Id of the call that brought the request, for logs. Empty if the call has none.
  std::string call{};

  // Whether a decode worker computes the prompt, for its log probabilities. Such a prompt has no
  // references and no context, and no prefill worker gets it.
  bool scores() const { return spec.sampling.prompt_logprobs.has_value(); }
};

// Returns the session's name within the router. The same client name in two cache domains gives two
// sessions. Names have no line break. Empty if the request has no session.
std::string ScopedSession(const ClientRequest& request);

// The limit on a prompt's tokens.
struct PromptLimit {
  const ServedModel& model;
  // Tokens of the context length that the prompt must leave free.
  int32_t reserve;
  std::string_view path = "prompt";  // of the prompt, in errors
  int64_t limit() const { return int64_t{model.context} - reserve; }
  // Returns the text that follows the limit in errors: " (context length 64 of 'bytes')".
  std::string Reason() const;

  // Returns INVALID_ARGUMENT if `tokens` exceeds the limit. `at_least` precedes the number in the
  // message.
  absl::Status Check(int64_t tokens, std::string_view at_least = "") const;
  // Returns INVALID_ARGUMENT if `text` certainly does not fit after `before` tokens. Callers check
  // this before tokenization, which takes time.
  absl::Status CheckText(std::string_view text, int64_t before) const;
};

// Upper bound on the log probabilities of prompts in one call: for each token of a prompt, its own
// and those of the most likely tokens. It bounds the size of an answer.
inline constexpr int64_t kMaxPromptLogprobs = 262'144;
// Returns the number of log probabilities that the request wants of its prompt.
int64_t PromptLogprobsOf(const ClientRequest& request);
// Returns INVALID_ARGUMENT if `count` exceeds the bound, or if the request scores a prompt with
// references or a context. REQUIRES: the request scores its prompt.
absl::Status CheckScoring(const ClientRequest& request, int64_t count);

// Returns INVALID_ARGUMENT if the tokens of the prompt so far leave less than the client's
// max_tokens.
absl::Status CheckMaxTokens(const ClientRequest& request);
// Returns INVALID_ARGUMENT if min_tokens exceeds max_tokens, which must be the final value.
absl::Status CheckMinTokens(const ClientRequest& request);
// Sets the default of max_tokens. Returns INVALID_ARGUMENT if the client's value does not fit, or
// if min_tokens exceeds max_tokens. REQUIRES: the prompt is complete.
absl::Status SettleMaxTokens(ClientRequest& request);

// Replaces the client's names in references by ScopedIds. Sets the tokenizer, limit and path of the
// prompt. REQUIRES: not called before for this request.
void ScopePrompt(ClientRequest& request);
// Returns keys of the full blocks of `tokens`, for comparisons within this router. `tokens` are the
// beginning of the request's prompt, or all of it. `first` has keys of its first blocks, as far as
// the caller has them, and perhaps of later blocks. Hashes all other blocks, which takes time.
std::vector<BlockKey> RouterKeys(const ClientRequest& request, std::span<const TokenId> tokens,
                                 std::vector<BlockKey> first);
// Returns the route for placement, with RouterKeys of all tokens so far. REQUIRES: ScopePrompt was
// called if the prompt has references.
Route ToRoute(const ClientRequest& request, std::vector<BlockKey> first = {});
// Returns the upper bound on the output's tokens, as far as the prompt's length is known.
int64_t OutputLimit(const ClientRequest& request);
// Returns the value for spec.expected_tokens: the learned length, or the client's statement if that
// is larger. A client cannot reserve less memory or quota by a small statement.
int32_t ExpectedTokens(const ClientRequest& request, const OutputLengths& lengths);
OutputSource SourceOf(const ClientRequest& request);
// REQUIRES: the request has a workflow.
WorkflowKey WorkflowOf(const ClientRequest& request);
// Returns the lengths for Workload. `uncached` is how many of the tokens so far must be computed.
// REQUIRES: spec.expected_tokens is set.
Workload::Lengths LengthsOf(const ClientRequest& request, int64_t uncached);
// Returns the bytes that a prompt with references occupies until its request has a slot: its tokens
// so far, its segments, its context and its names.
int64_t WaitingBytes(const ClientRequest& request);
// Returns the client's names of the upstream requests, without duplicates. REQUIRES: ScopePrompt
// was not called yet.
std::vector<RequestId> UpstreamsOf(const ClientRequest& request);

}  // namespace baton
