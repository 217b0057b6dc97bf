// The kernel bundle: sources and launches of the user's Triton kernels in a model, which a .pt2 itself does not hold. It lies in the archive
// under extra/neso_kernels/ or in a folder: launches.json and the files that it names (layout: docs/user_kernels.md). A folder or file
// without launches.json offers plain sources, in which kernels are looked up by name.
//
//     Result<KernelBundle> b = readKernelBundle(model, {"kernels"});
//     for (const BundledLaunch *l : …) l->file is a path; its text is in b->sources when it is not on disk
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "base/diagnostics.h"
#include "ir/graph/graph.h"

namespace neso::pt2 {

using NamedText = std::pair<std::string, std::string>;

struct BundledConfig {
  std::vector<NamedText> kwargs; // constexpr -> Python literal
  int numWarps = 4, numStages = 3;
  std::vector<std::string> grid; // expressions over the model's size symbols; empty: as the launch has it
};

/// One row of launches.json. Which node it is: the graph node's name, or the operator (and which of its launches), or
/// the kernel's name.
struct BundledLaunch {
  std::string node, op, name;
  int index = 0;
  std::string file, function;                     // file: a path, or a name in KernelBundle::sources
  std::vector<std::string> parameters, signature; // parallel
  std::vector<NamedText> values;                  // parameter -> "input", or a literal
  int numWarps = 4, numStages = 3;
  std::vector<std::string> grid;
  std::vector<BundledConfig> configs; // of autotune
  std::vector<std::string> key;
  std::vector<NamedText> heuristics; // parameter -> function of the arguments, as text
  const std::string *value(const std::string &parameter) const;
};

struct KernelBundle {
  std::vector<BundledLaunch> launches;
  std::vector<NamedText> sources;      // path -> text, of files in the archive
  std::vector<std::string> looseFiles; // .py files without a launches.json beside them
};

/// The model's own bundle first, then those of the paths. Errors: FileUnreadable, BadJson, BadField.
Result<KernelBundle> readKernelBundle(const graph::Model &model, const std::string &modelPath,
                                      const std::vector<std::string> &paths);

} // namespace neso::pt2
