#include "frontend/triton/lexer.h"

#include "base/diagnostics/triton.h"

#include <algorithm>
#include <array>

namespace neso::triton {
namespace {

constexpr std::array<std::string_view, 35> kKeywords = {
    "False", "None",     "True",  "and",    "as",   "assert", "async",  "await",    "break",
    "class", "continue", "def",   "del",    "elif", "else",   "except", "finally",  "for",
    "from",  "global",   "if",    "import", "in",   "is",     "lambda", "nonlocal", "not",
    "or",    "pass",     "raise", "return", "try",  "while",  "with",   "yield"};

constexpr std::array<std::string_view, 5> kOps3 = {"**=", "//=", ">>=", "<<=", "..."};
constexpr std::array<std::string_view, 20> kOps2 = {"**", "//", ">>", "<<", "<=", ">=", "==", "!=", "->", "+=",
                                                    "-=", "*=", "/=", "%=", "&=", "|=", "^=", "@=", ":=", "<>"};
constexpr std::string_view kOps1 = "+-*/%@&|^~<>()[]{},:.;=!";

bool isIdentStart(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
bool isIdent(char c) { return isIdentStart(c) || std::isdigit(static_cast<unsigned char>(c)); }

/// Skips a string literal nested in an f-string's replacement field; `i` is at its quote.
std::optional<size_t> skipNested(std::string_view text, size_t i, size_t to, bool fstring, bool raw, int depth) {
  char q = text[i];
  size_t n = (i + 2 < to && text[i + 1] == q && text[i + 2] == q) ? 3 : 1;
  std::string_view quote = text.substr(i, n);
  i += n;
  if (fstring) {
    std::optional<size_t> end = scanFString(text, i, to, quote, raw, depth + 1);
    if (!end) return std::nullopt;
    return *end + n;
  }
  while (i < to) {
    if (text[i] == '\\') {
      i += 2;
      continue;
    }
    if (text.substr(i, n) == quote) return i + n;
    ++i;
  }
  return std::nullopt;
}

/// Scans the inside of `{…}` from just past the brace; returns the offset of the closing brace.
std::optional<size_t> scanField(std::string_view text, size_t i, size_t to, std::string_view quote, bool raw,
                                int depth) {
  if (depth > 64) return std::nullopt;
  int brackets = 0;
  bool spec = false;
  while (i < to) {
    char c = text[i];
    if (spec) {
      if (c == '{') {
        std::optional<size_t> end = scanField(text, i + 1, to, quote, raw, depth + 1);
        if (!end) return std::nullopt;
        i = *end + 1;
        continue;
      }
      if (c == '}') return i;
      if (text.substr(i, quote.size()) == quote) return std::nullopt;
      ++i;
      continue;
    }
    if (c == '\'' || c == '"') {
      bool f = false, r = false;
      size_t b = i;
      while (b > 0 && std::isalpha(static_cast<unsigned char>(text[b - 1]))) --b;
      for (char p : text.substr(b, i - b)) {
        f |= p == 'f' || p == 'F';
        r |= p == 'r' || p == 'R';
      }
      // A quote of the outer kind directly after the brace's expression may only open a nested string (Python 3.12).
      std::optional<size_t> end = skipNested(text, i, to, f && i - b <= 2, r, depth);
      if (!end) return std::nullopt;
      i = *end;
      continue;
    }
    if (c == '(' || c == '[' || c == '{') ++brackets;
    if (c == ')' || c == ']') --brackets;
    if (c == '}') {
      if (brackets == 0) return i;
      --brackets;
    }
    if (c == ':' && brackets == 0) spec = true;
    ++i;
  }
  return std::nullopt;
}

class Lexer {
public:
  Lexer(const Source &s, size_t from, size_t to, Pos start, bool nested)
      : src_(s), text_(s.text()), i_(from), to_(to), line_(start.line),
        lineStart_(from - static_cast<size_t>(start.column - 1)), nested_(nested) {}

  Result<std::vector<Token>> run() {
    if (i_ == 0 && text_.substr(0, 3) == "\xEF\xBB\xBF") i_ = lineStart_ = 3;
    out_.reserve((to_ - i_) / 4 + 8);
    indents_.push_back(0);
    bool lineBegin = !nested_;
    while (true) {
      if (lineBegin && brackets_.empty()) {
        if (!indentation()) return Error(*error_);
        lineBegin = false;
      }
      skipBlank();
      if (error_) return Error(*error_);
      if (i_ >= to_) break;
      if (text_[i_] == '\n') {
        newline(lineBegin);
        continue;
      }
      if (!token()) return Error(*error_);
    }
    if (!brackets_.empty() && !nested_)
      return Error(src_.diag(diag::PyUnclosedBracket, brackets_.back().pos, brackets_.back().text));
    if (!nested_) {
      if (!out_.empty() && out_.back().kind != Tok::Newline && out_.back().kind != Tok::Dedent)
        push(Tok::Newline, i_, i_);
      for (; indents_.size() > 1; indents_.pop_back()) push(Tok::Dedent, i_, i_);
    }
    push(Tok::End, i_, i_);
    return std::move(out_);
  }

private:
  Pos here(size_t at) const { return {line_, static_cast<int>(at - lineStart_) + 1}; }

  void push(Tok kind, size_t b, size_t e) {
    Token t;
    t.kind = kind;
    t.text = text_.substr(b, e - b);
    t.pos = t.bodyPos = here(b);
    t.begin = b;
    t.end = e;
    out_.push_back(t);
  }

  bool error(Diagnostic d) {
    error_ = std::move(d);
    return false;
  }

  void advanceLine() {
    ++line_;
    lineStart_ = i_;
  }

  void newline(bool &lineBegin) {
    bool significant = brackets_.empty() && !nested_ && !out_.empty() && out_.back().kind != Tok::Newline &&
                       out_.back().kind != Tok::Indent && out_.back().kind != Tok::Dedent;
    if (significant) push(Tok::Newline, i_, i_ + 1);
    ++i_;
    advanceLine();
    lineBegin = brackets_.empty() && !nested_;
  }

  /// Blanks, comments, joined lines.
  void skipBlank() {
    while (i_ < to_) {
      char c = text_[i_];
      if (c == ' ' || c == '\t' || c == '\f' || c == '\r') {
        ++i_;
      } else if (c == '#') {
        while (i_ < to_ && text_[i_] != '\n') ++i_;
      } else if (c == '\\') {
        size_t j = i_ + 1;
        if (j < to_ && text_[j] == '\r') ++j;
        if (j >= to_ || text_[j] != '\n') {
          error(src_.diag(diag::PyBadLineJoin, here(i_)));
          return;
        }
        i_ = j + 1;
        advanceLine();
      } else {
        return;
      }
    }
  }

  bool indentation() {
    size_t column = 0, j = i_;
    for (; j < to_; ++j) {
      if (text_[j] == ' ')
        ++column;
      else if (text_[j] == '\t')
        column = (column / 8 + 1) * 8;
      else if (text_[j] == '\f')
        column = 0;
      else
        break;
    }
    if (j >= to_ || text_[j] == '\n' || text_[j] == '#' || text_[j] == '\r') return true;
    i_ = j;
    if (column > indents_.back()) {
      indents_.push_back(column);
      if (indents_.size() > 100) return error(src_.diag(diag::PyTooDeep, here(i_), "indentation", 100));
      push(Tok::Indent, i_, i_);
      return true;
    }
    while (column < indents_.back()) {
      indents_.pop_back();
      push(Tok::Dedent, i_, i_);
    }
    if (column != indents_.back()) return error(src_.diag(diag::PyBadDedent, here(i_)));
    return true;
  }

  bool token() {
    char c = text_[i_];
    char next = i_ + 1 < to_ ? text_[i_ + 1] : '\0';
    if (std::isdigit(static_cast<unsigned char>(c)) || (c == '.' && std::isdigit(static_cast<unsigned char>(next))))
      return number();
    if (isIdentStart(c)) {
      size_t b = i_;
      while (i_ < to_ && isIdent(text_[i_])) ++i_;
      std::string_view word = text_.substr(b, i_ - b);
      if (i_ < to_ && (text_[i_] == '\'' || text_[i_] == '"') && isPrefix(word)) return string(b, word);
      push(std::binary_search(kKeywords.begin(), kKeywords.end(), word) ? Tok::Keyword : Tok::Name, b, i_);
      return true;
    }
    if (c == '\'' || c == '"') return string(i_, {});
    return op();
  }

  static bool isPrefix(std::string_view w) {
    if (w.size() > 2) return false;
    std::string lower(w);
    for (char &ch : lower) ch = static_cast<char>(std::tolower(static_cast<unsigned char>(ch)));
    for (std::string_view p : {"r", "b", "u", "f", "rb", "br", "rf", "fr"})
      if (lower == p) return true;
    return false;
  }

  bool string(size_t begin, std::string_view prefix) {
    bool f = false, raw = false, bytes = false;
    for (char p : prefix) {
      f |= p == 'f' || p == 'F';
      raw |= p == 'r' || p == 'R';
      bytes |= p == 'b' || p == 'B';
    }
    Pos at = here(begin);
    char q = text_[i_];
    size_t n = (i_ + 2 < to_ && text_[i_ + 1] == q && text_[i_ + 2] == q) ? 3 : 1;
    std::string_view quote = text_.substr(i_, n);
    size_t body = i_ + n;
    Pos bodyPos = here(body);
    std::optional<size_t> end;
    if (f) {
      end = scanFString(text_, body, to_, quote, raw);
    } else {
      for (size_t j = body; j < to_; ++j) {
        if (text_[j] == '\\') {
          ++j;
          continue;
        }
        if (n == 1 && text_[j] == '\n') break;
        if (text_.substr(j, n) == quote) {
          end = j;
          break;
        }
      }
    }
    if (!end) return error(src_.diag(diag::PyUnclosedString, at, n == 3 ? "triple-quoted " : ""));
    Token t;
    t.kind = f ? Tok::FString : Tok::String;
    t.text = text_.substr(body, *end - body);
    t.pos = at;
    t.bodyPos = bodyPos;
    t.raw = raw;
    t.bytes = bytes;
    t.begin = begin;
    t.end = *end + n;
    for (size_t j = begin; j < t.end; ++j)
      if (text_[j] == '\n') {
        i_ = j + 1;
        advanceLine();
      }
    i_ = t.end;
    out_.push_back(t);
    return true;
  }

  bool digits(auto accept) {
    bool any = false;
    while (i_ < to_ && (accept(text_[i_]) || (text_[i_] == '_' && any && i_ + 1 < to_ && accept(text_[i_ + 1])))) {
      ++i_;
      any = true;
    }
    return any;
  }

  bool number() {
    size_t b = i_;
    auto dec = [](char c) { return c >= '0' && c <= '9'; };
    auto hex = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
    Tok kind = Tok::Int;
    char n = i_ + 1 < to_ ? static_cast<char>(std::tolower(static_cast<unsigned char>(text_[i_ + 1]))) : '\0';
    if (text_[i_] == '0' && (n == 'x' || n == 'b' || n == 'o')) {
      i_ += 2;
      if (i_ < to_ && text_[i_] == '_') ++i_;
      bool ok = n == 'x'   ? digits(hex)
                : n == 'b' ? digits([](char c) { return c == '0' || c == '1'; })
                           : digits([](char c) { return c >= '0' && c <= '7'; });
      if (!ok) return error(src_.diag(diag::PyBadNumber, here(b), text_.substr(b, i_ - b)));
    } else {
      digits(dec);
      if (i_ < to_ && text_[i_] == '.') {
        kind = Tok::Float;
        ++i_;
        digits(dec);
      }
      if (i_ < to_ && (text_[i_] == 'e' || text_[i_] == 'E')) {
        size_t save = i_++;
        if (i_ < to_ && (text_[i_] == '+' || text_[i_] == '-')) ++i_;
        if (digits(dec))
          kind = Tok::Float;
        else
          i_ = save;
      }
      if (kind == Tok::Int && i_ - b > 1 && text_[b] == '0' &&
          text_.substr(b, i_ - b).find_first_not_of("0_") != std::string_view::npos &&
          !(i_ < to_ && (text_[i_] == 'j' || text_[i_] == 'J')))
        return error(src_.diag(diag::PyBadNumber, here(b), text_.substr(b, i_ - b)));
      if (i_ < to_ && (text_[i_] == 'j' || text_[i_] == 'J')) {
        kind = Tok::Imaginary;
        ++i_;
      }
    }
    // "1if x else y" is legal Python; "1abc" is not.
    if (i_ < to_ && isIdentStart(text_[i_])) {
      size_t e = i_;
      while (e < to_ && isIdent(text_[e])) ++e;
      if (!std::binary_search(kKeywords.begin(), kKeywords.end(), text_.substr(i_, e - i_)))
        return error(src_.diag(diag::PyBadNumber, here(b), text_.substr(b, e - b)));
    }
    push(kind, b, i_);
    return true;
  }

  bool op() {
    std::string_view rest = text_.substr(i_, std::min<size_t>(3, to_ - i_));
    size_t n = 0;
    if (std::find(kOps3.begin(), kOps3.end(), rest) != kOps3.end())
      n = 3;
    else if (rest.size() >= 2 && std::find(kOps2.begin(), kOps2.end(), rest.substr(0, 2)) != kOps2.end())
      n = 2;
    else if (kOps1.find(rest[0]) != std::string_view::npos)
      n = 1;
    if (n == 0) {
      unsigned char c = static_cast<unsigned char>(rest[0]);
      std::string shown = c >= 0x20 && c < 0x7f ? std::string(1, rest[0]) : fmt::format("\\x{:02x}", c);
      return error(src_.diag(diag::PyBadCharacter, here(i_), shown));
    }
    push(Tok::Op, i_, i_ + n);
    char c = rest[0];
    if (n == 1 && (c == '(' || c == '[' || c == '{')) {
      brackets_.push_back(out_.back());
      if (brackets_.size() > 200) return error(src_.diag(diag::PyTooDeep, here(i_), "brackets", 200));
    }
    if (n == 1 && (c == ')' || c == ']' || c == '}')) {
      char want = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (brackets_.empty() || brackets_.back().text[0] != want)
        return error(src_.diag(diag::PyUnmatchedBracket, here(i_), c));
      brackets_.pop_back();
    }
    i_ += n;
    return true;
  }

  const Source &src_;
  std::string_view text_;
  size_t i_, to_;
  int line_;
  size_t lineStart_;
  bool nested_;
  std::vector<Token> out_;
  std::vector<size_t> indents_;
  std::vector<Token> brackets_;
  std::optional<Diagnostic> error_;
};

} // namespace

std::optional<size_t> scanFString(std::string_view text, size_t i, size_t to, std::string_view quote, bool raw,
                                  int depth) {
  while (i < to) {
    char c = text[i];
    if (c == '\\' && !raw && text.substr(i, 3) == "\\N{") {
      size_t close = text.find('}', i);
      if (close == std::string_view::npos || close >= to) return std::nullopt;
      i = close + 1;
      continue;
    }
    if (c == '\\') {
      i += (i + 1 < to && (text[i + 1] == '{' || text[i + 1] == '}')) ? 1 : 2;
      continue;
    }
    if (text.substr(i, quote.size()) == quote) return i;
    if (c == '\n' && quote.size() == 1) return std::nullopt;
    if (c == '{') {
      if (i + 1 < to && text[i + 1] == '{') {
        i += 2;
        continue;
      }
      std::optional<size_t> end = scanField(text, i + 1, to, quote, raw, depth + 1);
      if (!end) return std::nullopt;
      i = *end + 1;
      continue;
    }
    ++i;
  }
  return std::nullopt;
}

Result<std::vector<Token>> lex(const Source &source, size_t from, size_t to, Pos start, bool nested) {
  return Lexer(source, from, to, start, nested).run();
}

} // namespace neso::triton
