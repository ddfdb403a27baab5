// A parsed chat template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace baton::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

enum class ExprKind {
  kLiteral,    // literal
  kName,       // text
  kList,       // operands
  kDict,       // operands: key, value, key, value, ...
  kUnary,      // text ("-", "+", "not"); operand
  kBinary,     // text; left, right
  kCompare,    // operands and, between them, comparisons
  kCondition,  // then, condition, else (may be null)
  kAttribute,  // object; text
  kItem,       // object, key
  kSlice,      // object, start, stop, step (each may be null)
  kCall,       // function of name text; arguments
  kMethod,     // object, arguments; text
  kFilter,     // input, arguments; text
  kTest,       // input, arguments; text; `negated`
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
  std::vector<std::pair<std::string, ExprPtr>> parameters;  // default may be null
  Body body;
};

struct Statement {
  StatementKind kind;
  int line = 0;
  std::string text{};                            // kText
  ExprPtr value{};                               // kOutput; kSet; kFor: what is iterated
  ExprPtr filter{};                              // kFor: the condition after "if", may be null
  std::vector<std::string> targets{};            // kFor, kSet: names; "ns.attribute" sets a namespace's
  std::vector<std::pair<ExprPtr, Body>> arms{};  // kIf: condition (null for else) and body, in order
  Body body{};                                   // kFor, kSetBlock
  Body otherwise{};                              // kFor: body of else
  std::unique_ptr<Macro> macro{};
};

}  // namespace baton::jinja
