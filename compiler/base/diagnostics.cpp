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

Error::Error(Diagnostic d) { diags_.push_back(std::move(d)); }
Error::Error(std::vector<Diagnostic> ds) : diags_(std::move(ds)) {}
Error::Error(const Error &) = default;
Error::Error(Error &&) noexcept = default;
Error &Error::operator=(const Error &) = default;
Error &Error::operator=(Error &&) noexcept = default;
Error::~Error() = default;

void Error::append(Error other) {
  for (Diagnostic &d : other.diags_) diags_.push_back(std::move(d));
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

Diagnostic detail::makeDiag(Diag kind, SourceLoc &&loc, fmt::format_args args) {
  return {kind, std::move(loc), fmt::vformat(info(kind).text, args), {}};
}

Error detail::fail(Diag kind, SourceLoc &&loc, fmt::format_args args) { return Error(makeDiag(kind, std::move(loc), args)); }

void DiagnosticSink::warn(Diagnostic d) { warnings_.push_back(std::move(d)); }

} // namespace neso
