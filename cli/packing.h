// Several packages become one file: what `neso pack` and `neso compile --target cpu,cuda` share.
#pragma once
#include <string>
#include <vector>

#include "base/diagnostics.h"
#include "notes.h"

namespace neso::cli {

struct PackageToPack {
  std::string path;
  std::string name; // of its model in the new package; "": the file's name, and of several models the names that they have
};

/// What the models in a package are called.
Result<std::vector<std::string>> modelsOf(const std::string &path);

/// Writes `output` and says on stderr how large it is and what its models are called. metadata: for every model, behind what it has.
/// Every byte of the packages is checked: what is damaged is not handed on.
Status packPackages(const std::vector<PackageToPack> &packages, const Notes &metadata, const std::string &output);

} // namespace neso::cli
