#include "text/jinja/interpreter.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/status.h"
#include "base/strings.h"
#include "text/jinja/builtins.h"

namespace baton::jinja {
namespace {

// Steps that one pass of a loop counts as, because it makes the loop variable.
constexpr int64_t kLoopPassCost = 10;

enum class Flow { kNext, kBreak, kContinue };

Value Lookup(const Dict& dict, const std::string& name) {
  const Value* found = Find(dict, name);
  return found ? *found : Value(Undefined{name});
}

void Assign(Dict* dict, const std::string& name, Value value) {
  for (auto& [key, old] : *dict) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  dict->emplace_back(name, std::move(value));
}

// Python's //, which rounds towards minus infinity.
int64_t FloorDivide(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a % b < 0) != (b < 0)); }

class Interpreter {
 public:
  Interpreter(const Dict& globals, absl::Time now, const Limits& limits) : now_(now), limits_(limits) {
    scopes_.push_back(globals);
  }

  absl::Status Execute(const Body& body, std::string* out, Flow* flow) {
    for (const Statement& statement : body) {
      RETURN_IF_ERROR(Located(ExecuteOne(statement, out, flow), statement.line));
      if (*flow != Flow::kNext) break;
    }
    return absl::OkStatus();
  }

 private:
  // Adds the line to an error, unless the message has a line already. An error thus names the
  // innermost line.
  static absl::Status Located(absl::Status status, int line) {
    constexpr std::string_view kPrefix = "chat template line ";
    if (status.ok() || Message(status).starts_with(kPrefix)) return status;
    return absl::Status(status.code(), StrCat(kPrefix, line, ": ", Message(status)));
  }

  absl::Status Step(int64_t cost = 1) {
    steps_ += cost;
    if (steps_ <= limits_.steps) return absl::OkStatus();
    return absl::ResourceExhaustedError(StrCat("more than ", limits_.steps, " steps"));
  }
  absl::Status Made(size_t bytes) {
    bytes_ += static_cast<int64_t>(bytes);
    if (bytes_ <= limits_.text_bytes) return absl::OkStatus();
    return absl::ResourceExhaustedError(StrCat("more than ", limits_.text_bytes, " bytes of text"));
  }

