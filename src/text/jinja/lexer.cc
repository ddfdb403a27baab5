#include "text/jinja/lexer.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "base/strings.h"

namespace baton::jinja {
namespace {

constexpr std::string_view kOperators[] = {"**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<",
                                           ">",  "=",  "(",  ")",  "[",  "]",  "{", "}", ",", ":", ".", "|"};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (position_ < source_.size()) RETURN_IF_ERROR(TextThenTag());
    tokens_.push_back({TokenKind::kEnd, "end of template", line_});
    return std::move(tokens_);
  }

 private:
  absl::Status Error(std::string_view what) const {
    return absl::InvalidArgumentError(StrCat("chat template line ", line_, ": ", what));
  }
  std::string_view Rest() const { return source_.substr(position_); }
  void Advance(size_t count) {
    line_ += static_cast<int>(std::count(source_.begin() + position_, source_.begin() + position_ + count, '\n'));
    position_ += count;
  }

  absl::Status TextThenTag() {
    size_t open = position_;
    while (true) {
      open = source_.find('{', open);
      if (open == std::string_view::npos || open + 1 >= source_.size()) {
        AddText(source_.substr(position_));
        Advance(source_.size() - position_);
        return absl::OkStatus();
      }
      const char next = source_[open + 1];
      if (next == '%' || next == '{' || next == '#') break;
      ++open;
    }
    const char type = source_[open + 1];
    const char mark = open + 2 < source_.size() ? source_[open + 2] : '\0';
    std::string_view text = source_.substr(position_, open - position_);
    if (mark == '-') {
      text = text.substr(0, text.find_last_not_of(" \t\n\v\f\r") + 1);
    } else if (mark != '+' && type != '{') {
      text = WithoutIndent(text);
    }
    AddText(text);
    Advance(open - position_ + 2 + (mark == '-' || mark == '+' ? 1 : 0));
    if (type == '#') return Comment();
    return Tag(type == '%');
  }

  // Implements lstrip_blocks: removes the blanks between the start of a line and a block tag.
  std::string_view WithoutIndent(std::string_view text) const {
    const size_t last = text.find_last_not_of(" \t");
    const size_t keep = last == std::string_view::npos ? 0 : last + 1;
    const bool line_start = keep == 0 ? at_line_start_ : text[keep - 1] == '\n';
    return line_start ? text.substr(0, keep) : text;
  }

  void AddText(std::string_view text) {
    if (!text.empty()) tokens_.push_back({TokenKind::kText, std::string(text), line_});
  }

  absl::Status Comment() {
    const size_t end = Rest().find("#}");
    if (end == std::string_view::npos) return Error("comment {# without #}");
    const bool trim = end > 0 && Rest()[end - 1] == '-';
    Advance(end + 2);
    AfterTag(trim, /*block=*/true);
    return absl::OkStatus();
  }

  // Skips white space after a closed tag. A tag that closes with "-" skips all of it, and a block
  // tag skips one newline (trim_blocks).
  void AfterTag(bool trim, bool block) {
    at_line_start_ = false;
    if (trim) {
      const size_t keep = Rest().find_first_not_of(" \t\n\v\f\r");
      Advance(keep == std::string_view::npos ? Rest().size() : keep);
    } else if (block && !Rest().empty() && Rest()[0] == '\n') {
      Advance(1);
      at_line_start_ = true;
    }
  }

  absl::Status Tag(bool block) {
    tokens_.push_back({block ? TokenKind::kBlockBegin : TokenKind::kOutputBegin, block ? "{%" : "{{", line_});
    const std::string_view close = block ? "%}" : "}}";
    int braces = 0;  // Within braces, "}}" may end two dict literals.
    while (true) {
      const size_t skip = Rest().find_first_not_of(" \t\n\v\f\r");
      if (skip == std::string_view::npos) return Error(StrCat("tag without ", close));
      Advance(skip);
      const bool trim = Rest()[0] == '-' && Rest().substr(1, 2) == close;
      if (braces == 0 && (trim || Rest().substr(0, 2) == close)) {
        tokens_.push_back({block ? TokenKind::kBlockEnd : TokenKind::kOutputEnd, std::string(close), line_});
        Advance(trim ? 3 : 2);
        AfterTag(trim, block);
        return absl::OkStatus();
      }
      if (Rest()[0] == '{') ++braces;
      if (Rest()[0] == '}') --braces;
      RETURN_IF_ERROR(Expression());
    }
  }

  absl::Status Expression() {
    const char c = Rest()[0];
    if (c == '"' || c == '\'') return String(c);
    if (absl::ascii_isdigit(c)) return Number();
    if (absl::ascii_isalpha(c) || c == '_') {
      size_t end = 1;
      while (end < Rest().size() && (absl::ascii_isalnum(Rest()[end]) || Rest()[end] == '_')) ++end;
      Add(TokenKind::kName, end);
      return absl::OkStatus();
    }
    for (const std::string_view op : kOperators) {
      if (Rest().substr(0, op.size()) == op) {
        Add(TokenKind::kOperator, op.size());
        return absl::OkStatus();
      }
    }
    return Error(StrCat("unexpected character '", Rest().substr(0, 1), "'"));
  }

  void Add(TokenKind kind, size_t length) {
    tokens_.push_back({kind, std::string(Rest().substr(0, length)), line_});
    Advance(length);
  }

  absl::Status Number() {
    size_t end = 0;
    const auto digits = [&] {
      while (end < Rest().size() && absl::ascii_isdigit(Rest()[end])) ++end;
    };
    digits();
    bool is_float = false;
    if (end + 1 < Rest().size() && Rest()[end] == '.' && absl::ascii_isdigit(Rest()[end + 1])) {
      is_float = true;
      ++end;
      digits();
    }
    Add(is_float ? TokenKind::kFloat : TokenKind::kInteger, end);
    return absl::OkStatus();
  }

  absl::Status String(char quote) {
    std::string text;
    for (size_t i = 1; i < Rest().size(); ++i) {
      const char c = Rest()[i];
      if (c == quote) {
        tokens_.push_back({TokenKind::kString, std::move(text), line_});
        Advance(i + 1);
        return absl::OkStatus();
      }
      if (c != '\\') {
        text.push_back(c);
        continue;
      }
      if (++i >= Rest().size()) break;
      switch (const char escaped = Rest()[i]) {
        case 'n':
          text.push_back('\n');
          break;
        case 't':
          text.push_back('\t');
          break;
        case 'r':
          text.push_back('\r');
          break;
        case '\\':
        case '\'':
        case '"':
          text.push_back(escaped);
          break;
        case '\n':
          break;
        default:
          return Error(StrCat("string escape \\", std::string(1, escaped), " is not implemented"));
      }
    }
    return Error("string without closing quote");
  }

  const std::string_view source_;
  size_t position_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;  // position_ was at the start of a line after the last tag
  std::vector<Token> tokens_;
};

}  // namespace

absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source) {
  std::string text = absl::StrReplaceAll(ToAbsl(source), {{"\r\n", "\n"}, {"\r", "\n"}});
  if (text.ends_with('\n')) text.pop_back();  // As in Jinja without keep_trailing_newline.
  return Lexer(text).Run();
}

}  // namespace baton::jinja
