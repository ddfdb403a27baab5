// The sampling parameters of a request, and the table that describes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "model/draw_params.h"

namespace baton {

struct SamplingParams {
  DrawParams draw{};
  // The same seed gives the same tokens, regardless of other requests. On GPUs this holds only with
  // --same-bits.
  std::optional<uint64_t> seed{};
  int32_t max_tokens = 0;  // 0 only with prompt_logprobs
  // The output ends before the first occurrence of any of these. Each is 1 to 1024 bytes of UTF-8.
  std::vector<std::string> stop{};
  std::vector<TokenId> stop_ids{};  // in addition to the model's end-of-sequence ids
  bool ignore_eos = false;
  // Number of most likely tokens to return with each token's log probability. Unset: return none.
  std::optional<int32_t> logprobs{};
  // Constraints of the output's tokens (model/token_constraints.h).
  std::vector<TokenBias> logit_bias{};
  int32_t min_tokens = 0;
  std::vector<TokenId> allowed_token_ids{};        // empty: all
  std::vector<std::string> bad_words{};            // texts that may not occur
  std::optional<int32_t> thinking_token_budget{};  // unset: no bound
  // The same for the tokens of the prompt. A decode worker then computes the prompt itself.
  std::optional<int32_t> prompt_logprobs{};
};

inline constexpr int32_t kMaxTopLogprobs = 20;
inline constexpr float kMaxBias = 100;  // of logit_bias, also below zero

// The valid values of a parameter. For a list, the range is that of its length if it is set. A list
// without elements is not set.
struct SamplingRange {
  enum class Ends { kBoth, kLow };  // the bounds that are themselves valid values

  double low = 0;
  double high = std::numeric_limits<double>::infinity();
  Ends ends = Ends::kBoth;
};

// One parameter. Its default is the value in SamplingParams{}.
struct SamplingField {
  // A parameter of a new type needs a new alternative. Readers and writers that do not handle the
  // alternative fail to compile.
  using Member = std::variant<float DrawParams::*, int32_t DrawParams::*, int32_t SamplingParams::*,
                              bool SamplingParams::*, std::optional<int32_t> SamplingParams::*,
                              std::optional<uint64_t> SamplingParams::*, std::vector<std::string> SamplingParams::*,
                              std::vector<TokenId> SamplingParams::*, std::vector<TokenBias> SamplingParams::*>;

  // The name of the field in baton.v1.Sampling and, with dashes, of the flag: max_tokens,
  // --max-tokens.
  std::string_view name;
  Member member;
  SamplingRange range{};
  size_t text_bytes = 1024;  // the longest valid text, if the values are texts
  // 0 turns the parameter off. JSON bodies and generation_config.json may use -1 instead, as in
  // vLLM.
  bool zero_is_off = false;
  // The name in the bodies of OpenAI's APIs. Empty if each API has its own reader.
  std::string_view json{};
  // generation_config.json may give another default.
  bool in_generation_config = false;
  // The help text of the flag of `baton generate`. Empty if there is no flag.
  std::string_view help{};
};

// All parameters.
std::span<const SamplingField> SamplingFields();

// Returns the parameter of this name. REQUIRES: there is one.
const SamplingField& SamplingFieldNamed(std::string_view name);

// Calls `visit` with a reference to the parameter's value.
template <typename Params, typename Visit>
void VisitValue(Params& params, const SamplingField& field, Visit visit) {
  std::visit(
      [&](auto member) {
        if constexpr (requires { params.draw.*member; }) {
          visit(params.draw.*member);
        } else {
          visit(params.*member);
        }
      },
      field.member);
}

// Log probabilities of one step: natural logarithms under the raw distribution, before penalties
// and temperature.
struct TokenLogprobs {
  float logprob = 0;                             // of the chosen token, or of a token of the prompt
  std::vector<std::pair<TokenId, float>> top{};  // most likely first
  // Only for a token of the prompt: 1 plus the number of tokens that are more likely.
  int32_t rank = 0;
};

// Returns the name of a parameter in errors.
using SamplingName = std::string (*)(const SamplingField& field);
// In baton.v1.GenerateRequest: "sampling.stop_ids".
std::string WireName(const SamplingField& field);
// In the bodies of OpenAI's APIs: "stop_token_ids".
std::string JsonName(const SamplingField& field);

// Checks all parameters. An INVALID_ARGUMENT error names the parameter, its value and the limit.
absl::Status Validate(const SamplingParams& params, int64_t vocab, SamplingName name = WireName);
// Checks one text of a parameter. An INVALID_ARGUMENT error names `path`.
absl::Status CheckText(const SamplingField& field, std::string_view text, std::string_view path);
// Checks one bias of logit_bias. An INVALID_ARGUMENT error names `path`.
absl::Status CheckBias(double bias, std::string_view path);
// Converts a number from a text to a parameter of type float. The range applies to the number
// itself: a number that is in range and rounds to a bound out of range becomes the float beside
// that bound. An INVALID_ARGUMENT error names `path`, the number and the range.
absl::StatusOr<float> ToFloat(const SamplingField& field, std::string_view path, double number);

}  // namespace baton
