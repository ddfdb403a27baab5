#include "text/jinja/parser.h"

#include <algorithm>
#include <limits>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "base/status.h"
#include "base/strings.h"
#include "text/jinja/builtins.h"
#include "text/jinja/lexer.h"

namespace baton::jinja {
namespace {

// Upper bound on nested expressions and blocks, because the parser is recursive.
constexpr int kMaxNesting = 100;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  absl::StatusOr<Body> Run() {
    Body body;
    RETURN_IF_ERROR(ParseBody({}, &body));
    for (const auto& [name, line] : called_) {
      if (!macros_.contains(name) && !IsFunction(name)) {
        return absl::UnimplementedError(
            StrCat("chat template line ", line, ": function '", name, "' is not implemented"));
      }
    }
    return body;
  }

 private:
  // Increments a nesting depth during its lifetime.
  struct Depth {
    explicit Depth(int* depth) : depth_(depth) { ++*depth_; }
    ~Depth() { --*depth_; }
    int* depth_;
  };

  const Token& Peek(size_t ahead = 0) const { return tokens_[std::min(next_ + ahead, tokens_.size() - 1)]; }
  Token Take() { return tokens_[next_ + 1 < tokens_.size() ? next_++ : next_]; }
  bool Is(TokenKind kind, std::string_view text) const { return Peek().kind == kind && Peek().text == text; }
  bool IsName(std::string_view name) const { return Is(TokenKind::kName, name); }
  bool TakeIf(TokenKind kind, std::string_view text) {
    if (!Is(kind, text)) return false;
    Take();
    return true;
  }
  bool TakeOp(std::string_view op) { return TakeIf(TokenKind::kOperator, op); }

  absl::Status Error(std::string_view what) const {
    return absl::InvalidArgumentError(StrCat("chat template line ", Peek().line, ": ", what));
  }
  absl::Status NotImplemented(std::string_view what) const {
    return absl::UnimplementedError(StrCat("chat template line ", Peek().line, ": ", what, " is not implemented"));
  }
  absl::Status Expect(TokenKind kind, std::string_view text) {
    if (TakeIf(kind, text)) return absl::OkStatus();
    return Error(StrCat("expected '", text, "', got '", Peek().text, "'"));
  }
  absl::Status ExpectOp(std::string_view op) { return Expect(TokenKind::kOperator, op); }
  absl::StatusOr<std::string> ExpectName() {
    if (Peek().kind != TokenKind::kName) return Error(StrCat("expected a name, got '", Peek().text, "'"));
    return Take().text;
  }

  // ---- statements ----

  // Reads statements up to a block tag whose first word is in `ends`. That tag stays unread. If
  // `ends` is empty, reads up to the end of the template.
  absl::Status ParseBody(const std::vector<std::string_view>& ends, Body* body) {
    const Depth depth(&depth_);
    if (depth_ > kMaxNesting) return Error("nested too deeply");
    while (Peek().kind != TokenKind::kEnd) {
      const int line = Peek().line;
      if (Peek().kind == TokenKind::kText) {
        body->push_back({.kind = StatementKind::kText, .line = line, .text = Take().text});
      } else if (Peek().kind == TokenKind::kOutputBegin) {
        Take();
        ASSIGN_OR_RETURN(ExprPtr value, ParseTuple());
        RETURN_IF_ERROR(Expect(TokenKind::kOutputEnd, "}}"));
        body->push_back({.kind = StatementKind::kOutput, .line = line, .value = std::move(value)});
      } else {
        const std::string word = Peek(1).text;
        if (std::find(ends.begin(), ends.end(), word) != ends.end()) return absl::OkStatus();
        Take();
        RETURN_IF_ERROR(ParseTag(line, body));
      }
    }
    if (ends.empty()) return absl::OkStatus();
    return Error(StrCat("expected '", ends.back(), "', got the end of the template"));
  }

  absl::Status EndTag() { return Expect(TokenKind::kBlockEnd, "%}"); }
  absl::Status CloseBlock(std::string_view name) {
    Take();
    RETURN_IF_ERROR(Expect(TokenKind::kName, name));
    return EndTag();
  }

