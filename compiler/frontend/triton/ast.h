// The syntax tree of a Python module: expressions, statements, functions. All of Python's statements parse; what a
// kernel may use is decided later, where it is used.
//
// Nodes live in the arena of their Module and are never freed one by one; pointers are non-owning and never null unless
// said so. Every node knows its place (line and column from 1).
#pragma once
#include "frontend/triton/source.h"

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace neso::triton {

enum class ExprKind : uint8_t {
  None,
  True,
  False,
  Ellipsis,
  Int,
  Float,
  Imaginary,
  String,
  Bytes,
  JoinedStr,
  Name,
  Attribute,
  Subscript,
  Slice,
  Call,
  Unary,
  Binary,
  Bool,
  Compare,
  IfExp,
  Lambda,
  Tuple,
  List,
  Set,
  Dict,
  Comprehension,
  Named,
  Starred,
  Await,
  Yield,
};

enum class OpKind : uint8_t {
  Add,
  Sub,
  Mul,
  Div,
  FloorDiv,
  Mod,
  Pow,
  MatMul,
  LShift,
  RShift,
  BitAnd,
  BitOr,
  BitXor, // Binary and augmented assignment
  Eq,
  Ne,
  Lt,
  Le,
  Gt,
  Ge,
  Is,
  IsNot,
  In,
  NotIn, // Compare
  And,
  Or, // Bool
  Neg,
  Pos,
  Invert,
  Not, // Unary
};
/// "+", "is not", …
std::string_view spelling(OpKind op);

struct Expr;
struct FunctionNode;

struct Keyword {
  std::string_view name; // empty: **value
  Expr *value = nullptr;
  Pos pos;
};

struct ComprehensionFor {
  Expr *target = nullptr;
  Expr *iter = nullptr;
  std::vector<Expr *> conditions;
};

/// One expression. Which members are used depends on `kind`:
///   Int: big ? text : integer          Float: number           String/Bytes: string (escapes resolved)
///   JoinedStr: items (String parts and fields; a field's text is its conversion and format spec, "!r:x")
///   Name: text      Attribute: items[0] . text      Subscript: items[0] [ items[1] ]   Slice: items = {lo, hi, step}, each may be null
///   Call: items[0] ( items[1…], keywords )          Unary: op items[0]                 Binary: items[0] op items[1]
///   Bool: items joined by op            Compare: items[0] ops[0] items[1] ops[1] …     IfExp: items = {then, condition, else}
///   Lambda: function                    Tuple, List, Set: items                        Dict: items = {k, v, …}; k null: **v
///   Comprehension: text ("list", "set", "dict", "generator"), items (element, or key and value), clauses
///   Named: text := items[0]             Starred, Await, Yield: items[0] (Yield may have none)
struct Expr {
  ExprKind kind;
  OpKind op = OpKind::Add;
  bool big = false;
  bool parenthesized = false;
  Pos pos;
  std::string_view text;
  __int128 integer = 0;
  double number = 0;
  std::string string;
  std::vector<Expr *> items;
  std::vector<OpKind> ops;
  std::vector<Keyword> keywords;
  std::vector<ComprehensionFor> clauses;
  FunctionNode *function = nullptr;
};

enum class StmtKind : uint8_t {
  Function,
  Class,
  Return,
  Delete,
  Assign,
  AugAssign,
  AnnAssign,
  For,
  While,
  If,
  With,
  Raise,
  Try,
  Assert,
  Import,
  ImportFrom,
  Global,
  Nonlocal,
  Expr,
  Pass,
  Break,
  Continue,
  Match,
  TypeAlias,
};

struct ImportName {
  std::string_view name; // dotted for `import a.b`
  std::string_view alias;
  Pos pos;
};

/// One statement:
///   Function: function     Class: text, exprs = bases, keywords dropped, decorators, body
///   Return: value or null  Delete: exprs           Assign: exprs = targets, value       AugAssign: exprs[0] op= value
///   AnnAssign: exprs[0] : annotation = value (may be null)
///   For: exprs[0] in value: body else orelse       While: value: body else orelse       If: value: body else orelse
///   With: exprs = contexts, body (targets in `targets`, may be null)                    Raise: exprs
///   Try: body, handlers (each a block), orelse, finalbody                               Assert: value, exprs = message
///   Import: names          ImportFrom: text = module, level = dots, names ("*" for all) Global, Nonlocal: nothing kept
///   Expr: value            Match: value, handlers = the cases' blocks
struct Stmt {
  StmtKind kind;
  OpKind op = OpKind::Add;
  int level = 0;
  Pos pos;
  std::string_view text;
  Expr *value = nullptr;
  Expr *annotation = nullptr;
  std::vector<Expr *> exprs;
  std::vector<Expr *> targets;
  std::vector<Stmt *> body;
  std::vector<Stmt *> orelse;
  std::vector<Stmt *> finalbody;
  std::vector<std::vector<Stmt *>> handlers;
  std::vector<ImportName> names;
  std::vector<Expr *> decorators;
  FunctionNode *function = nullptr;
};

struct Param {
  enum Kind : uint8_t { Plain, KeywordOnly, Star, DoubleStar };
  std::string_view name;
  Expr *annotation = nullptr; // or null
  Expr *fallback = nullptr;   // default value, or null
  Kind kind = Plain;
  Pos pos;
};

/// A `def` or a `lambda` (whose `body` is empty and whose `expr` is set).
struct FunctionNode {
  std::string_view name;
  Pos pos;
  std::vector<Param> params;
  std::vector<Expr *> decorators;
  Expr *returns = nullptr;
  std::vector<Stmt *> body;
  Expr *expr = nullptr;
  bool isAsync = false;
};

/// A parsed file: its source, its statements and the arena they live in.
struct SyntaxTree {
  std::shared_ptr<Source> source;
  std::vector<Stmt *> body;
  std::deque<Expr> exprs;
  std::deque<Stmt> stmts;
  std::deque<FunctionNode> functions;
};

} // namespace neso::triton
