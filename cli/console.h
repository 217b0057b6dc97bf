// What the program says on stderr: diagnostics, as text for people or as JSON for programs.
#pragma once
#include <cstdint>
#include <string>

#include "base/diagnostics.h"
#include "neso/neso.h"

namespace neso::cli {

/// From now on one JSON object a line: severity, code, kind, message, file, line, column, context.
void printDiagnosticsAsJson();
bool diagnosticsAreJson();
void print(const Diagnostic &diagnostic);
/// A failed call of the runtime, under the runtime's own code.
void print(neso_status status);
/// "812 bytes", "5.4 kB", "102.3 MB".
std::string bytesText(uint64_t bytes);
void printWarnings(const DiagnosticSink &sink);

} // namespace neso::cli