  absl::Status ExecuteOne(const Statement& statement, std::string* out, Flow* flow) {
    RETURN_IF_ERROR(Step());
    switch (statement.kind) {
      case StatementKind::kText:
        return Write(statement.text, out);
      case StatementKind::kOutput: {
        ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.value));
        return Write(value.ToText(), out);
      }
      case StatementKind::kIf:
        return ExecuteIf(statement, out, flow);
      case StatementKind::kFor:
        return ExecuteFor(statement, out);
      case StatementKind::kSet: {
        ASSIGN_OR_RETURN(Value value, Evaluate(*statement.value));
        return Bind(statement.targets, std::move(value));
      }
      case StatementKind::kSetBlock: {
        std::string text;
        RETURN_IF_ERROR(Execute(statement.body, &text, flow));
        return Bind(statement.targets, std::move(text));
      }
      case StatementKind::kMacro:
        Assign(&scopes_.back(), statement.macro->name, Value(static_cast<const Macro*>(statement.macro.get())));
        return absl::OkStatus();
      case StatementKind::kBreak:
        *flow = Flow::kBreak;
        return absl::OkStatus();
      case StatementKind::kContinue:
        *flow = Flow::kContinue;
        return absl::OkStatus();
    }
    return absl::OkStatus();
  }

  absl::Status Write(std::string_view text, std::string* out) {
    RETURN_IF_ERROR(Made(text.size()));
    out->append(text);
    return absl::OkStatus();
  }

  absl::Status ExecuteIf(const Statement& statement, std::string* out, Flow* flow) {
    for (const auto& [condition, body] : statement.arms) {
      if (condition != nullptr) {
        ASSIGN_OR_RETURN(const Value value, Evaluate(*condition));
        if (!value.Truthy()) continue;
      }
      return Execute(body, out, flow);
    }
    return absl::OkStatus();
  }

  absl::Status ExecuteFor(const Statement& statement, std::string* out) {
    ASSIGN_OR_RETURN(const Value iterated, Evaluate(*statement.value));
    ASSIGN_OR_RETURN(List items, Items(iterated));
    scopes_.emplace_back();
    const absl::Status done = Loop(statement, &items, out);
    scopes_.pop_back();
    return done;
  }

  absl::Status Loop(const Statement& statement, List* items, std::string* out) {
    if (statement.filter != nullptr) {
      List chosen;
      for (Value& item : *items) {
        RETURN_IF_ERROR(Step());
        RETURN_IF_ERROR(Bind(statement.targets, item));
        ASSIGN_OR_RETURN(const Value keep, Evaluate(*statement.filter));
        if (keep.Truthy()) chosen.push_back(std::move(item));
      }
      *items = std::move(chosen);
    }
    Flow flow = Flow::kNext;
    if (items->empty()) return Execute(statement.otherwise, out, &flow);
    for (size_t i = 0; i < items->size() && flow != Flow::kBreak; ++i) {
      RETURN_IF_ERROR(Step(kLoopPassCost));
      scopes_.back().clear();  // A variable that one pass sets is undefined in the next.
      Assign(&scopes_.back(), "loop", LoopVariable(*items, i));
      RETURN_IF_ERROR(Bind(statement.targets, (*items)[i]));
      flow = Flow::kNext;
      RETURN_IF_ERROR(Execute(statement.body, out, &flow));
    }
    return absl::OkStatus();
  }

  static Value LoopVariable(const List& items, size_t i) {
    const auto index = static_cast<int64_t>(i), count = static_cast<int64_t>(items.size());
    Dict loop = {{"index0", index},
                 {"index", index + 1},
                 {"revindex0", count - index - 1},
                 {"revindex", count - index},
                 {"first", i == 0},
                 {"last", i + 1 == items.size()},
                 {"length", count}};
    if (i > 0) loop.emplace_back("previtem", items[i - 1]);
    if (i + 1 < items.size()) loop.emplace_back("nextitem", items[i + 1]);
    return Value::MakeDict(std::move(loop));
  }

  absl::Status Bind(const std::vector<std::string>& targets, Value value) {
    if (targets.size() == 1) return BindOne(targets[0], std::move(value));
    ASSIGN_OR_RETURN(List items, Items(value));
    if (items.size() != targets.size()) {
      return absl::InvalidArgumentError(
          StrCat("cannot unpack: expected ", targets.size(), " values, got ", items.size()));
    }
    for (size_t i = 0; i < targets.size(); ++i) RETURN_IF_ERROR(BindOne(targets[i], std::move(items[i])));
    return absl::OkStatus();
  }

  absl::Status BindOne(const std::string& target, Value value) {
    const size_t dot = target.find('.');
    if (dot == std::string::npos) {
      Assign(&scopes_.back(), target, std::move(value));
      return absl::OkStatus();
    }
    const Value object = Variable(target.substr(0, dot));
    const Namespace* space = object.As<Namespace>();
    if (space == nullptr) {
      return absl::InvalidArgumentError(StrCat("cannot set '", target, "': not an attribute of a namespace"));
    }
    Assign(space->values.get(), target.substr(dot + 1), std::move(value));
    return absl::OkStatus();
  }

  Value Variable(const std::string& name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      if (const Value* found = Find(*scope, name)) return *found;
    }
    return IsFunction(name) ? Value(Function{name}) : Value(Undefined{name});
  }

  // ---- expressions ----

  absl::StatusOr<Value> Evaluate(const Expr& expr) {
    RETURN_IF_ERROR(Step());
    absl::StatusOr<Value> value = EvaluateKind(expr);
    if (!value.ok()) return Located(value.status(), expr.line);
    RETURN_IF_ERROR(Located(Step(HandlingCost(*value)), expr.line));
    if (const auto* text = value->As<std::string>(); text && expr.kind != ExprKind::kName) {
      RETURN_IF_ERROR(Located(Made(text->size()), expr.line));
    }
    return value;
  }

  // Returns the steps that the use of a value counts as. An operation on a long list or string may
  // visit all of it.
  static int64_t HandlingCost(const Value& value) {
    if (const List* list = value.AsList()) return static_cast<int64_t>(list->size()) / 4;
    const auto* text = value.As<std::string>();
    return text ? static_cast<int64_t>(text->size()) / 64 : 0;
  }

  absl::StatusOr<Value> EvaluateKind(const Expr& expr) {
    switch (expr.kind) {
      case ExprKind::kLiteral:
        return expr.literal;
      case ExprKind::kName:
        return Variable(expr.text);
      case ExprKind::kList: {
        ASSIGN_OR_RETURN(List items, EvaluateAll(expr.operands, 0));
        return Value::MakeList(std::move(items));
      }
      case ExprKind::kDict:
        return MakeDict(expr);
      case ExprKind::kUnary:
        return Unary(expr);
      case ExprKind::kBinary:
        return Binary(expr);
      case ExprKind::kCompare:
        return CompareChain(expr);
      case ExprKind::kCondition: {
        ASSIGN_OR_RETURN(const Value condition, Evaluate(*expr.operands[1]));
        if (condition.Truthy()) return Evaluate(*expr.operands[0]);
        if (expr.operands[2] == nullptr) return Undefined{"the missing else of an inline if"};
        return Evaluate(*expr.operands[2]);
      }
      case ExprKind::kAttribute: {
        ASSIGN_OR_RETURN(const Value object, Evaluate(*expr.operands[0]));
        return Member(object, expr.text);
      }
      case ExprKind::kItem:
        return Item(expr);
      case ExprKind::kSlice:
        return Slice(expr);
      case ExprKind::kCall:
        return Call(expr);
      case ExprKind::kMethod:
      case ExprKind::kFilter:
      case ExprKind::kTest:
        return Apply(expr);
    }
    return Undefined{};
  }

  absl::StatusOr<List> EvaluateAll(const std::vector<ExprPtr>& operands, size_t from) {
    List values;
    for (size_t i = from; i < operands.size(); ++i) {
      ASSIGN_OR_RETURN(Value value, Evaluate(*operands[i]));
      values.push_back(std::move(value));
    }
    return values;
  }

  absl::StatusOr<Value> MakeDict(const Expr& expr) {
    Dict dict;
    for (size_t i = 0; i < expr.operands.size(); i += 2) {
      ASSIGN_OR_RETURN(const Value key, Evaluate(*expr.operands[i]));
      ASSIGN_OR_RETURN(Value value, Evaluate(*expr.operands[i + 1]));
      const auto* name = key.As<std::string>();
      if (name == nullptr) return absl::UnimplementedError("a dict key that is not a string is not implemented");
      Assign(&dict, *name, std::move(value));
    }
    return Value::MakeDict(std::move(dict));
  }

  absl::StatusOr<Value> Unary(const Expr& expr) {
    ASSIGN_OR_RETURN(const Value value, Evaluate(*expr.operands[0]));
    if (expr.text == "not") return !value.Truthy();
    if (!value.IsNumber()) return absl::InvalidArgumentError(StrCat("'", expr.text, "' of ", value.TypeName()));
    const bool negative = expr.text == "-";
    if (const auto* i = value.As<int64_t>()) return negative ? -*i : *i;
    return negative ? -value.ToDouble() : value.ToDouble();
  }

  absl::StatusOr<Value> Binary(const Expr& expr) {
    ASSIGN_OR_RETURN(Value left, Evaluate(*expr.operands[0]));
    const std::string& op = expr.text;
    if (op == "and" && !left.Truthy()) return left;
    if (op == "or" && left.Truthy()) return left;
    ASSIGN_OR_RETURN(Value right, Evaluate(*expr.operands[1]));
    if (op == "and" || op == "or") return right;
    if (op == "~") return left.ToText() + right.ToText();
    if (op == "+") {
      const auto *a = left.As<std::string>(), *b = right.As<std::string>();
      if (a && b) return *a + *b;
      if (left.AsList() && right.AsList()) {
        List joined = *left.AsList();
        joined.insert(joined.end(), right.AsList()->begin(), right.AsList()->end());
        RETURN_IF_ERROR(Made(joined.size() * sizeof(Value)));
        return Value::MakeList(std::move(joined));
      }
    }
    if (left.IsNumber() && right.IsNumber()) return Arithmetic(op, left, right);
    const auto name = [](const Value& v) {
      return v.IsUndefined() ? StrCat("undefined '", v.As<Undefined>()->name, "'") : std::string(v.TypeName());
    };
    return absl::InvalidArgumentError(StrCat("cannot compute ", name(left), " ", op, " ", name(right)));
  }

  static absl::StatusOr<Value> Arithmetic(const std::string& op, const Value& left, const Value& right) {
    const double x = left.ToDouble(), y = right.ToDouble();
    const bool divides = op == "/" || op == "//" || op == "%";
    if (divides && y == 0) return absl::InvalidArgumentError("division by zero");
    if (left.As<double>() || right.As<double>() || op == "/") {
      if (op == "+") return x + y;
      if (op == "-") return x - y;
      if (op == "*") return x * y;
      if (op == "/") return x / y;
      return op == "//" ? std::floor(x / y) : x - y * std::floor(x / y);
    }
    constexpr double kLimit = 4e18;  // The integer results below cannot overflow.
    if (std::abs(x) > kLimit || std::abs(y) > kLimit || (op == "*" && std::abs(x * y) > kLimit)) {
      return absl::InvalidArgumentError("integer overflow");
    }
    const auto a = static_cast<int64_t>(left.As<bool>() ? x : *left.As<int64_t>());
    const auto b = static_cast<int64_t>(right.As<bool>() ? y : *right.As<int64_t>());
    if (op == "+") return a + b;
    if (op == "-") return a - b;
    if (op == "*") return a * b;
    return op == "//" ? FloorDivide(a, b) : a - b * FloorDivide(a, b);
  }

  absl::StatusOr<Value> CompareChain(const Expr& expr) {
    ASSIGN_OR_RETURN(Value left, Evaluate(*expr.operands[0]));
    for (size_t i = 0; i < expr.comparisons.size(); ++i) {
      ASSIGN_OR_RETURN(Value right, Evaluate(*expr.operands[i + 1]));
      ASSIGN_OR_RETURN(const bool holds, Compare(expr.comparisons[i], left, right));
      if (!holds) return false;
      left = std::move(right);
    }
    return true;
  }

  static absl::StatusOr<bool> Compare(const std::string& op, const Value& left, const Value& right) {
    if (op == "==") return left == right;
    if (op == "!=") return !(left == right);
    if (op == "in") return Contains(right, left);
    if (op == "not in") {
      ASSIGN_OR_RETURN(const bool contains, Contains(right, left));
      return !contains;
    }
    const auto *a = left.As<std::string>(), *b = right.As<std::string>();
    if (!(a && b) && !(left.IsNumber() && right.IsNumber())) {
      return absl::InvalidArgumentError(StrCat("cannot compare ", left.TypeName(), " ", op, " ", right.TypeName()));
    }
    const bool less = a ? *a < *b : left.ToDouble() < right.ToDouble();
    const bool equal = left == right;
    if (op == "<") return less;
    if (op == "<=") return less || equal;
    return op == ">" ? !less && !equal : !less;
  }

  static absl::StatusOr<Value> Member(const Value& object, const std::string& name) {
    if (const auto* undefined = object.As<Undefined>()) {
      return absl::InvalidArgumentError(StrCat("'", undefined->name, "' is undefined, so it has no '", name, "'"));
    }
    const Dict* dict = object.AsDict();
    return dict ? Lookup(*dict, name) : Value(Undefined{name});
  }

  absl::StatusOr<Value> Item(const Expr& expr) {
    ASSIGN_OR_RETURN(const Value object, Evaluate(*expr.operands[0]));
    ASSIGN_OR_RETURN(const Value key, Evaluate(*expr.operands[1]));
    if (const auto* name = key.As<std::string>()) return Member(object, *name);
    if (object.IsUndefined()) return Member(object, key.ToText());
    const auto* index = key.As<int64_t>();
    if (index == nullptr || object.AsDict() != nullptr) return Undefined{key.ToText()};
    const auto at = [&](const List& items) -> Value {
      const int64_t i = *index < 0 ? *index + static_cast<int64_t>(items.size()) : *index;
      return i >= 0 && i < static_cast<int64_t>(items.size()) ? items[i] : Value(Undefined{StrCat("[", *index, "]")});
    };
    if (const List* list = object.AsList()) return at(*list);
    ASSIGN_OR_RETURN(const List items, Items(object));
    return at(items);
  }

  absl::StatusOr<Value> Slice(const Expr& expr) {
    ASSIGN_OR_RETURN(const Value object, Evaluate(*expr.operands[0]));
    if (object.AsDict() != nullptr) return absl::InvalidArgumentError("cannot slice a dict");
    ASSIGN_OR_RETURN(const List items, Items(object));
    std::optional<int64_t> parts[3];  // start, stop, step
    for (int i = 0; i < 3; ++i) {
      if (expr.operands[i + 1] == nullptr) continue;
      ASSIGN_OR_RETURN(const Value value, Evaluate(*expr.operands[i + 1]));
      if (value.IsNone()) continue;
      if (value.As<int64_t>() == nullptr) return absl::InvalidArgumentError("a slice needs integers");
      parts[i] = *value.As<int64_t>();
    }
    const int64_t step = parts[2].value_or(1), size = static_cast<int64_t>(items.size());
    if (step == 0) return absl::InvalidArgumentError("a slice's step is 0");
    // As in Python, negative bounds count from the end. Bounds are then clamped to [0, size] for a
    // positive step, and to [-1, size - 1] for a negative step.
    const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
    const auto bound = [&](std::optional<int64_t> given, int64_t fallback) {
      return given ? std::clamp(*given < 0 ? *given + size : *given, low, high) : fallback;
    };
    const int64_t start = bound(parts[0], step > 0 ? low : high), stop = bound(parts[1], step > 0 ? high : low);
    const int64_t stride = std::clamp(step, -size - 1, size + 1);
    List chosen;
    for (int64_t i = start; step > 0 ? i < stop : i > stop; i += stride) chosen.push_back(items[i]);
    if (object.As<std::string>() == nullptr) return Value::MakeList(std::move(chosen));
    std::string text;
    for (const Value& point : chosen) text += point.ToText();
    return text;
  }

  absl::StatusOr<Arguments> EvaluateArguments(const Expr& expr, size_t from) {
    Arguments arguments;
    ASSIGN_OR_RETURN(arguments.positional, EvaluateAll(expr.operands, from));
    for (const auto& [name, operand] : expr.named) {
      ASSIGN_OR_RETURN(Value value, Evaluate(*operand));
      arguments.named.emplace_back(name, std::move(value));
    }
    return arguments;
  }

  absl::StatusOr<Value> Apply(const Expr& expr) {
    ASSIGN_OR_RETURN(const Value input, Evaluate(*expr.operands[0]));
    ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(expr, 1));
    if (expr.kind == ExprKind::kFilter) return ApplyFilter(expr.text, input, arguments);
    if (expr.kind == ExprKind::kMethod) return CallMethod(expr.text, input, arguments);
    ASSIGN_OR_RETURN(const bool holds, ApplyTest(expr.text, input, arguments));
    return holds != expr.negated;
  }

  absl::StatusOr<Value> Call(const Expr& expr) {
    ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(expr, 0));
    const Value callee = Variable(expr.text);
    if (const auto* macro = callee.As<const Macro*>()) return CallMacro(**macro, std::move(arguments));
    if (callee.As<Function>() == nullptr)
      return absl::InvalidArgumentError(StrCat("'", expr.text, "' cannot be called"));
    return CallFunction(expr.text, arguments, now_);
  }

  absl::StatusOr<Value> CallMacro(const Macro& macro, Arguments arguments) {
    if (arguments.positional.size() > macro.parameters.size()) {
      return absl::InvalidArgumentError(StrCat("macro '", macro.name, "': too many arguments"));
    }
    if (++call_depth_ > limits_.call_depth) {
      return absl::ResourceExhaustedError(StrCat("more than ", limits_.call_depth, " nested macro calls"));
    }
    // A macro can use the template's global variables and its parameters, but no variables of its
    // caller.
    std::vector<Dict> caller(std::make_move_iterator(scopes_.begin() + 1), std::make_move_iterator(scopes_.end()));
    scopes_.resize(1);
    scopes_.emplace_back();
    std::string text;
    const absl::Status done = RunMacro(macro, arguments, &text);
    scopes_.resize(1);
    std::move(caller.begin(), caller.end(), std::back_inserter(scopes_));
    --call_depth_;
    RETURN_IF_ERROR(done);
    return text;
  }

  absl::Status RunMacro(const Macro& macro, const Arguments& arguments, std::string* out) {
    for (size_t i = 0; i < macro.parameters.size(); ++i) {
      const auto& [name, fallback] = macro.parameters[i];
      Value value = arguments.Get(i, name);
      if (value.IsUndefined() && fallback != nullptr) {
        ASSIGN_OR_RETURN(value, Evaluate(*fallback));
      }
      Assign(&scopes_.back(), name, std::move(value));
    }
    Flow flow = Flow::kNext;
    return Execute(macro.body, out, &flow);
  }

  const absl::Time now_;
  const Limits limits_;
  std::vector<Dict> scopes_;  // from the template's globals to the innermost loop or macro
  int64_t steps_ = 0;
  int64_t bytes_ = 0;
  int call_depth_ = 0;
};

}  // namespace

absl::StatusOr<std::string> Run(const Body& body, const Dict& globals, absl::Time now, const Limits& limits) {
  std::string out;
  Flow flow = Flow::kNext;
  RETURN_IF_ERROR(Interpreter(globals, now, limits).Execute(body, &out, &flow));
  return out;
}

}  // namespace baton::jinja
