// The interpreter's machine: programs of the grid, blocks, control flow, constants. Ops on numbers are in
// interp_arith.cpp, on shapes in interp_shape.cpp, on memory in interp_memory.cpp.
#include "ir/tile/interp.h"

#include "base/diagnostics/tile.h"
#include "ir/tile/interp_impl.h"
#include "ir/tile/softfloat.h"

using namespace mlir;

namespace neso {
namespace tile {

Status Machine::run(tt::FuncOp func) {
  if (func.isExternal() || func.getNumArguments() != args.size())
    return fail(diag::TileBadArguments, sourceLoc(func.getLoc()), func.getSymName().str(),
                fmt::format("it has {} parameters, {} were given", func.getNumArguments(), args.size()));
  std::vector<Lanes> inputs;
  for (size_t i = 0; i < args.size(); ++i) {
    const InterpArg &arg = args[i];
    Type type = func.getArgumentTypes()[i];
    bool fits = (isa<tt::PointerType>(type) && arg.kind == InterpArg::Pointer) ||
                (isa<tt::TensorDescType>(type) && arg.kind == InterpArg::Descriptor) ||
                (isa<IntegerType>(type) && arg.kind == InterpArg::Int) ||
                (isa<FloatType>(type) && (arg.kind == InterpArg::Float || arg.kind == InterpArg::Int));
    if (!fits)
      return fail(diag::TileBadArguments, sourceLoc(func.getLoc()), func.getSymName().str(),
                  fmt::format("argument {} has another kind than its parameter", i));
    Lanes lanes;
    if (isa<tt::PointerType>(type)) lanes.push_back(slotOf(memory.address(i)));
    if (IntegerType integer = dyn_cast<IntegerType>(type))
      lanes.push_back(slotOf(wrap(arg.intValue, integer.getWidth())));
    if (FloatType number = dyn_cast<FloatType>(type))
      lanes.push_back(
          slotOf(roundTo(number, arg.kind == InterpArg::Float ? arg.floatValue : static_cast<double>(arg.intValue))));
    if (isa<tt::TensorDescType>(type)) {
      lanes.push_back(slotOf(memory.address(i)));
      for (int64_t v : arg.shape) lanes.push_back(slotOf(v));
      for (int64_t v : arg.strides) lanes.push_back(slotOf(v));
      lanes.push_back(slotOf(int64_t(arg.padNan)));
      if (lanes.size() != 2 * cast<tt::TensorDescType>(type).getShape().size() + 2)
        return fail(diag::TileBadArguments, sourceLoc(func.getLoc()), func.getSymName().str(),
                    fmt::format("descriptor argument {} has another rank than its parameter", i));
    }
    inputs.push_back(std::move(lanes));
  }
  for (program[2] = 0; program[2] < grid[2]; ++program[2])
    for (program[1] = 0; program[1] < grid[1]; ++program[1])
      for (program[0] = 0; program[0] < grid[0]; ++program[0]) {
        values.clear();
        std::vector<Lanes> results;
        if (!call(func, inputs, results)) return std::move(*error);
      }
  return Status::ok();
}

bool Machine::call(tt::FuncOp func, ArrayRef<Lanes> inputs, std::vector<Lanes> &results) {
  // Values of a function are one set a module; a recursive call would overwrite its caller's.
  if (++depth_ > 64) return fault(diag::TileInterpUnsupported, func, "recursion");
  bool ok = runRegion(func.getBody(), inputs, results);
  --depth_;
  return ok;
}

bool Machine::runRegion(Region &region, ArrayRef<Lanes> inputs, std::vector<Lanes> &results) {
  Block *block = &region.front();
  for (auto [arg, input] : llvm::zip_equal(block->getArguments(), inputs)) set(arg, input);
  while (true) {
    for (Operation &op : block->without_terminator())
      if (!execute(&op)) return false;
    if (!block->mightHaveTerminator()) return true;
    Operation *end = block->getTerminator();
    if (++steps_ > options.maxSteps) return fault(diag::TileEndless, end, programName());
    Block *next = nullptr;
    OperandRange passed = end->getOperands();
    if (cf::BranchOp branch = dyn_cast<cf::BranchOp>(end)) {
      next = branch.getDest();
      passed = branch.getDestOperands();
    } else if (cf::CondBranchOp branch = dyn_cast<cf::CondBranchOp>(end)) {
      bool taken = get(branch.getCondition())[0].i;
      next = taken ? branch.getTrueDest() : branch.getFalseDest();
      passed = taken ? branch.getTrueDestOperands() : branch.getFalseDestOperands();
    } else if (end->getNumSuccessors() != 0) {
      return fault(diag::TileInterpUnsupported, end, end->getName().getStringRef().str());
    }
    std::vector<Lanes> out;
    for (Value v : passed) out.push_back(get(v));
    if (!next) {
      results = std::move(out);
      return true;
    }
    for (auto [arg, lanes] : llvm::zip_equal(next->getArguments(), out)) set(arg, std::move(lanes));
    block = next;
  }
}

bool Machine::execute(Operation *op) {
  if (++steps_ > options.maxSteps) return fault(diag::TileEndless, op, programName());
  bool known = false;
  if (!executeElementwise(op, known) || (!known && !executeShape(op, known)) || (!known && !executeMemory(op, known)) ||
      (!known && !executeShared(op, known)) || (!known && !executeControl(op, known)) ||
      (!known && !executeCombine(op, known)))
    return false;
  if (!known) return fault(diag::TileInterpUnsupported, op, op->getName().getStringRef().str());
  return true;
}

/// Elements of a constant.
static bool constantLanes(Attribute value, Type type, Lanes &out) {
  auto one = [](Attribute a) {
    if (FloatAttr f = dyn_cast<FloatAttr>(a))
      return slotOf(decode(cast<FloatType>(f.getType()), f.getValue().bitcastToAPInt().getZExtValue()));
    const APInt &bits = cast<IntegerAttr>(a).getValue();
    return slotOf(
        wrap(bits.getBitWidth() > 64 ? bits.trunc(64).getSExtValue() : bits.getSExtValue(), bits.getBitWidth()));
  };
  if (DenseElementsAttr dense = dyn_cast<DenseElementsAttr>(value)) {
    if (dense.isSplat())
      out.assign(elementCount(type), one(dense.getSplatValue<Attribute>()));
    else
      for (Attribute a : dense.getValues<Attribute>()) out.push_back(one(a));
    return true;
  }
  if (!isa<FloatAttr, IntegerAttr>(value)) return false;
  out.push_back(one(value));
  return true;
}

std::vector<Lanes> Machine::getAll(ValueRange range) {
  std::vector<Lanes> out;
  for (Value v : range) out.push_back(get(v));
  return out;
}

bool Machine::runFor(scf::ForOp loop, std::vector<Lanes> &results) {
  IntegerType integer = dyn_cast<IntegerType>(loop.getInductionVar().getType());
  unsigned width = integer ? integer.getWidth() : 64;
  int64_t i = get(loop.getLowerBound())[0].i, end = get(loop.getUpperBound())[0].i, step = get(loop.getStep())[0].i;
  if (step <= 0) return fault(diag::TileEndless, loop, programName());
  results = getAll(loop.getInitArgs());
  for (; loop.getUnsignedCmp() ? asUnsigned(i, width) < asUnsigned(end, width) : i < end; i += step) {
    std::vector<Lanes> inputs;
    inputs.push_back({slotOf(i)});
    for (Lanes &lanes : results) inputs.push_back(std::move(lanes));
    if (!runRegion(loop.getRegion(), inputs, results)) return false;
  }
  return true;
}

bool Machine::runWhile(scf::WhileOp loop, std::vector<Lanes> &results) {
  std::vector<Lanes> inputs = getAll(loop.getInits());
  while (true) {
    if (!runRegion(loop.getBefore(), inputs, results)) return false; // condition, then what is passed on
    bool go = results[0][0].i;
    results.erase(results.begin());
    if (!go) return true;
    // Programs run one after the other, so memory will not change while this one waits.
    if (loop->hasAttr("tt.waits")) return fault(diag::TileEndless, loop, programName());
    inputs = std::move(results);
    if (!runRegion(loop.getAfter(), inputs, results)) return false;
    inputs = std::move(results);
  }
}

bool Machine::executeControl(Operation *op, bool &known) {
  known = true;
  if (arith::ConstantOp constant = dyn_cast<arith::ConstantOp>(op)) {
    Lanes lanes;
    if (!constantLanes(constant.getValue(), constant.getType(), lanes))
      return fault(diag::TileInterpUnsupported, op, "constant");
    set(constant, std::move(lanes));
    return true;
  }
  if (tt::GetProgramIdOp id = dyn_cast<tt::GetProgramIdOp>(op)) {
    set(id, {slotOf(program[static_cast<size_t>(id.getAxis())])});
    return true;
  }
  if (tt::GetNumProgramsOp num = dyn_cast<tt::GetNumProgramsOp>(op)) {
    set(num, {slotOf(grid[static_cast<size_t>(num.getAxis())])});
    return true;
  }
  std::vector<Lanes> results;
  bool good = true;
  if (tt::CallOp callOp = dyn_cast<tt::CallOp>(op)) {
    tt::FuncOp callee = SymbolTable::lookupNearestSymbolFrom<tt::FuncOp>(op, callOp.getCalleeAttr());
    if (!callee || callee.isExternal()) return fault(diag::TileInterpUnsupported, op, "a call of an external function");
    good = call(callee, getAll(callOp.getOperands()), results);
  } else if (scf::IfOp branch = dyn_cast<scf::IfOp>(op)) {
    Region &region = get(branch.getCondition())[0].i ? branch.getThenRegion() : branch.getElseRegion();
    good = region.empty() || runRegion(region, {}, results);
  } else if (scf::ForOp loop = dyn_cast<scf::ForOp>(op)) {
    good = runFor(loop, results);
  } else if (scf::WhileOp loop = dyn_cast<scf::WhileOp>(op)) {
    good = runWhile(loop, results);
  } else if (scf::ExecuteRegionOp region = dyn_cast<scf::ExecuteRegionOp>(op)) {
    good = runRegion(region.getRegion(), {}, results);
  } else if (scf::IndexSwitchOp select = dyn_cast<scf::IndexSwitchOp>(op)) {
    int64_t value = get(select.getArg())[0].i;
    Region *chosen = &select.getDefaultRegion();
    for (auto [i, c] : llvm::enumerate(select.getCases()))
      if (c == value) chosen = &select.getCaseRegions()[i];
    good = runRegion(*chosen, {}, results);
  } else {
    known = false;
    return true;
  }
  if (!good) return false;
  for (auto [result, lanes] : llvm::zip_equal(op->getResults(), results)) set(result, std::move(lanes));
  return true;
}

} // namespace tile

Status interpretTile(tt::FuncOp func, std::span<const InterpArg> args, std::array<int64_t, 3> grid,
                     const InterpOptions &options) {
  tile::Machine machine(args, grid, options);
  return machine.run(func);
}

} // namespace neso
