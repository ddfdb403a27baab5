#include "model/sampling_params.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "base/check.h"
#include "base/status.h"
#include "base/strings.h"
#include "text/utf8.h"

namespace baton {
namespace {

using Ends = SamplingRange::Ends;

constexpr SamplingField kFields[] = {
    {.name = "temperature",
     .member = &DrawParams::temperature,
     .range = {0, 100},
     .json = "temperature",
     .in_generation_config = true,
     .help = "0: greedy; default: the model's (generation_config.json), or 1"},
    {.name = "top_k",
     .member = &DrawParams::top_k,
     .zero_is_off = true,
     .json = "top_k",
     .in_generation_config = true,
     .help = "draw from this many most likely tokens; 0: all; default: the model's, or 0"},
    {.name = "top_p",
     .member = &DrawParams::top_p,
     .range = {0, 1},
     .json = "top_p",
     .in_generation_config = true,
     .help = "draw from the most likely tokens whose probabilities sum to this share; 0: greedy; default: the model's, "
             "or 1"},
    {.name = "min_p",
     .member = &DrawParams::min_p,
     .range = {0, 1, Ends::kLow},
     .json = "min_p",
     .in_generation_config = true,
     .help = "draw from tokens of at least this probability, relative to the most likely token; default: the model's, "
             "or 0"},
    {.name = "repetition_penalty",
     .member = &DrawParams::repetition_penalty,
     .range = {0.01, 100},
     .json = "repetition_penalty",
     .in_generation_config = true,
     .help = "above 1: tokens of the prompt and the output become less likely; default: the model's, or 1"},
    {.name = "presence_penalty",
     .member = &DrawParams::presence_penalty,
     .range = {-2, 2},
     .json = "presence_penalty",
     .help = "above 0: tokens of the output become less likely; default: 0"},
    {.name = "frequency_penalty",
     .member = &DrawParams::frequency_penalty,
     .range = {-2, 2},
     .json = "frequency_penalty",
     .help = "above 0: each occurrence of a token in the output makes it less likely; default: 0"},
    {.name = "max_tokens",
     .member = &SamplingParams::max_tokens,
     .range = {.low = 0},
     .help = "upper bound on generated tokens; 0: only compute the prompt; default: what the prompt leaves of the "
             "context length"},
    {.name = "logprobs", .member = &SamplingParams::logprobs, .range = {0, kMaxTopLogprobs}},
    {.name = "prompt_logprobs", .member = &SamplingParams::prompt_logprobs, .range = {0, kMaxTopLogprobs}},
    {.name = "seed",
     .member = &SamplingParams::seed,
     .json = "seed",
     .help = "the same request with the same seed gives the same tokens (on GPUs only with --same-bits); default: the "
             "server generates a seed"},
    {.name = "ignore_eos",
     .member = &SamplingParams::ignore_eos,
     .json = "ignore_eos",
     .help = "continue after the model's end-of-sequence token"},
    {.name = "stop",
     .member = &SamplingParams::stop,
     .range = {0, 64},
     .json = "stop",
     .help = "the output ends before this text; may be repeated"},
    {.name = "stop_ids",
     .member = &SamplingParams::stop_ids,
     .range = {0, 256},
     .json = "stop_token_ids",
     .help = "the output ends with this token id; may be repeated"},
    {.name = "logit_bias",
     .member = &SamplingParams::logit_bias,
     .range = {0, 1024},
     .json = "logit_bias",
     .help = "add a number from -100 to 100 to a token's logit, as ID:BIAS; may be repeated"},
    {.name = "min_tokens",
     .member = &SamplingParams::min_tokens,
     .json = "min_tokens",
     .help = "the output does not end before it has this many tokens; default: 0"},
    {.name = "allowed_token_ids",
     .member = &SamplingParams::allowed_token_ids,
     .range = {1, 4096},
     .json = "allowed_token_ids",
     .help = "only this token id, and others given so, may occur in the output; may be repeated"},
    {.name = "bad_words",
     .member = &SamplingParams::bad_words,
     .range = {0, 256},
     .text_bytes = 128,
     .json = "bad_words",
     .help = "this text may not occur in the output; may be repeated"},
    {.name = "thinking_token_budget",
     .member = &SamplingParams::thinking_token_budget,
     .json = "thinking_token_budget",
     .help = "upper bound on the tokens between <think> and </think>; default: none"},
};

template <typename T>
absl::Status Reject(std::string_view path, std::string_view expected, const T& got) {
  return absl::InvalidArgumentError(StrCat(path, ": expected ", expected, ", got ", got));
}

// Returns the shortest text that gives the same number again.
template <typename T>
std::string Shown(T number) {
  std::array<char, 32> text{};
  char* const end = std::to_chars(text.data(), text.data() + text.size(), number).ptr;
  return {text.data(), end};
}

std::string RangeText(const SamplingField& field) {
  const auto& [low, high, ends] = field.range;
  if (high == SamplingRange{}.high) return StrCat(low, field.zero_is_off ? " (off) or more" : " or more");
  return StrCat("a number in [", low, ", ", high, ends == Ends::kLow ? ")" : "]");
}

// A float is compared with the bounds as floats. NaN is never in range, because it compares false
// with every bound.
template <typename T>
bool InRange(const SamplingRange& range, T value) {
  using Bound = std::conditional_t<std::is_same_v<T, float>, float, double>;
  const auto low = static_cast<Bound>(range.low), high = static_cast<Bound>(range.high);
  return value >= low && (range.ends == Ends::kLow ? value < high : value <= high);
}

// Checks the value of one field. The overloads dispatch on its type.
struct Validator {
  const SamplingField& field;
  int64_t vocab;
  SamplingName name;

