// Several packages become one: of each model its plan, under another name, its code, and what it changes itself; equal weights once.
//
//     Result<std::vector<PackedModel>> models = …;      // what `neso pack` was given
//     Status s = repack(models, {{"author", "me"}}, "all.neso");
//
// Equal inputs give equal bytes. Members are read where they lie: no copy of the weights is ever in memory.
//
// Errors: ModelTwice for two models of one name, PackageUnpackable for a plan that cannot be read whole, FileUnwritable.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/diagnostics.h"
#include "package/package.h"

namespace neso {

/// A model of a package, whose members are borrowed.
struct PackedModel {
  std::string source;                       // the package's path, for messages
  std::string name;                         // in the new package; letters, digits, '.', '_', '-', '/'
  std::string_view plan;                    // the bytes of data/neso/<its old name>/plan
  const std::vector<WeightMember> *members; // of its package, whatever of them is its own
  std::string held;                         // its old name
  std::string folder;                       // the way from the new package's folder to its own: where its file of weights is
};

/// metadata: for every model, behind what it has; a key that it has already gets the new value.
Status repack(const std::vector<PackedModel> &models, const std::vector<std::pair<std::string, std::string>> &metadata, const std::string &path);

} // namespace neso
