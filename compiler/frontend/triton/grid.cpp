// Launch grids: evaluated with the values of one launch, or read as expressions of values that a launch will bring.
#include "base/diagnostics/triton.h"
#include "frontend/triton/evaluator.h"
#include "frontend/triton/parser.h"
#include "frontend/triton/triton.h"

#include <algorithm>

namespace neso::triton {

Result<std::vector<int64_t>> evaluateGrid(const std::string &text, const std::vector<NamedText> &values) {
  std::string program = "import triton\nimport triton.language as tl\nimport math\n";
  std::string dict;
  for (const NamedText &v : values) {
    program += v.first + " = " + v.second + "\n";
    dict += "'" + v.first + "': " + v.second + ", ";
  }
  program += "__meta = {" + dict + "}\n__grid = " + text + "\n";
  Result<std::shared_ptr<SyntaxTree>> tree = parse(std::make_shared<Source>("<grid>", program));
  if (!tree) return tree.takeError();
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  Loader loader({});
  Context c(&context);
  Evaluator e(c, loader, {});
  Module m;
  m.path = "<grid>";
  m.tree = *tree;
  Value grid = e.runModule(m, "__grid");
  if (grid.kind == Kind::Function) grid = e.callIn(m, grid, {e.global(&m, "__meta")});
  if (grid.isIntLike()) grid = c.tuple({grid});
  if (c.error) return Error(*c.error);
  if (!grid.isSequence() || grid.items().empty() || grid.items().size() > 3)
    return fail(diag::TrConstexprValue, {}, text, "grid");
  std::vector<int64_t> out(3, 1);
  for (size_t i = 0; i < grid.items().size(); ++i) {
    if (!grid.items()[i].isIntLike()) return fail(diag::TrConstexprValue, {}, text, "grid");
    out[i] = static_cast<int64_t>(grid.items()[i].i);
  }
  return out;
}

namespace {

using Size = neso::Expr;

/// One grid on its way from Python to sizes. The first thing that is no size ends it: `why` says which.
class GridReader {
public:
  explicit GridReader(const std::vector<std::pair<std::string, Size>> &names) : names_(names) {}

  std::vector<Size> read(Expr *e) {
    if (e->kind == ExprKind::Lambda) {
      if (e->function->params.size() != 1) return refuse("a lambda takes one argument, the values by name");
      meta_ = e->function->params[0].name;
      e = e->function->expr;
    }
    std::vector<Size> out;
    if (e->kind == ExprKind::Tuple || e->kind == ExprKind::List)
      for (Expr *item : e->items) out.push_back(size(item));
    else
      out.push_back(size(e));
    if (out.empty() || out.size() > 3) return refuse("a grid has one to three sizes");
    out.resize(3, Size(1));
    return out;
  }
  const std::string &why() const { return why_; }

private:
  std::vector<Size> refuse(const std::string &why) {
    if (why_.empty()) why_ = why;
    return {};
  }
  Size no(const std::string &why) {
    refuse(why);
    return Size(1);
  }

  Size named(std::string_view name) {
    for (const auto &[known, value] : names_)
      if (known == name) return value;
    std::string known;
    for (const auto &[other, value] : names_) known += (known.empty() ? "" : ", ") + other;
    return no(fmt::format("'{}' is no integer that a launch or a config gives{}", name, known.empty() ? "" : "; those are " + known));
  }

  /// A divisor that may be 0 in a branch that is not taken would fail a launch for which Python finds a grid.
  Size divisor(Expr *e) {
    Size d = size(e);
    if (branches_ && !d.isConst()) return no("inside of a condition it divides by what the launch brings");
    if (d.isConst(0)) return no("it divides by zero");
    return d;
  }

  Size binary(Expr *e) {
    if (e->op == OpKind::FloorDiv || e->op == OpKind::Mod) {
      Size a = size(e->items[0]), b = divisor(e->items[1]);
      return e->op == OpKind::FloorDiv ? floorDiv(a, b) : mod(a, b);
    }
    Size a = size(e->items[0]), b = size(e->items[1]);
    const bool shift = e->op == OpKind::LShift || e->op == OpKind::RShift;
    if ((shift || e->op == OpKind::Pow) && !(b.isConst() && b.constValue() >= 0 && b.constValue() < 62))
      return no("the second operand of <<, >> and ** must be a number from 0 to 61");
    const Size power = shift ? Size(int64_t{1} << b.constValue()) : Size(0);
    switch (e->op) {
    case OpKind::Add: return a + b;
    case OpKind::Sub: return a - b;
    case OpKind::Mul: return a * b;
    case OpKind::Pow: return pow(a, b);
    case OpKind::LShift: return a * power;
    case OpKind::RShift: return floorDiv(a, power);
    default: return no(fmt::format("operator {} gives no integer here", spelling(e->op)));
    }
  }

