// A Python source file held in memory, and places in it.
//
// A Pos counts line and column from 1; columns count bytes, so that a caret printed under a line of ASCII stands right.
// Sources live as long as the ModuleLoader that read them; every Pos, token and syntax node refers into one Source.
#pragma once
#include "base/diagnostics.h"

#include <string>
#include <string_view>
#include <vector>

namespace neso::triton {

struct Pos {
  int line = 0;
  int column = 0;
};

class Source {
public:
  Source(std::string path, std::string text);
  const std::string &path() const { return path_; }
  std::string_view text() const { return text_; }
  /// The text of line `n` (from 1) without its end; empty beyond the file.
  std::string_view line(int n) const;
  SourceLoc loc(Pos pos, std::string context = {}) const { return {path_, pos.line, pos.column, std::move(context)}; }
  /// A diagnostic at `pos` that shows the source line with a caret.
  template <typename... Args> Diagnostic diag(Diag kind, Pos pos, const Args &...args) const {
    Diagnostic d = makeDiag(kind, loc(pos), args...);
    d.sourceLine = std::string(line(pos.line));
    return d;
  }

private:
  std::string path_;
  std::string text_;
  std::vector<size_t> starts_; // byte offset of each line's first character
};

} // namespace neso::triton