  absl::Status ParseTag(int line, Body* body) {
    ASSIGN_OR_RETURN(const std::string word, ExpectName());
    if (word == "if") return ParseIf(line, body);
    if (word == "for") return ParseFor(line, body);
    if (word == "set") return ParseSet(line, body);
    if (word == "macro") return ParseMacro(line, body);
    // {% generation %} marks assistant text for training. It renders as its body.
    if (word == "generation") {
      RETURN_IF_ERROR(EndTag());
      RETURN_IF_ERROR(ParseBody({"endgeneration"}, body));
      return CloseBlock("endgeneration");
    }
    if (word == "break" || word == "continue") {
      if (loops_ == 0) return Error(StrCat("'", word, "' outside of a loop"));
      body->push_back({.kind = word == "break" ? StatementKind::kBreak : StatementKind::kContinue, .line = line});
      return EndTag();
    }
    return NotImplemented(StrCat("statement '", word, "'"));
  }

  absl::Status ParseIf(int line, Body* body) {
    Statement statement{.kind = StatementKind::kIf, .line = line};
    bool is_else = false;
    while (true) {
      ExprPtr condition;
      if (!is_else) {
        ASSIGN_OR_RETURN(condition, ParseTuple());
      }
      RETURN_IF_ERROR(EndTag());
      Body arm;
      RETURN_IF_ERROR(is_else ? ParseBody({"endif"}, &arm) : ParseBody({"elif", "else", "endif"}, &arm));
      statement.arms.emplace_back(std::move(condition), std::move(arm));
      Take();
      const std::string word = Take().text;
      if (word == "endif") break;
      is_else = word == "else";
    }
    body->push_back(std::move(statement));
    return EndTag();
  }

  absl::Status ParseTargets(std::vector<std::string>* targets) {
    const bool parenthesis = TakeOp("(");
    do {
      ASSIGN_OR_RETURN(std::string name, ExpectName());
      if (TakeOp(".")) {
        ASSIGN_OR_RETURN(const std::string attribute, ExpectName());
        absl::StrAppend(&name, ".", attribute);
      }
      targets->push_back(std::move(name));
    } while (TakeOp(","));
    return parenthesis ? ExpectOp(")") : absl::OkStatus();
  }

  absl::Status ParseFor(int line, Body* body) {
    Statement statement{.kind = StatementKind::kFor, .line = line};
    RETURN_IF_ERROR(ParseTargets(&statement.targets));
    RETURN_IF_ERROR(Expect(TokenKind::kName, "in"));
    ASSIGN_OR_RETURN(statement.value, ParseOr());
    if (TakeIf(TokenKind::kName, "if")) {
      ASSIGN_OR_RETURN(statement.filter, ParseExpression());
    }
    if (IsName("recursive")) return NotImplemented("a recursive loop");
    RETURN_IF_ERROR(EndTag());
    ++loops_;
    const absl::Status parsed = ParseBody({"else", "endfor"}, &statement.body);
    --loops_;
    RETURN_IF_ERROR(parsed);
    Take();
    if (Take().text == "else") {
      RETURN_IF_ERROR(EndTag());
      RETURN_IF_ERROR(ParseBody({"endfor"}, &statement.otherwise));
      Take();
      Take();
    }
    body->push_back(std::move(statement));
    return EndTag();
  }

  absl::Status ParseSet(int line, Body* body) {
    Statement statement{.kind = StatementKind::kSet, .line = line};
    RETURN_IF_ERROR(ParseTargets(&statement.targets));
    if (TakeOp("=")) {
      ASSIGN_OR_RETURN(statement.value, ParseTuple());
      body->push_back(std::move(statement));
      return EndTag();
    }
    if (Is(TokenKind::kOperator, "|")) return NotImplemented("a filtered set block");
    statement.kind = StatementKind::kSetBlock;
    RETURN_IF_ERROR(EndTag());
    RETURN_IF_ERROR(ParseBody({"endset"}, &statement.body));
    body->push_back(std::move(statement));
    return CloseBlock("endset");
  }

  absl::Status ParseMacro(int line, Body* body) {
    Statement statement{.kind = StatementKind::kMacro, .line = line, .macro = std::make_unique<Macro>()};
    ASSIGN_OR_RETURN(statement.macro->name, ExpectName());
    macros_.insert(statement.macro->name);
    RETURN_IF_ERROR(ExpectOp("("));
    while (!Is(TokenKind::kOperator, ")")) {
      ASSIGN_OR_RETURN(std::string name, ExpectName());
      ExprPtr fallback;
      if (TakeOp("=")) {
        ASSIGN_OR_RETURN(fallback, ParseExpression());
      }
      statement.macro->parameters.emplace_back(std::move(name), std::move(fallback));
      if (!TakeOp(",")) break;
    }
    RETURN_IF_ERROR(ExpectOp(")"));
    RETURN_IF_ERROR(EndTag());
    const int outer_loops = std::exchange(loops_, 0);
    RETURN_IF_ERROR(ParseBody({"endmacro"}, &statement.macro->body));
    loops_ = outer_loops;
    body->push_back(std::move(statement));
    return CloseBlock("endmacro");
  }

