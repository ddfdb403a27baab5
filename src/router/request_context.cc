#include "router/request_context.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/escaping.h"
#include "base/status.h"
#include "base/strings.h"

namespace baton {
namespace {

ContextKey KeyOf(const ClientRequest& request) { return {request.spec.cache_domain, request.context.id}; }

void PutBefore(ClientRequest& request, std::vector<TokenId> tokens) {
  if (tokens.empty()) return;
  if (request.prompt.segments.empty()) {
    tokens.insert(tokens.end(), request.spec.tokens.begin(), request.spec.tokens.end());
    request.spec.tokens = std::move(tokens);
  } else if (auto* first = std::get_if<std::vector<TokenId>>(&request.prompt.segments.front())) {
    first->insert(first->begin(), tokens.begin(), tokens.end());
  } else {
    request.prompt.segments.insert(request.prompt.segments.begin(), std::move(tokens));
  }
}

std::string ShowToken(const ClientRequest& request, TokenId id) {
  return StrCat("'", absl::Utf8SafeCEscape(std::string(request.served->tokenizer->TokenBytes(id))), "' (id ", id, ")");
}

// Returns FAILED_PRECONDITION if a chat does not begin with the tokens of its context. `prompt` has
// the chat's first tokens, or all if `is_complete`.
absl::Status CheckExpected(const ClientRequest& request, std::span<const TokenId> prompt, bool is_complete) {
  const std::vector<TokenId>& expected = request.context.expected;
  const auto [mine, theirs] = std::ranges::mismatch(prompt, expected);
  if (theirs == expected.end() || (mine == prompt.end() && !is_complete)) return absl::OkStatus();
  const std::string begin = StrCat(request.form.paths.prompt, ": the rendered messages must begin with the ",
                                   expected.size(), " tokens of context '", request.context.id, "', ");
  if (mine == prompt.end()) return absl::FailedPreconditionError(StrCat(begin, "but have only ", prompt.size()));
  return absl::FailedPreconditionError(StrCat(begin, "but differ at token ", mine - prompt.begin(), ": expected ",
                                              ShowToken(request, *theirs), ", got ", ShowToken(request, *mine)));
}

// Checks the part of a chat that comes before its first reference.
absl::Status CheckFirst(const ClientRequest& request) {
  const std::vector<PromptSegment>& segments = request.prompt.segments;
  if (segments.empty()) return CheckExpected(request, request.spec.tokens, true);
  const auto* first = std::get_if<std::vector<TokenId>>(&segments.front());
  return first == nullptr ? absl::OkStatus() : CheckExpected(request, *first, false);
}

// Applies the checks that a prompt without a context passes when it is read.
absl::Status CheckWhole(ClientRequest& request) {
  if (!request.prompt.segments.empty()) return CheckMaxTokens(request);
  const std::string& path = request.form.paths.prompt;
  if (request.spec.tokens.empty()) return absl::InvalidArgumentError(path + ": is empty, expected at least one token");
  const PromptLimit limit{*request.served, request.prefill_only ? 0 : 1, path};
  RETURN_IF_ERROR(limit.Check(std::ssize(request.spec.tokens)));
  return request.prefill_only ? absl::OkStatus() : SettleMaxTokens(request);
}

}  // namespace

absl::Status BeginContext(ContextStore& contexts, ClientRequest& request, absl::Time now) {
  ContextUse& use = request.context;
  const std::optional<int64_t> length = use.length;
  ASSIGN_OR_RETURN(ContextStore::View view,
                   request.prefill_only
                       ? contexts.BeginAppend(KeyOf(request), request.served->tokenizer_id, length, now)
                       : contexts.BeginRead(KeyOf(request), request.served->tokenizer_id, length, now));
  use.tokens = static_cast<int32_t>(view.tokens.size());
  use.holder = std::move(view.holder);
  if (use.is_within_prompt) {
    use.expected = std::move(view.tokens);
  } else {
    PutBefore(request, use.tokens > 0 ? std::move(view.tokens) : std::move(use.prefix));
  }
  absl::Status status = CheckFirst(request);
  status.Update(CheckWhole(request));
  if (status.ok() && request.prompt.segments.empty()) status = CompleteContext(contexts, request);
  if (!status.ok()) EndContext(contexts, request, "", now);
  return status;
}

absl::Status CompleteContext(ContextStore& contexts, ClientRequest& request) {
  if (request.context.id.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckExpected(request, request.spec.tokens, true));
  request.context.expected = {};
  if (!request.prefill_only) return absl::OkStatus();
  return contexts.Complete(KeyOf(request), request.spec.tokens);
}

void EndContext(ContextStore& contexts, const ClientRequest& request, const WorkerAddress& holder, absl::Time now) {
  if (request.context.id.empty()) return;
  if (request.prefill_only) {
    contexts.EndAppend(KeyOf(request), holder, now);
  } else {
    contexts.EndRead(KeyOf(request), holder, now);
  }
}

KvLease LeaseOf(const ContextStore& contexts, const ClientRequest& request) {
  if (request.context.id.empty()) return {};
  const auto whole = static_cast<int32_t>(request.spec.tokens.size());
  return {.tokens = request.prefill_only ? whole : request.context.tokens, .duration = contexts.lease()};
}

KvLease PrefillLease(const ContextStore& contexts, const ClientRequest& request) {
  if (request.session.empty() || !request.context.id.empty()) return LeaseOf(contexts, request);
  return {.tokens = static_cast<int32_t>(request.spec.tokens.size()),
          .duration = kSessionProtection,
          .only_protects = true};
}

}  // namespace baton
