#include "base/diagnostics.h"

namespace neso {
std::string SourceLoc::str() const {
  std::string out = file;
  if (line > 0) out += fmt::format(":{}", line);
  if (line > 0 && column > 0) out += fmt::format(":{}", column);
  if (!context.empty()) out += out.empty() ? context : fmt::format(" ({})", context);
  return out;
}

std::string Diagnostic::str() const {
  const DiagInfo &row = info(kind);
  const char *word = row.severity == Severity::Warning ? "warning"
                     : row.severity == Severity::Error ? "error"
                                                       : "internal error";
  std::string out = fmt::format("{}[{}]: ", word, row.code);
  if (loc.known()) out += loc.str() + ": ";
  out += message;
  if (!sourceLine.empty()) {
    out += "\n    " + sourceLine;
    if (loc.column > 0) out += "\n    " + std::string(static_cast<size_t>(loc.column - 1), ' ') + "^";
  }
  return out;
}

bool Error::internal() const {
  for (const Diagnostic &d : diags_)
    if (info(d.kind).severity == Severity::Internal) return true;
  return false;
}

std::string Error::str() const {
  std::string out;
  for (const Diagnostic &d : diags_) {
    if (!out.empty()) out += "\n";
    out += d.str();
  }
  return out;
}

std::string detail::formatDiag(Diag kind, fmt::format_args args) { return fmt::vformat(info(kind).text, args); }

} // namespace neso
