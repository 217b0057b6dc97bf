// Size expressions → a program over int64 slots (SizeInst of abi/plan.fbs).
//
// Each distinct expression gets one slot and is computed once. Symbols are slots that something outside the program
// writes: an input, or a LoadScalar step for sizes that are known only while the model runs ("late" symbols). The
// program falls into segments: segment 0, the prologue, holds what depends on inputs alone; each late symbol has the
// segment of what depends on it, to be run after its load.
//
// Example: s0 an input's size, 4*s0 asked for: slots [4 | s0, 4*s0], program mul %2 = %0, %1.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include "abi/plan_generated.h"
#include "base/diagnostics.h"
#include "ir/shape/expr.h"

namespace neso {

class SizeProgram {
public:
  /// Gives a symbol a slot of its own; `late` opens a segment for it. Returns the slot.
  int32_t define(Symbol symbol, bool late = false);
  bool defined(Symbol symbol) const { return symbols_.count(symbol) != 0; }
  /// A symbol computed from others: its slot is that of `value`.
  void defineAs(Symbol symbol, Expr value);
  /// Slot that holds e. Fails with PlanUnpackable (through error()) on a symbol that was never defined; the slot is
  /// then 0.
  int32_t slot(Expr e);
  int32_t constant(int64_t value);
  int32_t floatConstant(double value);
  /// Segment in which e gets its value.
  size_t segmentOf(Expr e);
  size_t segmentOfSymbol(Symbol symbol) const { return symbols_.at(symbol).segment; }
  size_t segments() const { return segments_.size(); }
  /// First symbol that was asked for without definition; empty: none.
  const std::string &undefined() const { return undefined_; }

  /// Numbers every slot: constants first. Called once, after the last slot().
  struct Finished {
    std::vector<int64_t> constants;
    int32_t slotCount;
    std::vector<neso::fbs::SizeInst> program;
    std::vector<neso::fbs::SizeRange> ranges; // one a segment
  };
  Finished finish() const;
  /// Slots handed out before finish() count constants as ~0, ~1, …; this gives the final number.
  int32_t finalSlot(int32_t slot) const { return slot < 0 ? ~slot : slot + static_cast<int32_t>(constants_.size()); }

private:
  struct Place {
    int32_t slot;
    size_t segment;
  };
  struct Instruction {
    neso::fbs::SizeOp op;
    int32_t dst, a, b, c;
  };
  int32_t variable() { return variables_++; }
  int32_t emit(size_t segment, neso::fbs::SizeOp op, int32_t a, int32_t b = ~0, int32_t c = ~0);
  int32_t compute(Expr e);
  int32_t fold(Expr e, neso::fbs::SizeOp op);

  std::vector<int64_t> constants_;
  std::unordered_map<int64_t, int32_t> constantSlots_;
  SymbolMap<Place> symbols_;
  std::unordered_map<Expr, int32_t> slots_;
  std::vector<std::vector<Instruction>> segments_ = std::vector<std::vector<Instruction>>(1);
  int32_t variables_ = 0;
  std::string undefined_;
};

} // namespace neso
