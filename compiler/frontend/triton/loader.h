// Finds and reads Python files: the kernel's own file and what it imports, beside it, in its package, or in the given
// search paths. Trees are kept for the life of the Loader. Nothing of an installed Python is consulted.
#pragma once
#include "frontend/triton/value.h"

#include <map>
#include <memory>

namespace neso::triton {

class Loader {
public:
  /// `sources` are files that are not on disk: path, text.
  explicit Loader(std::vector<std::string> searchPaths, std::vector<std::pair<std::string, std::string>> sources = {})
      : searchPaths_(std::move(searchPaths)), sources_(sources.begin(), sources.end()) {}

  /// Reads and parses `path`; the module's code has not run.
  Result<Module *> load(const std::string &path);
  /// Our own library, which is part of the program.
  Result<Module *> loadStandard();
  /// The file of `dotted` as imported from `from` with `level` leading dots; empty when there is none on disk.
  std::string resolve(const Module &from, std::string_view dotted, int level) const;

private:
  std::vector<std::string> searchPaths_;
  std::map<std::string, std::string> sources_;
  std::map<std::string, std::unique_ptr<Module>> modules_;
};

} // namespace neso::triton
