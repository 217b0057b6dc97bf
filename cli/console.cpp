#include "console.h"

#include <cstdio>

#include "base/diagnostics/cli.h"
#include "base/json.h"
#include "tensor_file.h"

namespace neso::cli {
namespace {
bool asJson = false;

void printJson(const char *severity, const std::string &code, const char *kind, const std::string &message,
               const SourceLoc &loc) {
  std::fprintf(stderr, "%s\n",
               fmt::format("{{\"severity\": \"{}\", \"code\": \"{}\", \"kind\": \"{}\", \"message\": {}, \"file\": {}, "
                           "\"line\": {}, \"column\": {}, \"context\": {}}}",
                           severity, code, kind, jsonString(message), jsonString(loc.file), loc.line, loc.column,
                           jsonString(loc.context))
                   .c_str());
}
} // namespace

void printDiagnosticsAsJson() { asJson = true; }
bool diagnosticsAreJson() { return asJson; }

void print(const Diagnostic &d) {
  // The runtime's own code travels in the place of a location.
  const bool ofRuntime = d.kind == diag::RuntimeRefused;
  if (asJson) {
    const DiagInfo &row = info(d.kind);
    const char *severity = row.severity == Severity::Warning ? "warning"
                           : row.severity == Severity::Error ? "error"
                                                             : "internal error";
    printJson(severity, ofRuntime ? d.loc.context : row.code, row.kind, d.message, ofRuntime ? SourceLoc{} : d.loc);
  } else if (ofRuntime) {
    std::fprintf(stderr, "error[%s]: %s\n", d.loc.context.c_str(), d.message.c_str());
  } else {
    std::fprintf(stderr, "%s\n", d.str().c_str());
  }
}

void print(neso_status status) {
  if (asJson)
    printJson("error", neso_status_code(status), neso_status_name(status), neso_error_text(), {});
  else
    std::fprintf(stderr, "error[%s]: %s\n", neso_status_code(status), neso_error_text());
}

std::string bytesText(uint64_t bytes) {
  if (bytes < 1000) return fmt::format("{} bytes", bytes);
  return bytes < 1'000'000 ? fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3) : fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

void printWarnings(const DiagnosticSink &sink) {
  for (const Diagnostic &d : sink.warnings()) print(d);
}

} // namespace neso::cli
