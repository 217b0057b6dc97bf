// One line of the text of an IR, read from left to right: what the parsers of graph, loops and plan have in common.
//
//     Line line("  x is s0 + 1 in [2, inf]");
//     std::string name = line.token();  line.expect("is");  Expr e = line.expr({" in "});  …
//     if (line.failed()) … line.why
//
// After the first thing that is not as expected everything fails, and `why` says what it was; so callers ask once, at
// the end of the line. Spaces between things are skipped.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "ir/shape/expr.h"

namespace neso {

class Line {
public:
  explicit Line(std::string_view text) : rest_(text) {
    skip();
    indent_ = static_cast<int>(text.size() - rest_.size());
  }
  std::string why;

  /// Spaces before the first thing of the line.
  int indent() const { return indent_; }

  bool atEnd() const { return rest_.empty(); }
  bool failed() const { return !why.empty(); }
  void error(std::string what);
  bool next(std::string_view text) const { return rest_.starts_with(text); }
  bool nextIsNumber() const;
  /// Takes the text away if it comes next; words end where they end.
  bool eat(std::string_view text);
  /// Takes the next character away if it is one of these.
  bool eatLetter(std::string_view letters);
  void expect(std::string_view text);

  /// Up to the next space.
  std::string token() { return std::string(until(" ")); }
  /// Everything before one of these characters.
  std::string_view until(std::string_view stops);
  std::string_view remainder();
  /// "…", with \" for ", \\ for \, \n for a line's end: what quoted() wrote.
  std::string quotedText();

  int64_t integer();
  double real();
  DType dtype();
  Symbol symbol();
  /// An expression: all that comes before one of the texts in `ends` outside of parentheses, or the whole rest.
  Expr expr(std::initializer_list<std::string_view> ends);
  /// [a, b, …]
  std::vector<Expr> list();
  std::vector<int64_t> numbers();
  /// [lo, hi] with -inf and inf for no bound.
  Interval interval();
  std::vector<uint8_t> hex();
  template <typename E, size_t N> E oneOf(const std::array<std::string_view, N> &words) {
    const std::string_view word = until(" ");
    for (size_t k = 0; k < N; ++k)
      if (words[k] == word) return static_cast<E>(k);
    return error("'" + std::string(word) + "' is unknown"), static_cast<E>(0);
  }

private:
  void skip() {
    while (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
  }
  std::string_view rest_;
  int indent_ = 0;
};

/// Calls f for each line of a text with its number, from 1, until one fails.
Status forEachLine(std::string_view text, const std::function<Status(std::string_view line, int number)> &f);

std::string quoted(std::string_view text);
/// Two digits a byte: what Line::hex reads.
std::string hexText(const uint8_t *data, int64_t bytes);
/// The text that Line::interval reads.
std::string intervalText(Interval interval);
/// The text that Line::list reads.
std::string listText(const std::vector<Expr> &es);

} // namespace neso
