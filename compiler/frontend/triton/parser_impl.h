// The parser's state and helpers, shared by parser.cpp (statements) and parse_expr.cpp (expressions).
//
// After the first error the parser stands at End for good: every loop sees End and stops, results are discarded by
// parse().
#pragma once
#include "base/diagnostics/triton.h"
#include "frontend/triton/lexer.h"
#include "frontend/triton/parser.h"

namespace neso::triton {

class Parser {
public:
  Parser(SyntaxTree &tree, std::vector<Token> tokens) : tree_(tree), tokens_(std::move(tokens)) {}
  std::vector<Stmt *> file();
  /// A lone expression list up to End: the inside of an f-string's field.
  Expr *fieldExpression();
  const std::optional<Diagnostic> &error() const { return error_; }

private:
  // tokens
  const Token &cur() const { return error_ ? tokens_.back() : tokens_[i_]; }
  const Token &peek(size_t n = 1) const {
    return error_ ? tokens_.back() : tokens_[std::min(i_ + n, tokens_.size() - 1)];
  }
  bool at(Tok k) const { return cur().kind == k; }
  bool atOp(std::string_view s) const { return cur().kind == Tok::Op && cur().text == s; }
  bool atKw(std::string_view s) const { return cur().kind == Tok::Keyword && cur().text == s; }
  bool atSoft(std::string_view s) const { return cur().kind == Tok::Name && cur().text == s; }
  void next() {
    if (i_ + 1 < tokens_.size()) ++i_;
  }
  bool acceptOp(std::string_view s) {
    if (!atOp(s)) return false;
    next();
    return true;
  }
  bool acceptKw(std::string_view s) {
    if (!atKw(s)) return false;
    next();
    return true;
  }
  void expectOp(std::string_view s, std::string_view where);
  void expectKw(std::string_view s, std::string_view where);
  void expectNewline();
  std::string_view expectName(std::string_view what);
  std::string describe(const Token &t) const;
  void expected(std::string_view what);
  template <typename... Args> void fail(Diag kind, Pos pos, const Args &...args) {
    if (!error_) error_ = tree_.source->diag(kind, pos, args...);
  }

  // nodes
  Expr *make(ExprKind kind, Pos pos);
  Stmt *make(StmtKind kind, Pos pos);
  FunctionNode *makeFunction(Pos pos);

  // statements (parser.cpp)
  void statement(std::vector<Stmt *> &out);
  void simpleLine(std::vector<Stmt *> &out);
  Stmt *simple();
  Stmt *importFrom();
  Stmt *import();
  std::string_view dottedName();
  Stmt *expressionStatement();
  std::vector<Stmt *> block(std::string_view after);
  Stmt *ifStatement();
  Stmt *forStatement(bool isAsync);
  Stmt *whileStatement();
  Stmt *tryStatement();
  Stmt *withStatement();
  Stmt *function(std::vector<Expr *> decorators, bool isAsync);
  Stmt *classDef(std::vector<Expr *> decorators);
  Stmt *decorated();
  Stmt *matchStatement();
  bool looksLikeMatch() const;
  void skipPattern();
  void typeParams();
  void params(std::vector<Param> &out, std::string_view close, bool annotations);
  void checkTarget(Expr *e);

  // expressions (parse_expr.cpp)
  Expr *exprList(bool star = true); // a, *b, c  (a tuple when there is a comma)
  Expr *namedExpr();                // x := e  or an expression
  Expr *starOrNamed();
  Expr *expression(); // ternary, lambda
  Expr *targetList();
  Expr *lambda();
  Expr *orTest();
  Expr *andTest();
  Expr *notTest();
  Expr *comparison();
  Expr *binary(int level);
  Expr *factor();
  Expr *power();
  Expr *primary();
  Expr *atom();
  Expr *call(Expr *callee);
  Expr *subscript(Expr *base);
  Expr *slice();
  Expr *parenthesised();
  Expr *listDisplay();
  Expr *braceDisplay();
  Expr *strings();
  Expr *number();
  bool atComprehension() const {
    return atKw("for") || (atKw("async") && peek().kind == Tok::Keyword && peek().text == "for");
  }
  void clauses(std::vector<ComprehensionFor> &out);
  void fstring(const Token &t, std::vector<Expr *> &parts);
  void fstringBody(const Token &t, size_t b, size_t e, Pos pos, std::vector<Expr *> &parts);
  std::optional<size_t> fstringField(size_t i, size_t e, Pos pos, std::vector<Expr *> &parts);
  std::string unescape(std::string_view body, bool bytes, Pos pos);
  void addText(std::vector<Expr *> &parts, std::string text, Pos pos);

  struct Depth {
    Parser &p;
    explicit Depth(Parser &parser) : p(parser) {
      if (++p.depth_ > 200) p.fail(diag::PyTooDeep, p.tokens_[p.i_].pos, "expressions or blocks", 200);
    }
    ~Depth() { --p.depth_; }
  };

  SyntaxTree &tree_;
  std::vector<Token> tokens_;
  size_t i_ = 0;
  int depth_ = 0;
  bool noIn_ = false; // inside a `for` target: `in` is not an operator
  std::optional<Diagnostic> error_;
};

} // namespace neso::triton