  Size compare(Expr *e) {
    Size all(1), left = size(e->items[0]);
    for (size_t i = 0; i < e->ops.size(); ++i) {
      Size right = size(e->items[i + 1]), one(1);
      switch (e->ops[i]) {
      case OpKind::Eq: one = eq(left, right); break;
      case OpKind::Ne: one = ne(left, right); break;
      case OpKind::Lt: one = lt(left, right); break;
      case OpKind::Le: one = le(left, right); break;
      case OpKind::Gt: one = gt(left, right); break;
      case OpKind::Ge: one = ge(left, right); break;
      default: return no(fmt::format("'{}' does not compare sizes", spelling(e->ops[i])));
      }
      all = logicalAnd(all, one), left = right;
    }
    return all;
  }

  Size call(Expr *e) {
    const Expr *called = e->items[0];
    const bool ofTriton = called->kind == ExprKind::Attribute && called->items[0]->kind == ExprKind::Name && called->items[0]->text == "triton" && called->text == "cdiv";
    std::string_view name = ofTriton || called->kind == ExprKind::Name ? called->text : "";
    std::vector<Expr *> args(e->items.begin() + 1, e->items.end());
    if (!e->keywords.empty()) name = "";
    if (name == "cdiv" && args.size() == 2) {
      Size a = size(args[0]), b = divisor(args[1]);
      return floorDiv(a + b - Size(1), b);
    }
    if (name == "int" && args.size() == 1) return size(args[0]);
    if ((name == "min" || name == "max") && args.size() > 1) {
      Size out = size(args[0]);
      for (size_t i = 1; i < args.size(); ++i) out = name == "min" ? min(out, size(args[i])) : max(out, size(args[i]));
      return out;
    }
    return no("of functions it may call cdiv, min, max and int, with sizes");
  }

  Size size(Expr *e) {
    switch (e->kind) {
    case ExprKind::True: return Size(1);
    case ExprKind::False: return Size(0);
    case ExprKind::Int:
      if (e->big || e->integer > INT32_MAX) return no("a number in it is greater than 2147483647");
      return Size(static_cast<int64_t>(e->integer));
    case ExprKind::Name: return named(e->text);
    case ExprKind::Subscript:
      if (e->items[0]->kind == ExprKind::Name && e->items[0]->text == meta_ && e->items[1]->kind == ExprKind::String)
        return named(e->items[1]->string);
      return no("only the lambda's argument is indexed, by a name");
    case ExprKind::Call: return call(e);
    case ExprKind::Binary: return binary(e);
    case ExprKind::Compare: return compare(e);
    case ExprKind::Unary: {
      Size a = size(e->items[0]);
      return e->op == OpKind::Neg ? -a : e->op == OpKind::Pos ? a : e->op == OpKind::Not ? eq(a, Size(0)) : no("operator ~ gives no size");
    }
    case ExprKind::Bool: {
      // Python gives the operand that decides.
      Size out = size(e->items[0]);
      ++branches_;
      for (size_t i = 1; i < e->items.size(); ++i) {
        const Size next = size(e->items[i]), isTrue = ne(out, Size(0));
        out = e->op == OpKind::And ? where(isTrue, next, out) : where(isTrue, out, next);
      }
      --branches_;
      return out;
    }
    case ExprKind::IfExp: {
      const Size condition = ne(size(e->items[1]), Size(0));
      ++branches_;
      const Size yes = size(e->items[0]), otherwise = size(e->items[2]);
      --branches_;
      return where(condition, yes, otherwise);
    }
    default: return no("it may hold integers, names, arithmetic, comparisons, cdiv, min and max");
    }
  }

  const std::vector<std::pair<std::string, Size>> &names_;
  std::string_view meta_;
  std::string why_;
  int branches_ = 0; // around what is read
};

} // namespace

Result<std::vector<neso::Expr>> gridExpressions(const std::string &text, const std::vector<std::pair<std::string, neso::Expr>> &names) {
  Result<std::shared_ptr<SyntaxTree>> tree = parse(std::make_shared<Source>("<grid>", "(" + text + ")\n"));
  if (!tree) return tree.takeError();
  const std::vector<Stmt *> &body = (*tree)->body;
  if (body.size() != 1 || body[0]->kind != StmtKind::Expr) return fail(diag::TrGridRule, {}, text, "it is no expression");
  GridReader reader(names);
  std::vector<neso::Expr> out = reader.read(body[0]->value);
  if (!reader.why().empty()) return fail(diag::TrGridRule, {}, text, reader.why());
  return out;
}

} // namespace neso::triton
