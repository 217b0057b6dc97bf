// What others ask of the table of verbs and options: shells for completions, the build for manual pages, the documentation for its reference.
// Each function prints to standard output and gives the exit code of the program.
#pragma once
#include <string>
#include <vector>

#include "options.h"

namespace neso::cli {

/// Words that may stand in the place of the last of `words` (which may be empty), one a line with a tab and what it means. Nothing where a
/// file is to be named.
int complete(const Verb &program, const std::vector<std::string> &words);
/// The manual page of the program, or of the verb that `words` name, for man.
int printManual(const Verb &program, const std::vector<std::string> &words);
/// All verbs with their options, as Markdown.
int printReference(const Verb &program);

} // namespace neso::cli
