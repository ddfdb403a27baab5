#include "text/pretokenizer_pattern.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace baton {
namespace {

constexpr size_t kLongestPattern = 4096;  // bytes

// Letters and numbers that Unicode 15 and 16 added. PCRE2 10.42 has Unicode 14, and later versions
// have more. With these lists, all versions match the same characters.
constexpr std::string_view kLettersSince14 =
    "\\x{1C89}-\\x{1C8A}\\x{A7CB}-\\x{A7CD}\\x{A7DA}-\\x{A7DC}\\x{105C0}-\\x{105F3}\\x{10D4A}-\\x{10D65}"
    "\\x{10D6F}-\\x{10D85}\\x{10EC2}-\\x{10EC4}\\x{1123F}-\\x{11240}\\x{11380}-\\x{11389}\\x{1138B}\\x{1138E}"
    "\\x{11390}-\\x{113B5}\\x{113B7}\\x{113D1}\\x{113D3}\\x{11BC0}-\\x{11BE0}\\x{11F02}\\x{11F04}-\\x{11F10}"
    "\\x{11F12}-\\x{11F33}\\x{1342F}\\x{13441}-\\x{13446}\\x{13460}-\\x{143FA}\\x{16100}-\\x{1611D}"
    "\\x{16D40}-\\x{16D6C}\\x{18CFF}\\x{1B132}\\x{1B155}\\x{1DF25}-\\x{1DF2A}\\x{1E030}-\\x{1E06D}"
    "\\x{1E4D0}-\\x{1E4EB}\\x{1E5D0}-\\x{1E5ED}\\x{1E5F0}\\x{2B739}\\x{2EBF0}-\\x{2EE5D}\\x{31350}-\\x{323AF}";
constexpr std::string_view kNumbersSince14 =
    "\\x{10D40}-\\x{10D49}\\x{116D0}-\\x{116E3}\\x{11BF0}-\\x{11BF9}\\x{11F50}-\\x{11F59}\\x{16130}-\\x{16139}"
    "\\x{16D70}-\\x{16D79}\\x{1CCF0}-\\x{1CCF9}\\x{1D2C0}-\\x{1D2D3}\\x{1E4F0}-\\x{1E4F9}\\x{1E5F1}-\\x{1E5FA}";

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern), rest_(pattern) {}

  absl::StatusOr<std::string> Run() {
    if (pattern_.size() > kLongestPattern) {
      return absl::InvalidArgumentError(
          absl::StrCat("pattern of ", pattern_.size(), " bytes: expected at most ", kLongestPattern));
    }
    while (!rest_.empty()) RETURN_IF_ERROR(in_class_ ? InClass() : Outside());
    return std::move(out_);
  }

 private:
  absl::Status Outside() {
    switch (rest_[0]) {
      case '\\':
        return Escape();
      case '[':
        in_class_ = true;
        return Copy(rest_.starts_with("[^") ? 2 : 1);
      case '(':
        return Group();
      case '^':
      case '$':
      // In Oniguruma, these depend on lines. In PCRE2, they depend on options.
      case '.':
        return Refuse(rest_.substr(0, 1));
      case '{':
        if (rest_.starts_with("{,")) return Refuse("{,");
        break;
      // "}+" is possessive in PCRE2, and a repetition of the repetition in Oniguruma.
      case '}':
        if (rest_.starts_with("}+")) return Refuse("}+");
        break;
      default:
        break;
    }
    return Copy(1);
  }

  absl::Status InClass() {
    switch (rest_[0]) {
      case '\\':
        return Escape();
      case '[':
        return Refuse("[ in a character class");
      case '&':
        if (rest_.starts_with("&&")) return Refuse("&& in a character class");
        break;
      case ']':
        in_class_ = false;
        break;
      default:
        break;
    }
    return Copy(1);
  }

  absl::Status Group() {
    if (rest_.starts_with("(*")) return Refuse("(*");
    if (!rest_.starts_with("(?")) return Copy(1);
    for (const std::string_view start : {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"}) {
      if (rest_.starts_with(start)) return Copy(start.size());
    }
    return Refuse(rest_.substr(0, 3));
  }

  absl::Status Escape() {
    const std::string_view escape = rest_.substr(0, 2);
    // In PCRE2, \s also matches U+180E.
    if (escape == "\\s") return Replace(2, "\\p{White_Space}");
    if (escape == "\\S") return Replace(2, "\\P{White_Space}");
    if (rest_.starts_with("\\p{L}")) return Property("\\p{L}", kLettersSince14);
    if (rest_.starts_with("\\p{N}")) return Property("\\p{N}", kNumbersSince14);
    if (rest_.starts_with("\\p") || rest_.starts_with("\\P")) {
      return Refuse(rest_.substr(0, std::min(rest_.find('}'), rest_.size() - 1) + 1));
    }
    if (escape == "\\r" || escape == "\\n" || escape == "\\t") return Copy(2);
    if (escape.size() == 2 && absl::ascii_ispunct(static_cast<unsigned char>(escape[1]))) return Copy(2);
    return Refuse(escape);
  }

  absl::Status Property(std::string_view property, std::string_view more) {
    if (in_class_) return Replace(property.size(), std::string(property).append(more));
    return Replace(property.size(), std::string("[").append(property).append(more).append("]"));
  }

  absl::Status Copy(size_t size) { return Replace(size, rest_.substr(0, size)); }

  absl::Status Replace(size_t size, std::string_view by) {
    out_ += by;
    rest_.remove_prefix(size);
    return absl::OkStatus();
  }

  absl::Status Refuse(std::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("pattern '", std::string(pattern_), "': ", std::string(what),
                                                   " is not supported in a pre-tokenizer"));
  }

  const std::string_view pattern_;
  std::string_view rest_;
  std::string out_;
  bool in_class_ = false;
};

}  // namespace

absl::StatusOr<std::string> PcrePattern(std::string_view pattern) { return Translator(pattern).Run(); }

}  // namespace baton
