#include "base/diagnostics/triton.h"
#include "frontend/triton/parser_impl.h"

namespace neso::triton {

std::string_view spelling(OpKind op) {
  static constexpr std::string_view kNames[] = {"+",      "-",  "*",      "/",   "//", "%", "**", "@", "<<", ">>",
                                                "&",      "|",  "^",      "==",  "!=", "<", "<=", ">", ">=", "is",
                                                "is not", "in", "not in", "and", "or", "-", "+",  "~", "not"};
  return kNames[static_cast<size_t>(op)];
}

Expr *Parser::make(ExprKind kind, Pos pos) {
  tree_.exprs.emplace_back();
  Expr *e = &tree_.exprs.back();
  e->kind = kind;
  e->pos = pos;
  return e;
}
Stmt *Parser::make(StmtKind kind, Pos pos) {
  tree_.stmts.emplace_back();
  Stmt *s = &tree_.stmts.back();
  s->kind = kind;
  s->pos = pos;
  return s;
}
FunctionNode *Parser::makeFunction(Pos pos) {
  tree_.functions.emplace_back();
  tree_.functions.back().pos = pos;
  return &tree_.functions.back();
}

std::string Parser::describe(const Token &t) const {
  switch (t.kind) {
  case Tok::End: return "the end of the file";
  case Tok::Newline: return "the end of the line";
  case Tok::Indent: return "an indented line";
  case Tok::Dedent: return "the end of the block";
  case Tok::String:
  case Tok::FString: return "a string";
  default: return fmt::format("'{}'", t.text);
  }
}
void Parser::expected(std::string_view what) { fail(diag::PyExpected, cur().pos, what, describe(cur())); }
void Parser::expectOp(std::string_view s, std::string_view where) {
  if (!acceptOp(s)) expected(fmt::format("'{}' {}", s, where));
}
void Parser::expectKw(std::string_view s, std::string_view where) {
  if (!acceptKw(s)) expected(fmt::format("'{}' {}", s, where));
}
void Parser::expectNewline() {
  if (at(Tok::Newline)) return next();
  if (!at(Tok::End)) expected("the end of the line");
}
std::string_view Parser::expectName(std::string_view what) {
  if (!at(Tok::Name)) {
    expected(what);
    return {};
  }
  std::string_view s = cur().text;
  next();
  return s;
}

std::vector<Stmt *> Parser::file() {
  std::vector<Stmt *> out;
  while (!at(Tok::End)) {
    if (at(Tok::Newline)) {
      next();
      continue;
    }
    if (at(Tok::Indent)) {
      fail(diag::PyUnexpectedIndent, cur().pos);
      break;
    }
    statement(out);
  }
  return out;
}

void Parser::statement(std::vector<Stmt *> &out) {
  Depth depth(*this);
  if (error_) return;
  Stmt *s = nullptr;
  if (atOp("@"))
    s = decorated();
  else if (atKw("def"))
    s = function({}, false);
  else if (atKw("class"))
    s = classDef({});
  else if (atKw("if"))
    s = ifStatement();
  else if (atKw("for"))
    s = forStatement(false);
  else if (atKw("while"))
    s = whileStatement();
  else if (atKw("try"))
    s = tryStatement();
  else if (atKw("with"))
    s = withStatement();
  else if (atKw("async")) {
    next();
    if (atKw("def"))
      s = function({}, true);
    else if (atKw("for"))
      s = forStatement(true);
    else if (atKw("with"))
      s = withStatement();
    else
      expected("'def', 'for' or 'with' after 'async'");
  } else if (looksLikeMatch())
    s = matchStatement();
  else
    return simpleLine(out);
  if (s) out.push_back(s);
}

void Parser::simpleLine(std::vector<Stmt *> &out) {
  while (!error_) {
    if (Stmt *s = simple()) out.push_back(s);
    if (!acceptOp(";")) break;
    if (at(Tok::Newline) || at(Tok::End)) break;
  }
  expectNewline();
}

Stmt *Parser::simple() {
  Pos pos = cur().pos;
  auto flag = [&](StmtKind k) {
    next();
    return make(k, pos);
  };
  if (at(Tok::Keyword)) {
    if (atKw("pass")) return flag(StmtKind::Pass);
    if (atKw("break")) return flag(StmtKind::Break);
    if (atKw("continue")) return flag(StmtKind::Continue);
    if (atKw("return")) {
      Stmt *s = flag(StmtKind::Return);
      if (!at(Tok::Newline) && !at(Tok::End) && !atOp(";")) s->value = exprList();
      return s;
    }
    if (atKw("raise")) {
      Stmt *s = flag(StmtKind::Raise);
      if (!at(Tok::Newline) && !at(Tok::End) && !atOp(";")) {
        s->exprs.push_back(expression());
        if (acceptKw("from")) s->exprs.push_back(expression());
      }
      return s;
    }
    if (atKw("del")) {
      Stmt *s = flag(StmtKind::Delete);
      s->exprs.push_back(targetList());
      return s;
    }
    if (atKw("assert")) {
      Stmt *s = flag(StmtKind::Assert);
      s->value = expression();
      if (acceptOp(",")) s->exprs.push_back(expression());
      return s;
    }
    if (atKw("global") || atKw("nonlocal")) {
      Stmt *s = flag(atKw("global") ? StmtKind::Global : StmtKind::Nonlocal);
      do expectName("a name");
      while (acceptOp(","));
      return s;
    }
    if (atKw("import")) return import();
    if (atKw("from")) return importFrom();
  }
  if (atSoft("type") && peek().kind == Tok::Name) {
    const Token &after = peek(2);
    if (after.kind == Tok::Op && (after.text == "=" || after.text == "[")) {
      next();
      Stmt *s = make(StmtKind::TypeAlias, pos);
      s->text = expectName("a name");
      typeParams();
      expectOp("=", "in a type alias");
      s->value = expression();
      return s;
    }
  }
  return expressionStatement();
}

std::string_view Parser::dottedName() {
  size_t b = cur().begin, e = cur().end;
  expectName("a module name");
  while (atOp(".")) {
    next();
    e = cur().end;
    expectName("a module name");
  }
  return tree_.source->text().substr(b, e - b);
}

Stmt *Parser::import() {
  Stmt *s = make(StmtKind::Import, cur().pos);
  next();
  do {
    ImportName n;
    n.pos = cur().pos;
    n.name = dottedName();
    if (acceptKw("as")) n.alias = expectName("a name after 'as'");
    s->names.push_back(n);
  } while (acceptOp(","));
  return s;
}

Stmt *Parser::importFrom() {
  Stmt *s = make(StmtKind::ImportFrom, cur().pos);
  next();
  while (atOp(".") || atOp("...")) {
    s->level += static_cast<int>(cur().text.size());
    next();
  }
  if (!atKw("import")) s->text = dottedName();
  expectKw("import", "in 'from … import …'");
  if (atOp("*")) {
    s->names.push_back({"*", {}, cur().pos});
    next();
    return s;
  }
  bool paren = acceptOp("(");
  do {
    if (paren && atOp(")")) break;
    ImportName n;
    n.pos = cur().pos;
    n.name = expectName("a name to import");
    if (acceptKw("as")) n.alias = expectName("a name after 'as'");
    s->names.push_back(n);
  } while (acceptOp(","));
  if (paren) expectOp(")", "after the imported names");
  return s;
}

void Parser::checkTarget(Expr *e) {
  if (error_) return;
  switch (e->kind) {
  case ExprKind::Name:
  case ExprKind::Attribute:
  case ExprKind::Subscript: return;
  case ExprKind::Starred: return checkTarget(e->items[0]);
  case ExprKind::Tuple:
  case ExprKind::List:
    for (Expr *i : e->items) checkTarget(i);
    return;
  default: fail(diag::PyBadTarget, e->pos);
  }
}

Stmt *Parser::expressionStatement() {
  Pos pos = cur().pos;
  static constexpr std::pair<std::string_view, OpKind> kAugmented[] = {
      {"+=", OpKind::Add},       {"-=", OpKind::Sub},     {"*=", OpKind::Mul},    {"/=", OpKind::Div},
      {"//=", OpKind::FloorDiv}, {"%=", OpKind::Mod},     {"**=", OpKind::Pow},   {"@=", OpKind::MatMul},
      {"<<=", OpKind::LShift},   {">>=", OpKind::RShift}, {"&=", OpKind::BitAnd}, {"|=", OpKind::BitOr},
      {"^=", OpKind::BitXor}};
  Expr *first = exprList();
  if (error_) return nullptr;
  if (acceptOp(":")) {
    checkTarget(first);
    Stmt *s = make(StmtKind::AnnAssign, pos);
    s->exprs.push_back(first);
    s->annotation = expression();
    if (acceptOp("=")) s->value = exprList();
    return s;
  }
  for (const std::pair<std::string_view, OpKind> &a : kAugmented)
    if (atOp(a.first)) {
      next();
      checkTarget(first);
      Stmt *s = make(StmtKind::AugAssign, pos);
      s->op = a.second;
      s->exprs.push_back(first);
      s->value = exprList();
      return s;
    }
  if (!atOp("=")) {
    Stmt *s = make(StmtKind::Expr, pos);
    s->value = first;
    return s;
  }
  Stmt *s = make(StmtKind::Assign, pos);
  Expr *value = first;
  while (acceptOp("=")) {
    checkTarget(value);
    s->exprs.push_back(value);
    value = exprList();
    if (error_) return nullptr;
  }
  s->value = value;
  return s;
}

std::vector<Stmt *> Parser::block(std::string_view after) {
  std::vector<Stmt *> out;
  expectOp(":", fmt::format("after {}", after));
  if (!at(Tok::Newline)) {
    if (at(Tok::End) && !error_) expected(fmt::format("a block after {}", after));
    simpleLine(out);
    return out;
  }
  next();
  if (!at(Tok::Indent)) {
    fail(diag::PyExpectedBlock, cur().pos, after);
    return out;
  }
  next();
  while (!at(Tok::Dedent) && !at(Tok::End)) {
    if (at(Tok::Newline))
      next();
    else if (at(Tok::Indent))
      fail(diag::PyUnexpectedIndent, cur().pos);
    else
      statement(out);
  }
  if (at(Tok::Dedent)) next();
  return out;
}

Stmt *Parser::ifStatement() {
  Depth depth(*this);
  Stmt *s = make(StmtKind::If, cur().pos);
  next();
  s->value = namedExpr();
  s->body = block("'if'");
  if (atKw("elif"))
    s->orelse.push_back(ifStatement());
  else if (acceptKw("else"))
    s->orelse = block("'else'");
  return s;
}

Stmt *Parser::forStatement(bool isAsync) {
  Stmt *s = make(StmtKind::For, cur().pos);
  s->level = isAsync ? 1 : 0;
  next();
  Expr *target = targetList();
  checkTarget(target);
  s->exprs.push_back(target);
  expectKw("in", "in a 'for'");
  s->value = exprList();
  s->body = block("'for'");
  if (acceptKw("else")) s->orelse = block("'else'");
  return s;
}

Stmt *Parser::whileStatement() {
  Stmt *s = make(StmtKind::While, cur().pos);
  next();
  s->value = namedExpr();
  s->body = block("'while'");
  if (acceptKw("else")) s->orelse = block("'else'");
  return s;
}

Stmt *Parser::tryStatement() {
  Stmt *s = make(StmtKind::Try, cur().pos);
  next();
  s->body = block("'try'");
  bool any = false;
  while (atKw("except")) {
    any = true;
    next();
    acceptOp("*");
    if (!atOp(":")) {
      exprList();
      if (acceptKw("as")) expectName("a name after 'as'");
    }
    s->handlers.push_back(block("'except'"));
  }
  if (acceptKw("else")) s->orelse = block("'else'");
  if (acceptKw("finally"))
    s->finalbody = block("'finally'");
  else if (!any)
    expected("'except' or 'finally'");
  return s;
}

Stmt *Parser::withStatement() {
  Stmt *s = make(StmtKind::With, cur().pos);
  next();
  // `with (a as b, c):` against `with (a, b):` and `with (a) as b:`: a parenthesis that holds `as` at its own level
  // opens a list.
  bool paren = false;
  if (atOp("(")) {
    int nest = 0;
    for (size_t j = i_; j < tokens_.size(); ++j) {
      const Token &t = tokens_[j];
      if (t.kind == Tok::Op && t.text.find_first_of("([{") == 0) ++nest;
      if (t.kind == Tok::Op && t.text.find_first_of(")]}") == 0 && --nest == 0) break;
      if (nest == 1 && t.kind == Tok::Keyword && t.text == "as") paren = true;
    }
  }
  if (paren) next();
  do {
    if (paren && atOp(")")) break;
    s->exprs.push_back(expression());
    s->targets.push_back(acceptKw("as") ? starOrNamed() : nullptr);
  } while (acceptOp(","));
  if (paren) expectOp(")", "after the items of 'with'");
  s->body = block("'with'");
  return s;
}

void Parser::typeParams() {
  if (!atOp("[")) return;
  int nest = 0;
  do {
    if (atOp("[")) ++nest;
    if (atOp("]")) --nest;
    next();
  } while (nest > 0 && !at(Tok::End));
}

void Parser::params(std::vector<Param> &out, std::string_view close, bool annotations) {
  bool keywordOnly = false;
  while (!atOp(close) && !at(Tok::End)) {
    Param p;
    p.pos = cur().pos;
    if (acceptOp("/")) {
      if (!acceptOp(",")) break;
      continue;
    }
    if (acceptOp("*")) {
      if (atOp(",")) {
        keywordOnly = true;
        next();
        continue;
      }
      p.kind = Param::Star;
      keywordOnly = true;
    } else if (acceptOp("**")) {
      p.kind = Param::DoubleStar;
    } else if (keywordOnly) {
      p.kind = Param::KeywordOnly;
    }
    p.name = expectName("a parameter name");
    for (const Param &q : out)
      if (!error_ && q.name == p.name) fail(diag::PyDuplicateParam, p.pos, p.name);
    if (annotations && acceptOp(":")) p.annotation = p.kind == Param::Star && atOp("*") ? starOrNamed() : expression();
    if (acceptOp("="))
      p.fallback = expression();
    else if (p.kind == Param::Plain && !out.empty() && out.back().kind == Param::Plain && out.back().fallback)
      fail(diag::PyDefaultOrder, p.pos, p.name);
    out.push_back(p);
    if (!acceptOp(",")) break;
  }
}

Stmt *Parser::function(std::vector<Expr *> decorators, bool isAsync) {
  Pos pos = cur().pos;
  next();
  FunctionNode *f = makeFunction(pos);
  f->name = expectName("a function name");
  f->isAsync = isAsync;
  f->decorators = std::move(decorators);
  typeParams();
  expectOp("(", "after the function's name");
  params(f->params, ")", true);
  expectOp(")", "after the parameters");
  if (acceptOp("->")) f->returns = expression();
  f->body = block("the function's head");
  Stmt *s = make(StmtKind::Function, pos);
  s->text = f->name;
  s->function = f;
  return s;
}

Stmt *Parser::classDef(std::vector<Expr *> decorators) {
  Stmt *s = make(StmtKind::Class, cur().pos);
  next();
  s->text = expectName("a class name");
  s->decorators = std::move(decorators);
  typeParams();
  if (acceptOp("(")) {
    while (!atOp(")") && !at(Tok::End)) {
      if (at(Tok::Name) && peek().kind == Tok::Op && peek().text == "=") {
        next();
        next();
        expression();
      } else if (acceptOp("**")) {
        expression();
      } else {
        s->exprs.push_back(starOrNamed());
      }
      if (!acceptOp(",")) break;
    }
    expectOp(")", "after the base classes");
  }
  s->body = block("the class's head");
  return s;
}

Stmt *Parser::decorated() {
  std::vector<Expr *> decorators;
  while (acceptOp("@")) {
    decorators.push_back(namedExpr());
    expectNewline();
    while (at(Tok::Newline)) next();
  }
  if (atKw("def")) return function(std::move(decorators), false);
  if (atKw("class")) return classDef(std::move(decorators));
  if (atKw("async") && peek().kind == Tok::Keyword && peek().text == "def") {
    next();
    return function(std::move(decorators), true);
  }
  expected("'def' or 'class' after a decorator");
  return nullptr;
}

/// `match` is a name unless its line ends in ':' and the next line starts with `case`.
bool Parser::looksLikeMatch() const {
  if (!atSoft("match")) return false;
  const Token &after = peek();
  if (after.kind == Tok::Newline || after.kind == Tok::End) return false;
  if (after.kind == Tok::Op && after.text.find_first_of("([{-*~") == std::string_view::npos && after.text != "...")
    return false;
  if (after.kind == Tok::Keyword && after.text != "not" && after.text != "None" && after.text != "True" &&
      after.text != "False" && after.text != "await" && after.text != "lambda")
    return false;
  for (size_t j = i_ + 1; j + 3 < tokens_.size(); ++j)
    if (tokens_[j].kind == Tok::Newline)
      return tokens_[j - 1].text == ":" && tokens_[j + 1].kind == Tok::Indent && tokens_[j + 2].text == "case";
  return false;
}

/// Patterns are read over, not kept: no kernel may use them.
void Parser::skipPattern() {
  int nest = 0;
  while (!at(Tok::End) && !at(Tok::Newline)) {
    if (at(Tok::Op)) {
      if (cur().text.find_first_of("([{") == 0) ++nest;
      if (cur().text.find_first_of(")]}") == 0) --nest;
      if (nest == 0 && cur().text == ":") return;
    }
    if (nest == 0 && acceptKw("if")) {
      namedExpr();
      return;
    }
    next();
  }
}

Stmt *Parser::matchStatement() {
  Stmt *s = make(StmtKind::Match, cur().pos);
  next();
  s->value = exprList();
  expectOp(":", "after 'match'");
  expectNewline();
  if (!at(Tok::Indent)) expected("an indented 'case'");
  next();
  while (atSoft("case")) {
    next();
    skipPattern();
    s->handlers.push_back(block("'case'"));
  }
  if (at(Tok::Dedent))
    next();
  else
    expected("'case' or the end of the block");
  return s;
}

Result<std::shared_ptr<SyntaxTree>> parse(std::shared_ptr<Source> source) {
  std::shared_ptr<SyntaxTree> tree = std::make_shared<SyntaxTree>();
  tree->source = source;
  Result<std::vector<Token>> tokens = lex(*source);
  if (!tokens) return tokens.takeError();
  Parser parser(*tree, std::move(*tokens));
  tree->body = parser.file();
  if (parser.error()) return Error(*parser.error());
  return tree;
}

} // namespace neso::triton
