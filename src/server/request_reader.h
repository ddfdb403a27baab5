// The edge: turns what a client sent into a request that everything behind may trust.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/prompt.h"
#include "inference.pb.h"
#include "model/sampling_params.h"
#include "server/served_model.h"

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
  RequestId id;
  const ServedModel* served = nullptr;
  std::string session;
  std::string cache_salt;
  // Of a prompt that refers to outputs, else empty. Its tokens are put together later.
  std::vector<PromptSegment> segments;
  Join join = Join::kOrder;
  std::vector<TokenId> tokens;  // [n], n >= 1; n + sampling.max_tokens <= context
  ContextUse context;           // whose tokens the router puts before the others, and settles what depends on that
  SamplingParams sampling;
  bool has_max_tokens = false;
  int32_t priority = 0;
  std::string workflow, agent;  // empty: none
  int32_t expected_tokens = 0;  // of the output; 0: not known
  bool prefill_only = false;    // also a Generate of no tokens
  absl::Time deadline = absl::InfiniteFuture();
};

inline constexpr int32_t kDefaultMaxTokens = 512;

// Bytes of text in a prompt, to decide whether to tokenise at once or elsewhere.
size_t TextBytes(const v1::Segments& segments);
size_t TextBytes(const v1::Chat& chat);

// INVALID_ARGUMENT names field, value and limit; UNIMPLEMENTED: chat without a template. Takes time
// linear in the text. `now`: for templates that tell the date. The id is empty where the client gave none; the
// deadline is not set.
absl::StatusOr<ClientRequest> ReadRequest(const v1::GenerateRequest& request, const ServedModels& models,
                                          absl::Time now);
absl::StatusOr<ClientRequest> ReadRequest(const v1::PrefillOnlyRequest& request, const ServedModels& models,
                                          absl::Time now);

// Once the prompt is complete: the default, or INVALID_ARGUMENT if what the client asked for does not fit.
absl::Status SettleMaxTokens(ClientRequest& request);

}  // namespace baton
