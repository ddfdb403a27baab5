#include "router/client_request.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "base/check.h"
#include "base/status.h"
#include "base/strings.h"
#include "kv/prefix_key.h"
#include "model/sampling_params.h"

namespace baton {
namespace {

// Returns the parent of the first block's router key. Workers' block keys also cover the module
// digest.
BlockKey RouterRoot(const ClientRequest& request) {
  constexpr std::array<uint8_t, 32> kNoDigest{};
  return RootKey(kNoDigest, absl::StrCat(request.served->tokenizer_id, "\n", request.spec.cache_domain));
}

}  // namespace

std::vector<BlockKey> RouterKeys(const ClientRequest& request, std::span<const TokenId> tokens,
                                 std::vector<BlockKey> first) {
  first.resize(std::min(first.size(), tokens.size() / kBlockTokens));
  const std::vector<BlockKey> rest =
      BlockKeys(first.empty() ? RouterRoot(request) : first.back(), tokens.subspan(first.size() * kBlockTokens));
  first.insert(first.end(), rest.begin(), rest.end());
  return first;
}

std::string ScopedSession(const ClientRequest& request) {
  if (request.session.empty() || request.spec.cache_domain.empty()) return request.session;
  return absl::StrCat(request.spec.cache_domain, "\n", request.session);
}

absl::Status PromptLimit::Check(int64_t tokens, std::string_view at_least) const {
  if (tokens <= limit()) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat(path, ": ", at_least, tokens, " tokens, limit ", limit(), Reason()));
}

std::string PromptLimit::Reason() const {
  return StrCat(" (context length ", model.context, " of '", model.shown_name(), "'",
                reserve > 0 ? ", less one token to generate" : "", ")");
}

absl::Status PromptLimit::CheckText(std::string_view text, int64_t before) const {
  return Check(before + static_cast<int64_t>(text.size()) / model.tokenizer->max_bytes_per_token(), "at least ");
}

int64_t PromptLogprobsOf(const ClientRequest& request) {
  const std::optional<int32_t>& top = request.spec.sampling.prompt_logprobs;
  return top ? std::ssize(request.spec.tokens) * (int64_t{*top} + 1) : 0;
}

absl::Status CheckScoring(const ClientRequest& request, int64_t count) {
  const std::string& path = request.form.paths.prompt_logprobs;
  if (!request.prompt.segments.empty()) {
    return absl::InvalidArgumentError(StrCat(path, ": is not supported with output_of; send the output's own text"));
  }
  if (!request.context.id.empty()) {
    return absl::InvalidArgumentError(StrCat(path, ": is not supported with context_id"));
  }
  if (count <= kMaxPromptLogprobs) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat(path, ": ", count, " log probabilities of prompts, limit ",
                                           kMaxPromptLogprobs, " per call (prompt tokens times ",
                                           *request.spec.sampling.prompt_logprobs + 1, ")"));
}

absl::Status CheckMaxTokens(const ClientRequest& request) {
  if (request.prefill_only || !request.has_max_tokens) return absl::OkStatus();
  const ServedModel& model = *request.served;
  int64_t known = std::ssize(request.spec.tokens);
  for (const PromptSegment& segment : request.prompt.segments) {
    if (const auto* tokens = std::get_if<std::vector<TokenId>>(&segment)) known += std::ssize(*tokens);
  }
  known = std::max<int64_t>(known, 1);
  const int64_t left = model.context - known;
  if (request.spec.sampling.max_tokens <= left) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat(request.form.paths.max_tokens, ": ", request.spec.sampling.max_tokens,
                                           " after a prompt of ", request.prompt.segments.empty() ? "" : "at least ",
                                           known, " tokens, limit ", left, " (context length ", model.context, " of '",
                                           model.shown_name(), "')"));
}

absl::Status CheckMinTokens(const ClientRequest& request) {
  const SamplingParams& sampling = request.spec.sampling;
  if (request.prefill_only || sampling.min_tokens <= sampling.max_tokens) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat(request.form.paths.sampling(SamplingFieldNamed("min_tokens")),
                                           ": expected at most max_tokens, which is ", sampling.max_tokens, ", got ",
                                           sampling.min_tokens));
}

absl::Status SettleMaxTokens(ClientRequest& request) {
  const auto left = static_cast<int32_t>(request.served->context - std::ssize(request.spec.tokens));
  const int32_t chosen = request.form.default_max_tokens;
  if (!request.has_max_tokens) request.spec.sampling.max_tokens = chosen == 0 ? left : std::min(chosen, left);
  RETURN_IF_ERROR(CheckMaxTokens(request));
  return CheckMinTokens(request);
}

