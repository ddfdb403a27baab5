// The syntax tree of a chat template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace baton::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

// The kinds of expressions. The comments name the members of Expr that a kind uses, and the
// operands in order.
enum class ExprKind {
  kLiteral,    // literal
  kName,       // text
  kList,       // operands
  kDict,       // operands: key, value, key, value, ...
  kUnary,      // text ("-", "+", "not"); operand
  kBinary,     // text (the operator); left, right
  kCompare,    // operands, with `comparisons` between them
  kCondition,  // then, condition, else (may be null)
  kAttribute,  // text (the attribute); object
  kItem,       // object, key
  kSlice,      // object, start, stop, step (all but the object may be null)
  kCall,       // text (the function); arguments
  kMethod,     // text (the method); object, arguments
  kFilter,     // text (the filter); input, arguments
  kTest,       // text (the test), negated; input, arguments
};

struct Expr {
  ExprKind kind;
  int line = 0;
  std::string text;
  Value literal;
  bool negated = false;
  std::vector<ExprPtr> operands;
  std::vector<std::string> comparisons;                // "==", "<", "in", "not in", ...
  std::vector<std::pair<std::string, ExprPtr>> named;  // keyword arguments
};

struct Statement;
using Body = std::vector<Statement>;

enum class StatementKind { kText, kOutput, kIf, kFor, kSet, kSetBlock, kMacro, kBreak, kContinue };

struct Macro {
  std::string name;
  std::vector<std::pair<std::string, ExprPtr>> parameters;  // name and default, which may be null
  Body body;
};

struct Statement {
  StatementKind kind;
  int line = 0;
  std::string text{};                            // kText
  ExprPtr value{};                               // kOutput, kSet; kFor: the iterated value
  ExprPtr filter{};                              // kFor: the condition after "if"; may be null
  std::vector<std::string> targets{};            // kFor, kSet: variables, or "ns.attribute"
  std::vector<std::pair<ExprPtr, Body>> arms{};  // kIf: condition (null for else) and body
  Body body{};                                   // kFor, kSetBlock
  Body otherwise{};                              // kFor: the body of else
  std::unique_ptr<Macro> macro{};
};

}  // namespace baton::jinja
