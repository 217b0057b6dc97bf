#include "ir/loops/parse.h"

#include "base/diagnostics/loops.h"
#include "ir/loops/read_program.h"

namespace neso::loops {

Result<Program> parse(std::string_view text, const std::string &file) {
  ProgramReader reader;
  bool first = true;
  Status s = forEachLine(text, [&](std::string_view one, int number) -> Status {
    Line line(one);
    if (line.atEnd()) return Status::ok();
    if (first)
      line.expect("loops"), reader.program.name = std::string(line.remainder());
    else
      reader.read(line);
    first = false;
    if (!line.failed() && !line.atEnd()) line.error("nothing more is expected");
    return line.failed() ? Status(fail(diag::LoopsSyntax, SourceLoc{file, number, 0, {}}, line.why)) : Status::ok();
  });
  if (!s) return s.takeError();
  if (first) return fail(diag::LoopsSyntax, SourceLoc{file, 1, 0, {}}, "the text is empty");
  if (reader.inRegion()) return fail(diag::LoopsSyntax, SourceLoc{file, 0, 0, {}}, "a region has no end");
  return std::move(reader.program);
}

} // namespace neso::loops
