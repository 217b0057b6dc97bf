// Package: a plan, its machine code and its constants become one file that the runtime maps and runs (abi/archive.h, abi/plan.fbs).
//
//     PackageContents contents{&plan, {}, {codeV3, codeV4}, {{"author", "me"}}};
//     Status s = writePackage(contents, "model.neso");       // or packageBytes(contents), to run it at once
//
// Equal contents give equal bytes: time stamps are fixed and members stand in a fixed order. The size expressions of the plan become a
// size program over int64 slots (size_program.h). Stands last in the driver: nothing may change after it.
//
// Errors: PlanUnpackable for a plan that the runtime could not walk (a size that no input defines, a kernel without code, a step on a
// buffer without memory); FileUnwritable.
#pragma once
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "backend/common/compiled_code.h"
#include "base/diagnostics.h"
#include "base/machine.h"
#include "ir/plan/plan.h"
#include "ir/shape/expr.h"
#include "package/weight_place.h"

namespace neso {

/// A kernel that callers launch by name, in a package without a model or beside one.
struct LooseKernel {
  std::string name;                                          // for neso_kernel_launch
  std::string function;                                      // CompiledFunction::name
  int argCount = 0;                                          // parameters of the tile function
  std::vector<std::pair<std::string, std::string>> metadata; // "kernel.<name>.<key>" in the package's metadata
  // What a launch must satisfy. The expressions are over the symbols `gridSymbols` and `argumentSymbols`.
  struct Footprint {
    int argument;
    Expr begin, end, valid; // bytes [begin, end) are touched if valid is not 0
    int line;
  };
  std::vector<int> align = {}; // one an argument; empty: nothing is asked
  std::array<Symbol, 3> gridSymbols = {};
  std::vector<Symbol> argumentSymbols = {}; // one an argument, if there are footprints
  std::vector<Footprint> footprints = {};
  std::vector<Expr> grid = {}; // programs along x, y and z, over `argumentSymbols`; empty: whoever launches it says
};

struct PackageContents {
  const plan::Plan *plan = nullptr; // nullptr: kernels only
  std::vector<LooseKernel> kernels;
  std::vector<CompiledCode> code; // worst to best level
  std::vector<std::pair<std::string, std::string>> metadata; // the user's, in order
  Capabilities caps = {};                                    // of the machines that the code is for
  WeightPlace weights = {};
  std::string samples = {}; // inputs to try the model with, as .safetensors; empty: none
};

/// Weights are read where the model's file is mapped: no copy of the package is ever in memory.
Status writePackage(const PackageContents &contents, const std::string &path);
/// The same bytes in memory.
Result<std::string> packageBytes(const PackageContents &contents);

/// One member of a file of weights.
struct WeightMember {
  std::string name; // below the root
  const uint8_t *data;
  size_t bytes;
};
/// The members that contents.weights leaves to a file; borrowed from the plan's constants.
Result<std::vector<WeightMember>> membersBeside(const PackageContents &contents);
Status writeWeightFile(const std::vector<WeightMember> &members, const std::string &path);

} // namespace neso