  // ---- expressions, loosest binding first ----

  ExprPtr Make(ExprKind kind, std::string text = "") const {
    auto expr = std::make_unique<Expr>();
    expr->kind = kind;
    expr->line = Peek().line;
    expr->text = std::move(text);
    return expr;
  }

  // Parses "a, b" as a list. Python has a tuple here.
  absl::StatusOr<ExprPtr> ParseTuple() {
    ASSIGN_OR_RETURN(ExprPtr first, ParseExpression());
    if (!Is(TokenKind::kOperator, ",")) return first;
    ExprPtr list = Make(ExprKind::kList);
    list->operands.push_back(std::move(first));
    while (TakeOp(",")) {
      ASSIGN_OR_RETURN(ExprPtr item, ParseExpression());
      list->operands.push_back(std::move(item));
    }
    return list;
  }

  absl::StatusOr<ExprPtr> ParseExpression() {
    const Depth depth(&depth_);
    if (depth_ > kMaxNesting) return Error("nested too deeply");
    ASSIGN_OR_RETURN(ExprPtr value, ParseOr());
    while (TakeIf(TokenKind::kName, "if")) {
      ExprPtr condition = Make(ExprKind::kCondition);
      condition->operands.push_back(std::move(value));
      ASSIGN_OR_RETURN(ExprPtr test, ParseOr());
      condition->operands.push_back(std::move(test));
      ExprPtr otherwise;
      if (TakeIf(TokenKind::kName, "else")) {
        ASSIGN_OR_RETURN(otherwise, ParseExpression());
      }
      condition->operands.push_back(std::move(otherwise));
      value = std::move(condition);
    }
    return value;
  }

  using Rule = absl::StatusOr<ExprPtr> (Parser::*)();
  absl::StatusOr<ExprPtr> ParseBinary(TokenKind kind, std::initializer_list<std::string_view> ops, Rule operand) {
    ASSIGN_OR_RETURN(ExprPtr left, (this->*operand)());
    while (Peek().kind == kind && std::find(ops.begin(), ops.end(), Peek().text) != ops.end()) {
      ExprPtr binary = Make(ExprKind::kBinary, Take().text);
      binary->operands.push_back(std::move(left));
      ASSIGN_OR_RETURN(ExprPtr right, (this->*operand)());
      binary->operands.push_back(std::move(right));
      left = std::move(binary);
    }
    return left;
  }
  absl::StatusOr<ExprPtr> ParseOr() { return ParseBinary(TokenKind::kName, {"or"}, &Parser::ParseAnd); }
  absl::StatusOr<ExprPtr> ParseAnd() { return ParseBinary(TokenKind::kName, {"and"}, &Parser::ParseNot); }
  absl::StatusOr<ExprPtr> ParseNot() {
    if (!IsName("not")) return ParseCompare();
    const Depth depth(&depth_);
    if (depth_ > kMaxNesting) return Error("nested too deeply");
    ExprPtr unary = Make(ExprKind::kUnary, Take().text);
    ASSIGN_OR_RETURN(ExprPtr operand, ParseNot());
    unary->operands.push_back(std::move(operand));
    return unary;
  }

