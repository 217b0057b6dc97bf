// What both back ends do with LLVM in one way: names of entries, comparisons, the set-up of optimisation passes.
#pragma once
#include <set>
#include <string>

#include "mlir/IR/Operation.h"
#include "llvm/Analysis/CGSCCPassManager.h"
#include "llvm/Analysis/LoopAnalysisManager.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/PassManager.h"

namespace llvm {
class TargetMachine;
}

namespace neso {

/// From now on what LLVM calls a fatal error is a fault of Neso's (base/fault.h), and its options are as Neso needs them. Call it before
/// a target machine is made; any thread, any number of times.
void setUpLlvm();

/// The exported symbol of a tile function: "neso_k_" and its name, with a number behind it when that is taken. Adds it
/// to `taken`.
std::string entrySymbol(const std::string &name, std::set<std::string> &taken);

/// arith.cmpi or arith.cmpf on operands of one type, scalar or vector.
llvm::Value *emitCompare(llvm::IRBuilder<> &b, mlir::Operation *op, llvm::Value *x, llvm::Value *y);

/// The analyses of LLVM's new pass manager, registered with one another for `machine`.
struct PassAnalyses {
  explicit PassAnalyses(llvm::TargetMachine &machine);
  llvm::LoopAnalysisManager loop;
  llvm::FunctionAnalysisManager function;
  llvm::CGSCCAnalysisManager cgscc;
  llvm::ModuleAnalysisManager module;
};

} // namespace neso
