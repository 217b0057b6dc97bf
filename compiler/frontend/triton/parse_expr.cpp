#include "base/diagnostics/triton.h"
#include "frontend/triton/parser_impl.h"

#include <charconv>

namespace neso::triton {

Expr *Parser::fieldExpression() {
  Expr *e = atKw("yield") ? atom() : exprList();
  if (!error_ && !at(Tok::End)) expected("the end of the expression");
  return e;
}

Expr *Parser::exprList(bool star) {
  Pos pos = cur().pos;
  Expr *first = atKw("yield") ? atom() : star ? starOrNamed() : expression();
  if (!atOp(",")) return first;
  Expr *tuple = make(ExprKind::Tuple, pos);
  tuple->items.push_back(first);
  while (acceptOp(",")) {
    // A trailing comma: what follows cannot begin an expression.
    if (at(Tok::Newline) || at(Tok::End) || atOp(")") || atOp("]") || atOp("}") || atOp("=") || atOp(":") ||
        atOp(";") || atKw("in"))
      break;
    tuple->items.push_back(star ? starOrNamed() : expression());
  }
  return tuple;
}

Expr *Parser::targetList() {
  bool save = noIn_;
  noIn_ = true;
  Expr *e = exprList();
  noIn_ = save;
  return e;
}

Expr *Parser::starOrNamed() {
  if (!atOp("*")) return namedExpr();
  Expr *e = make(ExprKind::Starred, cur().pos);
  next();
  e->items.push_back(expression());
  return e;
}

Expr *Parser::namedExpr() {
  if (at(Tok::Name) && peek().kind == Tok::Op && peek().text == ":=") {
    Expr *e = make(ExprKind::Named, cur().pos);
    e->text = cur().text;
    next();
    next();
    e->items.push_back(expression());
    return e;
  }
  return expression();
}

Expr *Parser::expression() {
  Depth depth(*this);
  if (error_) return make(ExprKind::None, {});
  if (atKw("lambda")) return lambda();
  Expr *value = orTest();
  if (!atKw("if")) return value;
  next();
  bool save = noIn_;
  noIn_ = false;
  Expr *e = make(ExprKind::IfExp, value->pos);
  Expr *condition = orTest();
  noIn_ = save;
  expectKw("else", "in a conditional expression");
  e->items = {value, condition, expression()};
  return e;
}

Expr *Parser::lambda() {
  Expr *e = make(ExprKind::Lambda, cur().pos);
  FunctionNode *f = makeFunction(cur().pos);
  f->name = "<lambda>";
  next();
  params(f->params, ":", false);
  expectOp(":", "in a lambda");
  f->expr = expression();
  e->function = f;
  return e;
}

Expr *Parser::orTest() {
  Expr *left = andTest();
  if (!atKw("or")) return left;
  Expr *e = make(ExprKind::Bool, left->pos);
  e->op = OpKind::Or;
  e->items.push_back(left);
  while (acceptKw("or")) e->items.push_back(andTest());
  return e;
}

Expr *Parser::andTest() {
  Expr *left = notTest();
  if (!atKw("and")) return left;
  Expr *e = make(ExprKind::Bool, left->pos);
  e->op = OpKind::And;
  e->items.push_back(left);
  while (acceptKw("and")) e->items.push_back(notTest());
  return e;
}

Expr *Parser::notTest() {
  if (!atKw("not")) return comparison();
  Depth depth(*this);
  Expr *e = make(ExprKind::Unary, cur().pos);
  e->op = OpKind::Not;
  next();
  e->items.push_back(notTest());
  return e;
}

Expr *Parser::comparison() {
  Expr *left = binary(0);
  Expr *e = nullptr;
  while (true) {
    std::optional<OpKind> op;
    if (atOp("=="))
      op = OpKind::Eq;
    else if (atOp("!="))
      op = OpKind::Ne;
    else if (atOp("<"))
      op = OpKind::Lt;
    else if (atOp("<="))
      op = OpKind::Le;
    else if (atOp(">"))
      op = OpKind::Gt;
    else if (atOp(">="))
      op = OpKind::Ge;
    else if (atKw("in") && !noIn_)
      op = OpKind::In;
    else if (atKw("not") && peek().kind == Tok::Keyword && peek().text == "in") {
      next();
      op = OpKind::NotIn;
    } else if (atKw("is")) {
      op = OpKind::Is;
      if (peek().kind == Tok::Keyword && peek().text == "not") {
        next();
        op = OpKind::IsNot;
      }
    }
    if (!op) return e ? e : left;
    next();
    if (!e) {
      e = make(ExprKind::Compare, left->pos);
      e->items.push_back(left);
    }
    e->ops.push_back(*op);
    e->items.push_back(binary(0));
  }
}

Expr *Parser::binary(int level) {
  static constexpr std::pair<std::string_view, OpKind> kLevels[6][5] = {
      {{"|", OpKind::BitOr}},
      {{"^", OpKind::BitXor}},
      {{"&", OpKind::BitAnd}},
      {{"<<", OpKind::LShift}, {">>", OpKind::RShift}},
      {{"+", OpKind::Add}, {"-", OpKind::Sub}},
      {{"*", OpKind::Mul}, {"/", OpKind::Div}, {"//", OpKind::FloorDiv}, {"%", OpKind::Mod}, {"@", OpKind::MatMul}}};
  if (level == 6) return factor();
  Expr *left = binary(level + 1);
  while (at(Tok::Op)) {
    const std::pair<std::string_view, OpKind> *hit = nullptr;
    for (const std::pair<std::string_view, OpKind> &p : kLevels[level])
      if (!p.first.empty() && cur().text == p.first) hit = &p;
    if (!hit) break;
    Expr *e = make(ExprKind::Binary, left->pos);
    next();
    e->op = hit->second;
    Expr *right = binary(level + 1);
    e->items = {left, right};
    left = e;
  }
  return left;
}

Expr *Parser::factor() {
  std::optional<OpKind> op;
  if (atOp("-"))
    op = OpKind::Neg;
  else if (atOp("+"))
    op = OpKind::Pos;
  else if (atOp("~"))
    op = OpKind::Invert;
  if (!op) return power();
  Depth depth(*this);
  Expr *e = make(ExprKind::Unary, cur().pos);
  e->op = *op;
  next();
  e->items.push_back(factor());
  return e;
}

Expr *Parser::power() {
  if (atKw("await")) {
    Expr *e = make(ExprKind::Await, cur().pos);
    next();
    e->items.push_back(primary());
    return e;
  }
  Expr *base = primary();
  if (!atOp("**")) return base;
  Depth depth(*this);
  Expr *e = make(ExprKind::Binary, base->pos);
  next();
  e->op = OpKind::Pow;
  e->items = {base, factor()};
  return e;
}

Expr *Parser::primary() {
  Expr *e = atom();
  while (!error_) {
    if (atOp(".")) {
      next();
      Expr *a = make(ExprKind::Attribute, e->pos);
      a->text = expectName("an attribute name");
      a->items.push_back(e);
      e = a;
    } else if (atOp("(")) {
      e = call(e);
    } else if (atOp("[")) {
      e = subscript(e);
    } else {
      break;
    }
  }
  return e;
}

Expr *Parser::call(Expr *callee) {
  Depth depth(*this);
  bool save = noIn_;
  noIn_ = false;
  Expr *e = make(ExprKind::Call, callee->pos);
  e->items.push_back(callee);
  next();
  while (!atOp(")") && !at(Tok::End)) {
    Pos pos = cur().pos;
    if (acceptOp("**")) {
      e->keywords.push_back({{}, expression(), pos});
    } else if (at(Tok::Name) && peek().kind == Tok::Op && peek().text == "=") {
      std::string_view name = cur().text;
      for (const Keyword &k : e->keywords)
        if (k.name == name) fail(diag::PyRepeatedKeyword, pos, name);
      next();
      next();
      e->keywords.push_back({name, expression(), pos});
    } else {
      Expr *arg = starOrNamed();
      if (atComprehension()) {
        Expr *g = make(ExprKind::Comprehension, arg->pos);
        g->text = "generator";
        g->items.push_back(arg);
        clauses(g->clauses);
        arg = g;
      } else if (arg->kind != ExprKind::Starred && !e->keywords.empty() && !e->keywords.back().name.empty() &&
                 !error_) {
        fail(diag::PyPositionalAfterKeyword, pos);
      }
      e->items.push_back(arg);
    }
    if (!acceptOp(",")) break;
  }
  expectOp(")", "to close the call");
  noIn_ = save;
  return e;
}

Expr *Parser::slice() {
  Pos pos = cur().pos;
  Expr *lo = nullptr;
  if (!atOp(":")) {
    lo = starOrNamed();
    if (!atOp(":")) return lo;
  }
  Expr *e = make(ExprKind::Slice, pos);
  next();
  Expr *hi = atOp(":") || atOp(",") || atOp("]") ? nullptr : expression();
  Expr *step = nullptr;
  if (acceptOp(":")) step = atOp(",") || atOp("]") ? nullptr : expression();
  e->items = {lo, hi, step};
  return e;
}

Expr *Parser::subscript(Expr *base) {
  Depth depth(*this);
  bool save = noIn_;
  noIn_ = false;
  Expr *e = make(ExprKind::Subscript, base->pos);
  next();
  Pos pos = cur().pos;
  Expr *index = slice();
  if (atOp(",")) {
    Expr *tuple = make(ExprKind::Tuple, pos);
    tuple->items.push_back(index);
    while (acceptOp(",")) {
      if (atOp("]")) break;
      tuple->items.push_back(slice());
    }
    index = tuple;
  }
  expectOp("]", "to close the subscript");
  e->items = {base, index};
  noIn_ = save;
  return e;
}

void Parser::clauses(std::vector<ComprehensionFor> &out) {
  while (atComprehension()) {
    acceptKw("async");
    next();
    ComprehensionFor c;
    c.target = targetList();
    checkTarget(c.target);
    expectKw("in", "in a comprehension");
    bool save = noIn_;
    noIn_ = false;
    c.iter = orTest();
    while (acceptKw("if")) c.conditions.push_back(at(Tok::Name) && peek().text == ":=" ? namedExpr() : orTest());
    noIn_ = save;
    out.push_back(std::move(c));
  }
}

Expr *Parser::parenthesised() {
  Pos pos = cur().pos;
  next();
  if (atOp(")")) {
    next();
    return make(ExprKind::Tuple, pos);
  }
  if (atKw("yield")) {
    Expr *y = atom();
    expectOp(")", "after 'yield'");
    return y;
  }
  Expr *e = starOrNamed();
  if (atComprehension()) {
    Expr *g = make(ExprKind::Comprehension, pos);
    g->text = "generator";
    g->items.push_back(e);
    clauses(g->clauses);
    e = g;
  } else if (atOp(",")) {
    Expr *tuple = make(ExprKind::Tuple, pos);
    tuple->items.push_back(e);
    while (acceptOp(",")) {
      if (atOp(")")) break;
      tuple->items.push_back(starOrNamed());
    }
    e = tuple;
  }
  e->parenthesized = true;
  expectOp(")", "to close the parenthesis");
  return e;
}

Expr *Parser::listDisplay() {
  Expr *list = make(ExprKind::List, cur().pos);
  next();
  while (!atOp("]") && !at(Tok::End)) {
    list->items.push_back(starOrNamed());
    if (list->items.size() == 1 && atComprehension()) {
      list->kind = ExprKind::Comprehension;
      list->text = "list";
      clauses(list->clauses);
      break;
    }
    if (!acceptOp(",")) break;
  }
  expectOp("]", "to close the list");
  return list;
}

Expr *Parser::braceDisplay() {
  Expr *e = make(ExprKind::Dict, cur().pos);
  next();
  bool first = true;
  while (!atOp("}") && !at(Tok::End)) {
    if (acceptOp("**")) {
      e->items.push_back(nullptr);
      e->items.push_back(binary(0));
    } else {
      Expr *key = starOrNamed();
      if (first && !atOp(":")) e->kind = ExprKind::Set;
      e->items.push_back(key);
      if (e->kind == ExprKind::Dict) {
        expectOp(":", "in a dict");
        e->items.push_back(expression());
      }
      if (first && atComprehension()) {
        e->text = e->kind == ExprKind::Dict ? "dict" : "set";
        e->kind = ExprKind::Comprehension;
        clauses(e->clauses);
        break;
      }
    }
    first = false;
    if (!acceptOp(",")) break;
  }
  expectOp("}", "to close the brace");
  return e;
}

Expr *Parser::number() {
  const Token &t = cur();
  std::string digits;
  for (char c : t.text)
    if (c != '_') digits += c;
  Expr *e = make(t.kind == Tok::Int     ? ExprKind::Int
                 : t.kind == Tok::Float ? ExprKind::Float
                                        : ExprKind::Imaginary,
                 t.pos);
  e->text = t.text;
  if (t.kind == Tok::Int) {
    unsigned base = 10;
    size_t from = 0;
    if (digits.size() > 2 && digits[0] == '0') {
      char c = static_cast<char>(std::tolower(static_cast<unsigned char>(digits[1])));
      base = c == 'x' ? 16 : c == 'b' ? 2 : c == 'o' ? 8 : 10;
      from = base == 10 ? 0 : 2;
    }
    __int128 limit = static_cast<__int128>(1) << 100;
    for (size_t i = from; i < digits.size(); ++i) {
      char c = static_cast<char>(std::tolower(static_cast<unsigned char>(digits[i])));
      e->integer = e->integer * base + (c >= 'a' ? c - 'a' + 10 : c - '0');
      if (e->integer > limit) {
        e->big = true;
        e->integer = 0;
        break;
      }
    }
  } else {
    if (t.kind == Tok::Imaginary) digits.pop_back();
    e->number = std::strtod(digits.c_str(), nullptr);
  }
  next();
  return e;
}

Expr *Parser::atom() {
  Depth depth(*this);
  if (error_) return make(ExprKind::None, {});
  Pos pos = cur().pos;
  switch (cur().kind) {
  case Tok::Name: {
    Expr *e = make(ExprKind::Name, pos);
    e->text = cur().text;
    next();
    return e;
  }
  case Tok::Int:
  case Tok::Float:
  case Tok::Imaginary: return number();
  case Tok::String:
  case Tok::FString: return strings();
  case Tok::Keyword: {
    std::optional<ExprKind> kind;
    if (atKw("None")) kind = ExprKind::None;
    if (atKw("True")) kind = ExprKind::True;
    if (atKw("False")) kind = ExprKind::False;
    if (kind) {
      next();
      return make(*kind, pos);
    }
    if (atKw("lambda")) return lambda();
    if (atKw("yield")) {
      Expr *e = make(ExprKind::Yield, pos);
      next();
      if (acceptKw("from"))
        e->items.push_back(expression());
      else if (!at(Tok::Newline) && !at(Tok::End) && !atOp(")") && !atOp("]") && !atOp("}") && !atOp(";") && !atOp("="))
        e->items.push_back(exprList());
      return e;
    }
    break;
  }
  case Tok::Op: {
    bool save = noIn_;
    noIn_ = false;
    Expr *e = nullptr;
    if (atOp("("))
      e = parenthesised();
    else if (atOp("["))
      e = listDisplay();
    else if (atOp("{"))
      e = braceDisplay();
    else if (atOp("...")) {
      next();
      e = make(ExprKind::Ellipsis, pos);
    }
    noIn_ = save;
    if (e) return e;
    break;
  }
  default: break;
  }
  expected("an expression");
  return make(ExprKind::None, pos);
}

void Parser::addText(std::vector<Expr *> &parts, std::string text, Pos pos) {
  if (text.empty()) return;
  if (!parts.empty() && parts.back()->kind == ExprKind::String && parts.back()->ops.empty()) {
    parts.back()->string += text;
    return;
  }
  Expr *e = make(ExprKind::String, pos);
  e->string = std::move(text);
  parts.push_back(e);
}

/// Adjacent literals join. An f-string field stands in `parts` as a JoinedStr holding one item: the expression.
Expr *Parser::strings() {
  Pos pos = cur().pos;
  std::vector<Expr *> parts;
  bool bytes = cur().bytes, any = false;
  while (at(Tok::String) || at(Tok::FString)) {
    Token t = cur();
    if (t.bytes != bytes) fail(diag::PyMixedBytes, t.pos);
    if (t.kind == Tok::FString) {
      any = true;
      fstringBody(t, t.bodyPos.line == 0 ? 0 : static_cast<size_t>(t.text.data() - tree_.source->text().data()),
                  static_cast<size_t>(t.text.data() - tree_.source->text().data()) + t.text.size(), t.bodyPos, parts);
    } else {
      addText(parts, t.raw ? std::string(t.text) : unescape(t.text, t.bytes, t.pos), t.pos);
    }
    next();
  }
  if (any) {
    Expr *e = make(ExprKind::JoinedStr, pos);
    e->items = std::move(parts);
    return e;
  }
  Expr *e = make(bytes ? ExprKind::Bytes : ExprKind::String, pos);
  if (!parts.empty()) e->string = parts[0]->string;
  return e;
}

/// Where the expression of a field that begins at j ends: at '!', ':' or '}' outside brackets and strings; e if nowhere.
static size_t fieldExpressionEnd(std::string_view text, size_t j, size_t e) {
  int nest = 0;
  for (; j < e; ++j) {
    char c = text[j];
    if (c == '\'' || c == '"') {
      size_t n = text.substr(j, 3) == std::string(3, c) ? 3 : 1;
      size_t k = j + n;
      while (k < e && text.substr(k, n) != text.substr(j, n)) k += text[k] == '\\' ? 2 : 1;
      j = k + n - 1;
      continue;
    }
    if (c == '(' || c == '[' || c == '{') ++nest;
    if (c == ')' || c == ']' || (c == '}' && nest > 0))
      --nest;
    else if (c == '}')
      break;
    if (nest == 0 && c == ':') break;
    if (nest == 0 && c == '!' && !(j + 1 < e && text[j + 1] == '=')) break;
  }
  return j;
}

/// Reads the field of an f-string whose '{' is at i; the place behind its '}', or nullopt after an error.
std::optional<size_t> Parser::fstringField(size_t i, size_t e, Pos pos, std::vector<Expr *> &parts) {
  std::string_view text = tree_.source->text();
  auto refuse = [&](const char *why) {
    fail(diag::PyBadFString, pos, why);
    return std::nullopt;
  };
  size_t j = fieldExpressionEnd(text, i + 1, e);
  size_t exprEnd = std::min(j, e);
  Expr *field = make(ExprKind::JoinedStr, pos);
  // f"{x=}" prints the expression's own text first.
  size_t last = exprEnd;
  while (last > i + 1 && std::isspace(static_cast<unsigned char>(text[last - 1]))) --last;
  if (last > i + 2 && text[last - 1] == '=' && std::string_view("=!<>").find(text[last - 2]) == std::string_view::npos) {
    addText(parts, std::string(text.substr(i + 1, exprEnd - i - 1)), pos);
    exprEnd = last - 1;
  }
  if (text.substr(i + 1, exprEnd - i - 1).find_first_not_of(" \t\r\n") == std::string_view::npos)
    return refuse("a field holds no expression");
  Result<std::vector<Token>> tokens = lex(*tree_.source, i + 1, exprEnd, pos, true);
  if (!tokens) {
    error_ = tokens.error().diagnostics()[0];
    return std::nullopt;
  }
  Parser inner(tree_, std::move(*tokens));
  inner.depth_ = depth_ + 1;
  field->items.push_back(inner.fieldExpression());
  if (inner.error_) {
    error_ = inner.error_;
    return std::nullopt;
  }
  size_t rest = j;
  int braces = 0;
  while (j < e && !(text[j] == '}' && braces == 0)) {
    if (text[j] == '{') ++braces;
    if (text[j] == '}') --braces;
    ++j;
  }
  if (j >= e) return refuse("'}' is missing");
  field->text = text.substr(rest, j - rest);
  parts.push_back(field);
  return j + 1;
}

void Parser::fstringBody(const Token &t, size_t b, size_t e, Pos pos, std::vector<Expr *> &parts) {
  std::string_view text = tree_.source->text();
  Pos at = pos;
  size_t counted = b;
  auto place = [&](size_t i) {
    for (; counted < i; ++counted) {
      if (text[counted] == '\n')
        at = {at.line + 1, 1};
      else
        ++at.column;
    }
    return at;
  };
  size_t i = b, run = b;
  auto flush = [&](size_t end) {
    std::string piece;
    for (size_t k = run; k < end; ++k) {
      piece += text[k];
      if ((text[k] == '{' || text[k] == '}') && k + 1 < end && text[k + 1] == text[k]) ++k;
    }
    addText(parts, t.raw ? piece : unescape(piece, false, pos), pos);
  };
  while (i < e && !error_) {
    if (text[i] == '\\' && !t.raw) {
      i += text.substr(i, 3) == "\\N{"                                 ? text.find('}', i) - i + 1
           : (i + 1 < e && (text[i + 1] == '{' || text[i + 1] == '}')) ? 1
                                                                       : 2;
      continue;
    }
    if ((text[i] == '{' || text[i] == '}') && i + 1 < e && text[i + 1] == text[i]) {
      i += 2;
      continue;
    }
    if (text[i] == '}') return fail(diag::PyBadFString, place(i), "single '}' is not allowed");
    if (text[i] != '{') {
      ++i;
      continue;
    }
    flush(i);
    std::optional<size_t> behind = fstringField(i, e, place(i + 1), parts);
    if (!behind) return;
    i = run = *behind;
  }
  flush(e);
}

/// A character in UTF-8; in bytes, as it is.
static void appendCharacter(std::string &out, uint32_t c, bool bytes) {
  if (bytes || c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | (c >> 12));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (c >> 18));
    out += static_cast<char>(0x80 | ((c >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

/// Up to three octal digits from i on; i is behind them afterwards.
static uint32_t octalEscape(std::string_view s, size_t &i) {
  uint32_t value = 0;
  for (size_t n = 0; n < 3 && i < s.size() && s[i] >= '0' && s[i] <= '7'; ++n, ++i)
    value = value * 8 + static_cast<uint32_t>(s[i] - '0');
  return value;
}

/// What an escape of one letter stands for; 0 if it is none.
static char simpleEscape(char c) {
  switch (c) {
  case '\\': return '\\';
  case '\'': return '\'';
  case '"': return '"';
  case 'a': return '\a';
  case 'b': return '\b';
  case 'f': return '\f';
  case 'n': return '\n';
  case 'r': return '\r';
  case 't': return '\t';
  case 'v': return '\v';
  default: return 0;
  }
}

std::string Parser::unescape(std::string_view s, bool bytes, Pos pos) {
  std::string out;
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] != '\\' || i + 1 >= s.size()) {
      out += s[i];
      continue;
    }
    const char c = s[++i];
    if (char simple = simpleEscape(c)) {
      out += simple;
    } else if (c == '\n' || c == '\r') {
      // A line that goes on.
      if (c == '\r' && i + 1 < s.size() && s[i + 1] == '\n') ++i;
    } else if (c == 'x' || ((c == 'u' || c == 'U') && !bytes)) {
      size_t n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      uint32_t value = 0;
      std::string_view hex = s.substr(i + 1, n);
      std::from_chars_result r = std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
      if (hex.size() < n || r.ptr != hex.data() + n || value > 0x10FFFF) {
        fail(diag::PyBadEscape, pos, fmt::format("\\{}", c), n);
        return out;
      }
      appendCharacter(out, value, bytes);
      i += n;
    } else if (c == 'N') {
      size_t close = s.find('}', i);
      out += '?';
      if (close != std::string_view::npos) i = close;
    } else if (c >= '0' && c <= '7') {
      appendCharacter(out, octalEscape(s, i), bytes);
      --i;
    } else {
      out += '\\';
      out += c;
    }
  }
  return out;
}

} // namespace neso::triton