  // Takes a comparison operator and returns it. Returns an empty string if there is none.
  std::string TakeComparison() {
    static constexpr std::string_view kComparisons[] = {"==", "!=", "<", "<=", ">", ">="};
    if (TakeIf(TokenKind::kName, "in")) return "in";
    if (IsName("not") && Peek(1).kind == TokenKind::kName && Peek(1).text == "in") {
      Take();
      Take();
      return "not in";
    }
    for (const std::string_view op : kComparisons) {
      if (TakeOp(op)) return std::string(op);
    }
    return "";
  }
  absl::StatusOr<ExprPtr> ParseCompare() {
    ASSIGN_OR_RETURN(ExprPtr left, ParseSum());
    ExprPtr compare;
    for (std::string op = TakeComparison(); !op.empty(); op = TakeComparison()) {
      if (compare == nullptr) {
        compare = Make(ExprKind::kCompare);
        compare->operands.push_back(std::move(left));
      }
      compare->comparisons.push_back(op);
      ASSIGN_OR_RETURN(ExprPtr right, ParseSum());
      compare->operands.push_back(std::move(right));
    }
    return compare ? std::move(compare) : std::move(left);
  }
  absl::StatusOr<ExprPtr> ParseSum() { return ParseBinary(TokenKind::kOperator, {"+", "-"}, &Parser::ParseConcat); }
  absl::StatusOr<ExprPtr> ParseConcat() { return ParseBinary(TokenKind::kOperator, {"~"}, &Parser::ParseProduct); }
  absl::StatusOr<ExprPtr> ParseProduct() {
    return ParseBinary(TokenKind::kOperator, {"*", "/", "//", "%"}, &Parser::ParseUnary);
  }
  absl::StatusOr<ExprPtr> ParseUnary() {
    if (!Is(TokenKind::kOperator, "-") && !Is(TokenKind::kOperator, "+")) {
      ASSIGN_OR_RETURN(ExprPtr value, ParsePrimary());
      ASSIGN_OR_RETURN(value, ParsePostfix(std::move(value)));
      if (Is(TokenKind::kOperator, "**")) return NotImplemented("operator '**'");
      return ParseFilters(std::move(value));
    }
    const Depth depth(&depth_);
    if (depth_ > kMaxNesting) return Error("nested too deeply");
    ExprPtr unary = Make(ExprKind::kUnary, Take().text);
    ASSIGN_OR_RETURN(ExprPtr operand, ParseUnary());
    unary->operands.push_back(std::move(operand));
    return unary;
  }

  absl::StatusOr<ExprPtr> ParsePrimary() {
    ExprPtr expr = Make(ExprKind::kLiteral);
    const Token token = Take();
    switch (token.kind) {
      case TokenKind::kString: {
        std::string text = token.text;
        while (Peek().kind == TokenKind::kString) text += Take().text;  // "a" "b" is "ab"
        expr->literal = std::move(text);
        return expr;
      }
      case TokenKind::kInteger: {
        int64_t value = 0;
        if (!absl::SimpleAtoi(token.text, &value)) return Error(StrCat("integer too large: ", token.text));
        expr->literal = value;
        return expr;
      }
      case TokenKind::kFloat: {
        double value = 0;
        if (!absl::SimpleAtod(token.text, &value)) return Error(StrCat("not a number: ", token.text));
        expr->literal = value;
        return expr;
      }
      case TokenKind::kName:
        return NameOrConstant(token.text, std::move(expr));
      default:
        break;
    }
    if (token.kind == TokenKind::kOperator && token.text == "(") {
      ASSIGN_OR_RETURN(expr, ParseTuple());
      RETURN_IF_ERROR(ExpectOp(")"));
      return expr;
    }
    if (token.kind == TokenKind::kOperator && token.text == "[") return ParseListLiteral();
    if (token.kind == TokenKind::kOperator && token.text == "{") return ParseDictLiteral();
    return Error(StrCat("unexpected '", token.text, "'"));
  }

  absl::StatusOr<ExprPtr> NameOrConstant(const std::string& name, ExprPtr expr) {
    if (name == "true" || name == "True") {
      expr->literal = true;
    } else if (name == "false" || name == "False") {
      expr->literal = false;
    } else if (name == "none" || name == "None") {
      expr->literal = None{};
    } else if (Is(TokenKind::kOperator, "(")) {
      expr->kind = ExprKind::kCall;
      expr->text = name;
      called_.emplace_back(name, expr->line);
      RETURN_IF_ERROR(ParseArguments(expr.get()));
    } else {
      expr->kind = ExprKind::kName;
      expr->text = name;
    }
    return expr;
  }

  absl::StatusOr<ExprPtr> ParseListLiteral() {
    ExprPtr list = Make(ExprKind::kList);
    while (!TakeOp("]")) {
      ASSIGN_OR_RETURN(ExprPtr item, ParseExpression());
      list->operands.push_back(std::move(item));
      if (!TakeOp(",") && !Is(TokenKind::kOperator, "]")) return ExpectOp("]");
    }
    return list;
  }

  absl::StatusOr<ExprPtr> ParseDictLiteral() {
    ExprPtr dict = Make(ExprKind::kDict);
    while (!TakeOp("}")) {
      ASSIGN_OR_RETURN(ExprPtr key, ParseExpression());
      RETURN_IF_ERROR(ExpectOp(":"));
      ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
      dict->operands.push_back(std::move(key));
      dict->operands.push_back(std::move(value));
      if (!TakeOp(",") && !Is(TokenKind::kOperator, "}")) return ExpectOp("}");
    }
    return dict;
  }

