#include "notes.h"

#include "base/diagnostics/package.h"

namespace neso::cli {

void declareNotes(const Verb &verb, std::vector<std::string> &rows) {
  verb.option("--metadata", rows, "KEY=VALUE, a note for who opens it (neso info, neso_model_metadata)").placeholder("KEY=VALUE").single();
}

Result<Notes> parseNotes(const std::vector<std::string> &rows) {
  Notes out;
  for (const std::string &row : rows) {
    const size_t at = row.find('=');
    if (at == std::string::npos || at == 0) return fail(diag::BadMetadata, {}, row);
    out.emplace_back(row.substr(0, at), row.substr(at + 1));
  }
  return out;
}

} // namespace neso::cli
