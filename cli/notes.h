// --metadata KEY=VALUE: notes for who opens a package (neso info, neso_model_metadata).
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "base/diagnostics.h"
#include "options.h"

namespace neso::cli {

using Notes = std::vector<std::pair<std::string, std::string>>; // in the order given

void declareNotes(const Verb &verb, std::vector<std::string> &rows);
/// Error: BadMetadata.
Result<Notes> parseNotes(const std::vector<std::string> &rows);

} // namespace neso::cli
