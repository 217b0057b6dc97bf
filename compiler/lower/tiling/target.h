// What a target says to those who choose blocks and write tile programs for it.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "base/machine.h"
#include "ir/plan/plan.h"
#include "ir/tile/build.h"

namespace neso {

/// What shared code asks of a target when it chooses blocks (elements). The defaults are a CPU's.
struct TileTarget {
  /// Elements of one program of a pointwise kernel, at most.
  int64_t pointwiseBlock = 1024;
  /// r elements of one step of a reduction along contiguous memory.
  int64_t reduceChunk = 4096;
  /// x elements of one program when the reduction runs across rows.
  int64_t columnBlock = 64;
  int64_t dotM = 64, dotN = 64, dotK = 256;
  bool packWeights = true;
  /// Every weight can be given another value later.
  bool updatable = false;
  /// Weights stay in the model's order of elements, so that a run can read them in the caller's memory.
  bool keepOrder = false;
  /// Of contractions and attention.
  tile::F32Products f32Products = tile::F32Products::Ieee;
  /// Capabilities::threadBlocks. Then blocks are chosen so that all processors have work, kernels get a number of warps,
  /// loops carry tiles of partial results, a row that fits into registers is read once, updates of memory are atomic
  /// instructions, and what cannot be one runs as a loop in a single program.
  bool threadBlocks = false;
  /// Capabilities::alignedInputs.
  bool alignedInputs = false;
  /// MachineSheet::processors.
  int64_t processors = 1;
  MachineSheet machine;
  /// Contractions that a library for matrix products may compute, beside the kernel that is made for each: none, those
  /// that the cost model finds faster there, all that it can.
  enum class Library : uint8_t { Never, Auto, Always } library = Library::Never;
  /// Chosen by tuning in place of the cost model; 0: the model decides.
  int64_t fixedDotM = 0, fixedDotN = 0;
  int fixedStages = 0;
  /// Chooses among the ways to compile a kernel (ways.h), given their names, the cost model's first. Empty: the cost
  /// model's.
  std::function<size_t(const plan::Plan &, const plan::Kernel &, const std::vector<std::string> &)> chooseWay;
  /// Longest row, in elements, that one program keeps in registers.
  int64_t registerRow = 16384;
};

/// Blocks for a machine.
TileTarget tileTarget(const MachineSheet &machine, const Capabilities &caps);

/// Whether a target of thread blocks can do this update in memory by one atomic instruction: sums of floats and of
/// whole words, extremes of words.
bool hasAtomic(loops::StoreMode mode, DType dtype);
/// The same by one or more (lower/plan_to_tile/update.cpp): all updates of whole words, too. Others need programs in order.
bool updatesInAnyOrder(loops::StoreMode mode, DType dtype);

} // namespace neso
