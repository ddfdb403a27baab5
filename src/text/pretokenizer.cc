#include "text/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/status.h"
#include "text/pretokenizer_pattern.h"

namespace baton {
namespace {

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeMatchContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

// Upper bound on backtracking steps in one match. The patterns of the supported families take at
// most a few steps for each character, so only a pattern with exponential backtracking reaches the
// limit.
constexpr uint32_t kMatchLimit = 100'000'000;
constexpr uint32_t kHeapLimitKib = 64 * 1024;

absl::Status PatternError(const std::string& pattern, int error) {
  PCRE2_UCHAR message[256];
  pcre2_get_error_message(error, message, sizeof(message));
  return absl::InvalidArgumentError(absl::StrCat("pattern '", pattern, "': ", reinterpret_cast<const char*>(message)));
}

struct Range {
  size_t begin, end;
};

}  // namespace

struct PreTokenizer::Pattern {
  std::unique_ptr<pcre2_code, FreeCode> code;
  std::unique_ptr<pcre2_match_context, FreeMatchContext> limits;
};

// The use of a pattern by one thread.
struct PreTokenizer::Matcher {
  explicit Matcher(const Pattern& the_pattern)
      : pattern(the_pattern), data(pcre2_match_data_create_from_pattern(pattern.code.get(), nullptr)) {
    BATON_CHECK(data != nullptr, "out of memory");
  }

  // Returns the first match at or after `from`, or nullopt if there is none. Returns nullopt also
  // if a limit is reached. The rest of the text is then one piece.
  std::optional<Range> Find(std::string_view text, size_t from) const {
    if (Match(text, from, 0) < 0) return std::nullopt;
    return At();
  }

  // Returns the first match at or after `from`, if later text cannot change it. Otherwise returns
  // the earliest position at which a match may begin. The text between `from` and this position
  // belongs to no match.
  std::variant<Range, size_t> FindSealed(std::string_view text, size_t from) const {
    const int found = Match(text, from, PCRE2_PARTIAL_HARD);
    if (found == PCRE2_ERROR_PARTIAL) return At().begin;
    if (found == PCRE2_ERROR_NOMATCH) return text.size();
    if (found < 0) return from;  // A limit is reached.
    return At();
  }

  Range At() const {
    const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(data.get());
    return {offsets[0], offsets[1]};
  }

  int Match(std::string_view text, size_t from, uint32_t options) const {
    const auto match = [&](uint32_t more) {
      return pcre2_match(pattern.code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                         PCRE2_NO_UTF_CHECK | options | more, data.get(), pattern.limits.get());
    };
    // The compiled code has a small stack. The interpreter has its stack on the heap, up to the
    // heap limit.
    const int found = match(0);
    return found == PCRE2_ERROR_JIT_STACKLIMIT ? match(PCRE2_NO_JIT) : found;
  }

  const Pattern& pattern;
  std::unique_ptr<pcre2_match_data, FreeMatchData> data;
};

PreTokenizer::PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

absl::StatusOr<PreTokenizer> PreTokenizer::Create(std::span<const std::string> patterns) {
  PreTokenizer result;
  for (const std::string& pattern : patterns) {
    ASSIGN_OR_RETURN(const std::string translated, PcrePattern(pattern));
    int error = 0;
    PCRE2_SIZE offset = 0;
    std::unique_ptr<pcre2_code, FreeCode> code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()),
                                                             translated.size(), PCRE2_UTF | PCRE2_UCP, &error, &offset,
                                                             nullptr));
    if (code == nullptr) return PatternError(pattern, error);
    uint32_t matches_empty = 0;
    pcre2_pattern_info(code.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
    if (matches_empty != 0) {
      return absl::InvalidArgumentError(absl::StrCat("pattern '", pattern, "': may match nothing"));
    }
    // If the system forbids compiled code, the interpreter finds the same matches.
    pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
    uint32_t look_behind = 0;  // characters
    pcre2_pattern_info(code.get(), PCRE2_INFO_MAXLOOKBEHIND, &look_behind);
    result.looks_behind_ |= look_behind > 0;
    std::unique_ptr<pcre2_match_context, FreeMatchContext> limits(pcre2_match_context_create(nullptr));
    BATON_CHECK(limits != nullptr, "out of memory");
    pcre2_set_match_limit(limits.get(), kMatchLimit);
    pcre2_set_heap_limit(limits.get(), kHeapLimitKib);
    result.patterns_.push_back({std::move(code), std::move(limits)});
  }
  return result;
}

void PreTokenizer::Split(std::string_view text, absl::FunctionRef<void(std::string_view piece)> piece) const {
  const std::vector<Matcher> matchers(patterns_.begin(), patterns_.end());
  SplitFrom(matchers, text, piece);
}

void PreTokenizer::SplitFrom(std::span<const Matcher> matchers, std::string_view text,
                             absl::FunctionRef<void(std::string_view piece)> piece) const {
  if (text.empty()) return;
  if (matchers.empty()) return piece(text);
  const auto rest = matchers.subspan(1);
  size_t done = 0;
  while (done < text.size()) {
    const std::optional<Range> match = matchers[0].Find(text, done);
    // An empty match splits nothing. A match could end before its start only by \K in a lookbehind,
    // and PcrePattern refuses \K.
    if (!match.has_value() || match->end <= done) break;
    SplitFrom(rest, text.substr(done, match->begin - done), piece);
    SplitFrom(rest, text.substr(match->begin, match->end - match->begin), piece);
    done = match->end;
  }
  SplitFrom(rest, text.substr(done), piece);
}

size_t PreTokenizer::SplitSealed(std::string_view text, absl::FunctionRef<void(std::string_view piece)> piece) const {
  if (looks_behind_) return 0;  // The text before `text` is not available to a lookbehind.
  const std::vector<Matcher> matchers(patterns_.begin(), patterns_.end());
  return SealedFrom(matchers, text, piece);
}

size_t PreTokenizer::SealedFrom(std::span<const Matcher> matchers, std::string_view text,
                                absl::FunctionRef<void(std::string_view piece)> piece) const {
  if (matchers.empty()) return 0;
  const auto rest = matchers.subspan(1);
  size_t done = 0;
  while (done < text.size()) {
    const std::variant<Range, size_t> match = matchers[0].FindSealed(text, done);
    if (const auto* range = std::get_if<Range>(&match)) {
      SplitFrom(rest, text.substr(done, range->begin - done), piece);
      SplitFrom(rest, text.substr(range->begin, range->end - range->begin), piece);
      done = range->end;
    } else {
      // [done, begin) is a prefix of a piece, or the whole piece.
      const size_t begin = std::get<size_t>(match);
      return done + SealedFrom(rest, text.substr(done, begin - done), piece);
    }
  }
  return done;
}

}  // namespace baton
