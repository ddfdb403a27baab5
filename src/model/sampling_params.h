// The parameters of sampling, and the one table of them.
#pragma once

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
#include "base/ids.h"
#include "model/draw_params.h"

namespace baton {

struct SamplingParams {
  DrawParams draw{};
  std::optional<uint64_t> seed{};   // same seed, same tokens, whatever else runs
  int32_t max_tokens = 0;           // a valid request has 1 or more
  std::vector<std::string> stop{};  // the output ends before the first of these, each of 1 to 1024 bytes of UTF-8
  std::vector<TokenId> stop_ids{};  // beside the end-of-sequence ids of the model
  bool ignore_eos = false;
  std::optional<int32_t> logprobs{};  // also the top n of each step; unset: none
};

inline constexpr int32_t kMaxTopLogprobs = 20;

// The values that a parameter may have; of a list, the lengths. A bound belongs to the range unless `ends` leaves it
// out.
struct SamplingRange {
  enum class Ends { kBoth, kHigh, kLow };  // which bounds belong to the range

  float low = 0;
  float high = std::numeric_limits<float>::infinity();
  Ends ends = Ends::kBoth;
};

// One parameter. Its default is the value in SamplingParams{}.
struct SamplingField {
  // A new type has a new alternative here, and the readers and writers refuse to compile without it.
  using Member =
      std::variant<float DrawParams::*, int32_t DrawParams::*, int32_t SamplingParams::*, bool SamplingParams::*,
                   std::optional<int32_t> SamplingParams::*, std::optional<uint64_t> SamplingParams::*,
                   std::vector<std::string> SamplingParams::*, std::vector<TokenId> SamplingParams::*>;

  std::string_view name;  // of its field in baton.v1.Sampling, and of its flag: max_tokens, --max-tokens
  Member member;
  SamplingRange range{};
  // 0 turns the parameter off. In JSON bodies and generation_config.json -1 means the same, as in vLLM.
  bool zero_is_off = false;
  std::string_view json{};  // its name in the bodies of OpenAI's APIs; empty: each API has a reader of its own
  bool in_generation_config = false;  // generation_config.json may state another default
  std::string_view help{};            // of the flag of `baton generate`; empty: there is no flag
};

// All parameters.
std::span<const SamplingField> SamplingFields();

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

struct TokenLogprobs {
  float logprob = 0;  // of the chosen token, natural log, under the raw (unscaled, unpenalised) distribution
  std::vector<std::pair<TokenId, float>> top{};  // most likely first
};

// INVALID_ARGUMENT names the parameter, its value and the limit.
absl::Status Validate(const SamplingParams& params, int64_t vocab);

}  // namespace baton