  template <typename T>
  requires std::is_arithmetic_v<T> absl::Status operator()(T value) const {
    if constexpr (std::is_same_v<T, bool>) {
      return absl::OkStatus();
    } else {
      return InRange(field.range, value) ? absl::OkStatus() : Reject(name(field), RangeText(field), Shown(value));
    }
  }
  absl::Status operator()(const std::optional<int32_t>& value) const {
    return value ? (*this)(*value) : absl::OkStatus();
  }
  // Every seed is valid.
  absl::Status operator()(const std::optional<uint64_t>&) const { return absl::OkStatus(); }
  absl::Status operator()(const std::vector<std::string>& texts) const {
    RETURN_IF_ERROR(CheckLength(texts.size(), " strings"));
    for (size_t i = 0; i < texts.size(); ++i) RETURN_IF_ERROR(CheckText(field, texts[i], Element(i)));
    return absl::OkStatus();
  }
  absl::Status operator()(const std::vector<TokenId>& ids) const {
    RETURN_IF_ERROR(CheckLength(ids.size(), " ids"));
    for (size_t i = 0; i < ids.size(); ++i) {
      if (!HasToken(ids[i])) return Reject(Element(i), TokenText(), ids[i]);
    }
    return absl::OkStatus();
  }
  absl::Status operator()(const std::vector<TokenBias>& biases) const {
    RETURN_IF_ERROR(CheckLength(biases.size(), " tokens"));
    absl::flat_hash_set<TokenId> seen;
    for (const auto& [id, bias] : biases) {
      if (!HasToken(id)) return Reject(name(field), TokenText(), id);
      if (!seen.insert(id).second) return Reject(name(field), "each token once", StrCat("token ", id, " again"));
      RETURN_IF_ERROR(CheckBias(bias, name(field)));
    }
    return absl::OkStatus();
  }

 private:
  std::string Element(size_t i) const { return StrCat(name(field), "[", i, "]"); }
  bool HasToken(TokenId id) const { return id >= 0 && id < vocab; }
  std::string TokenText() const { return StrCat("a token id in [0, ", vocab, ")"); }
  absl::Status CheckLength(size_t length, const char* unit) const {
    if (length == 0 || InRange(field.range, static_cast<double>(length))) return absl::OkStatus();
    return Reject(name(field), StrCat("at most ", field.range.high, unit), length);
  }
};

}  // namespace

std::span<const SamplingField> SamplingFields() { return kFields; }

const SamplingField& SamplingFieldNamed(std::string_view name) {
  const auto* const found = std::ranges::find(kFields, name, &SamplingField::name);
  BATON_CHECK(found != std::end(kFields), "no sampling parameter has this name");
  return *found;
}

std::string WireName(const SamplingField& field) { return StrCat("sampling.", field.name); }

std::string JsonName(const SamplingField& field) { return std::string(field.json.empty() ? field.name : field.json); }

absl::Status Validate(const SamplingParams& params, int64_t vocab, SamplingName name) {
  for (const SamplingField& field : kFields) {
    absl::Status status;
    VisitValue(params, field, [&](const auto& value) { status = Validator{field, vocab, name}(value); });
    RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

absl::Status CheckText(const SamplingField& field, std::string_view text, std::string_view path) {
  if (text.empty() || text.size() > field.text_bytes) {
    return Reject(path, StrCat("1 to ", field.text_bytes, " bytes"), text.size());
  }
  return ValidUtf8Prefix(text) == text.size() ? absl::OkStatus() : Reject(path, "UTF-8 text", "other bytes");
}

absl::Status CheckBias(double bias, std::string_view path) {
  if (bias >= -kMaxBias && bias <= kMaxBias) return absl::OkStatus();
  return Reject(path, StrCat("a number in [", -kMaxBias, ", ", kMaxBias, "]"), Shown(bias));
}

absl::StatusOr<float> ToFloat(const SamplingField& field, std::string_view path, double number) {
  if (!InRange(field.range, number)) return Reject(path, RangeText(field), Shown(number));
  const auto nearest = static_cast<float>(number);
  if (InRange(field.range, nearest)) return nearest;
  return std::nextafter(nearest, static_cast<float>(field.range.low));
}

}  // namespace baton
