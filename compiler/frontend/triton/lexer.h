// Python source text -> tokens, with NEWLINE / INDENT / DEDENT as Python's own tokenizer gives them.
//
// Joined lines (backslash, open brackets), comments, tabs, all string prefixes, triple quotes, nested f-strings (whose
// whole body is one token; the parser opens its replacement fields), and numbers in every base with underscores. A NUL
// byte, an unterminated string or bracket, an inconsistent dedent and a stray character are diagnostics. Example: "x =
// 1\n" -> Name(x) Op(=) Int(1) Newline End.
#pragma once
#include "frontend/triton/source.h"

#include <optional>

namespace neso::triton {

enum class Tok : uint8_t { End, Newline, Indent, Dedent, Name, Keyword, Int, Float, Imaginary, String, FString, Op };

struct Token {
  Tok kind = Tok::End;
  /// The characters of a name, keyword, number or operator. For String and FString: the body between the quotes,
  /// escapes untouched.
  std::string_view text;
  Pos pos;
  /// Where a string's body begins, for the places of the expressions inside an f-string.
  Pos bodyPos;
  bool raw = false;   // r"…"
  bool bytes = false; // b"…"
  size_t begin = 0;   // byte offsets in the source: [begin, end)
  size_t end = 0;
};

/// The tokens of `source` from offset `from` up to `to`. `nested` starts inside brackets: no NEWLINE, INDENT or DEDENT
/// is made (the expressions of an f-string). The last token is always End.
Result<std::vector<Token>> lex(const Source &source, size_t from, size_t to, Pos start, bool nested);
inline Result<std::vector<Token>> lex(const Source &source) {
  return lex(source, 0, source.text().size(), {1, 1}, false);
}

/// Scans a quoted f-string body from `i` (just past the opening quotes) to its closing quotes; returns the offset of
/// those, or nullopt.
std::optional<size_t> scanFString(std::string_view text, size_t i, size_t to, std::string_view quote, bool raw,
                                  int depth = 0);

} // namespace neso::triton