void ScopePrompt(ClientRequest& request) {
  BATON_CHECK(request.prompt.tokenizer == nullptr, "ScopePrompt called twice");
  request.prompt.tokenizer = request.served->tokenizer.get();
  request.prompt.path = request.form.paths.prompt;
  const PromptLimit limit{*request.served, request.prefill_only ? 0 : 1};
  request.prompt.most_tokens = limit.limit();
  request.prompt.most_tokens_reason = limit.Reason();
  for (PromptSegment& segment : request.prompt.segments) {
    auto* reference = std::get_if<Reference>(&segment);
    if (reference != nullptr) reference->upstream = ScopedId(request.spec.cache_domain, reference->upstream);
  }
}

Route ToRoute(const ClientRequest& request, std::vector<BlockKey> first) {
  const auto reference = std::ranges::find_if(
      request.prompt.segments, [](const PromptSegment& segment) { return std::holds_alternative<Reference>(segment); });
  const bool streaming = reference != request.prompt.segments.end();
  return {.session = ScopedSession(request),
          .keys = RouterKeys(request, request.spec.tokens, std::move(first)),
          .streaming = streaming,
          .upstream = streaming ? std::get<Reference>(*reference).upstream : ""};
}

int64_t OutputLimit(const ClientRequest& request) {
  if (request.prefill_only) return 0;
  const int32_t settled = request.spec.sampling.max_tokens;
  if (request.has_max_tokens || settled > 0) return settled;
  const int32_t context = request.served->context, chosen = request.form.default_max_tokens;
  return chosen == 0 ? context : std::min(chosen, context);
}

int32_t ExpectedTokens(const ClientRequest& request, const OutputLengths& lengths) {
  const int64_t expected = std::max<int64_t>(lengths.Expect(SourceOf(request)), request.expected_tokens);
  return static_cast<int32_t>(std::min(expected, OutputLimit(request)));
}

OutputSource SourceOf(const ClientRequest& request) {
  return {request.spec.cache_domain, request.served->name, request.agent};
}

WorkflowKey WorkflowOf(const ClientRequest& request) { return {request.spec.cache_domain, request.workflow}; }

Workload::Lengths LengthsOf(const ClientRequest& request, int64_t uncached) {
  // A streaming prompt's spec.tokens do not yet include the segments after its first reference.
  int64_t known = 0;
  for (const PromptSegment& segment : request.prompt.segments) {
    if (const auto* tokens = std::get_if<std::vector<TokenId>>(&segment)) known += std::ssize(*tokens);
  }
  // A client may state any length: the queue order depends on it by a bounded time only.
  const int64_t stated = std::min<int64_t>(request.expected_tokens, OutputLimit(request));
  return {.prompt = uncached + std::max<int64_t>(known - std::ssize(request.spec.tokens), 0),
          .output = stated > 0 ? stated : request.spec.expected_tokens};
}

int64_t WaitingBytes(const ClientRequest& request) {
  const auto tokens = [](size_t count) { return count * sizeof(TokenId); };
  size_t bytes = tokens(request.spec.tokens.size() + request.context.expected.size()) +
                 request.prompt.segments.size() * sizeof(PromptSegment);
  for (const PromptSegment& segment : request.prompt.segments) {
    if (const auto* reference = std::get_if<Reference>(&segment)) {
      bytes += reference->upstream.size() + reference->path.size() + tokens(reference->substitute.size());
      for (const auto* labels : {&reference->before, &reference->after}) {
        for (const LabelPart& label : *labels) {
          const auto* text = std::get_if<std::vector<TokenId>>(&label);
          bytes += sizeof(LabelPart) + (text == nullptr ? 0 : tokens(text->size()));
        }
      }
    } else {
      bytes += tokens(std::get<std::vector<TokenId>>(segment).size());
    }
  }
  for (const std::string* name : {&request.id, &request.session, &request.workflow, &request.agent}) {
    bytes += name->size();
  }
  return static_cast<int64_t>(bytes);
}

std::vector<RequestId> UpstreamsOf(const ClientRequest& request) {
  std::vector<RequestId> upstreams;
  absl::flat_hash_set<RequestId> known;
  for (const PromptSegment& segment : request.prompt.segments) {
    const auto* reference = std::get_if<Reference>(&segment);
    if (reference != nullptr && known.insert(reference->upstream).second) upstreams.push_back(reference->upstream);
  }
  return upstreams;
}

}  // namespace baton