  absl::Status ParseArguments(Expr* call) {
    RETURN_IF_ERROR(ExpectOp("("));
    while (!TakeOp(")")) {
      if (Is(TokenKind::kOperator, "*") || Is(TokenKind::kOperator, "**")) return NotImplemented("argument unpacking");
      if (Peek().kind == TokenKind::kName && Peek(1).kind == TokenKind::kOperator && Peek(1).text == "=") {
        std::string name = Take().text;
        Take();
        ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
        call->named.emplace_back(std::move(name), std::move(value));
      } else {
        ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
        call->operands.push_back(std::move(value));
      }
      if (!TakeOp(",") && !Is(TokenKind::kOperator, ")")) return ExpectOp(")");
    }
    return absl::OkStatus();
  }

  absl::StatusOr<ExprPtr> ParsePostfix(ExprPtr value) {
    while (true) {
      if (TakeOp(".")) {
        ASSIGN_OR_RETURN(const std::string name, ExpectName());
        const bool call = Is(TokenKind::kOperator, "(");
        if (call && !IsMethod(name)) return NotImplemented(StrCat("method '", name, "'"));
        ExprPtr outer = Make(call ? ExprKind::kMethod : ExprKind::kAttribute, name);
        outer->operands.push_back(std::move(value));
        if (call) RETURN_IF_ERROR(ParseArguments(outer.get()));
        value = std::move(outer);
      } else if (TakeOp("[")) {
        ASSIGN_OR_RETURN(value, ParseSubscript(std::move(value)));
      } else if (Is(TokenKind::kOperator, "(")) {
        return NotImplemented("calling the result of an expression");
      } else {
        return value;
      }
    }
  }

  absl::StatusOr<ExprPtr> ParseSubscript(ExprPtr object) {
    std::vector<ExprPtr> parts(1);
    while (true) {
      if (!Is(TokenKind::kOperator, ":") && !Is(TokenKind::kOperator, "]")) {
        ASSIGN_OR_RETURN(parts.back(), ParseExpression());
      }
      if (!TakeOp(":")) break;
      parts.emplace_back();
    }
    RETURN_IF_ERROR(ExpectOp("]"));
    const bool item = parts.size() == 1;
    if (item && parts[0] == nullptr) return Error("empty subscript");
    if (parts.size() > 3) return Error("a slice has at most start, stop and step");
    ExprPtr expr = Make(item ? ExprKind::kItem : ExprKind::kSlice);
    if (!item) parts.resize(3);
    expr->operands.push_back(std::move(object));
    for (ExprPtr& part : parts) expr->operands.push_back(std::move(part));
    return expr;
  }

  absl::StatusOr<ExprPtr> ParseFilters(ExprPtr value) {
    while (true) {
      const bool filter = TakeOp("|");
      if (!filter && !TakeIf(TokenKind::kName, "is")) return value;
      ExprPtr outer = Make(filter ? ExprKind::kFilter : ExprKind::kTest);
      outer->operands.push_back(std::move(value));
      outer->negated = !filter && TakeIf(TokenKind::kName, "not");
      ASSIGN_OR_RETURN(outer->text, ExpectName());
      if (filter && !IsFilter(outer->text)) return NotImplemented(StrCat("filter '", outer->text, "'"));
      if (!filter && !IsTest(outer->text)) return NotImplemented(StrCat("test '", outer->text, "'"));
      if (Is(TokenKind::kOperator, "(")) {
        RETURN_IF_ERROR(ParseArguments(outer.get()));
      } else if (!filter && (Peek().kind == TokenKind::kString || Peek().kind == TokenKind::kInteger)) {
        ASSIGN_OR_RETURN(ExprPtr argument, ParsePrimary());  // "is divisibleby 3"
        outer->operands.push_back(std::move(argument));
      }
      value = std::move(outer);
    }
  }

  std::vector<Token> tokens_;
  size_t next_ = 0;
  int depth_ = 0;
  int loops_ = 0;  // number of loops around the current statement
  absl::flat_hash_set<std::string> macros_;
  std::vector<std::pair<std::string, int>> called_;  // function names and lines
};

}  // namespace

absl::StatusOr<Body> Parse(std::string_view source) {
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace baton::jinja
