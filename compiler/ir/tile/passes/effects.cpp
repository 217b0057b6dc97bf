#include "ir/tile/passes/effects.h"

#include <map>
#include <set>

#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace neso {
namespace {

/// Which parameters of its function a value's address may come from.
struct Origins {
  std::set<unsigned> params;
  std::string unknown; // why it may come from elsewhere
};

class Analyzer {
public:
  /// Effects on the parameters of `func`; `results` receives the origins of what it returns.
  const KernelEffects &summary(tt::FuncOp func) {
    auto [it, fresh] = summaries_.try_emplace(func.getOperation());
    KernelEffects &effects = it->second;
    if (!fresh) {
      if (active_.count(func.getOperation())) give(effects, "a function calls itself");
      return effects;
    }
    effects.params.resize(func.getNumArguments());
    if (func.isExternal()) {
      give(effects, "'" + func.getSymName().str() + "' has no body");
      return effects;
    }
    active_.insert(func.getOperation());
    func.walk([&](Operation *op) { visit(op, effects); });
    active_.erase(func.getOperation());
    return effects;
  }

private:
  std::map<Operation *, KernelEffects> summaries_; // nodes of a map stay where they are
  std::set<Operation *> active_;

  static void give(KernelEffects &effects, std::string why) {
    if (effects.known) effects.unknownBecause = std::move(why);
    effects.known = false;
  }

  void touch(Value address, bool read, bool write, KernelEffects &effects) {
    Origins origins;
    DenseSet<Value> seen;
    follow(address, origins, seen);
    if (!origins.unknown.empty()) give(effects, origins.unknown);
    for (unsigned p : origins.params) {
      effects.params[p].read |= read;
      effects.params[p].written |= write;
      effects.params[p].writers += write;
    }
  }

  void visit(Operation *op, KernelEffects &effects) {
    if (tt::LoadOp o = dyn_cast<tt::LoadOp>(op)) return touch(o.getPtr(), true, false, effects);
    if (tt::StoreOp o = dyn_cast<tt::StoreOp>(op)) return touch(o.getPtr(), false, true, effects);
    if (tt::AtomicRMWOp o = dyn_cast<tt::AtomicRMWOp>(op)) return touch(o.getPtr(), true, true, effects);
    if (tt::AtomicCASOp o = dyn_cast<tt::AtomicCASOp>(op)) return touch(o.getPtr(), true, true, effects);
    if (tt::AtomicLoadOp o = dyn_cast<tt::AtomicLoadOp>(op)) return touch(o.getPtr(), true, false, effects);
    if (tt::AtomicPollOp o = dyn_cast<tt::AtomicPollOp>(op)) return touch(o.getPtr(), true, false, effects);
    if (tt::AtomicStoreOp o = dyn_cast<tt::AtomicStoreOp>(op)) return touch(o.getPtr(), false, true, effects);
    if (tt::DescriptorLoadOp o = dyn_cast<tt::DescriptorLoadOp>(op)) return touch(o.getDesc(), true, false, effects);
    if (tt::DescriptorGatherOp o = dyn_cast<tt::DescriptorGatherOp>(op))
      return touch(o.getDesc(), true, false, effects);
    if (tt::DescriptorStoreOp o = dyn_cast<tt::DescriptorStoreOp>(op)) return touch(o.getDesc(), false, true, effects);
    if (tt::DescriptorScatterOp o = dyn_cast<tt::DescriptorScatterOp>(op))
      return touch(o.getDesc(), false, true, effects);
    if (tt::DescriptorReduceOp o = dyn_cast<tt::DescriptorReduceOp>(op)) return touch(o.getDesc(), true, true, effects);
    if (tt::CallOp call = dyn_cast<tt::CallOp>(op)) {
      tt::FuncOp callee = SymbolTable::lookupNearestSymbolFrom<tt::FuncOp>(op, call.getCalleeAttr());
      if (!callee) return give(effects, "a called function is not in the module");
      const KernelEffects &inner = summary(callee);
      if (!inner.known) give(effects, inner.unknownBecause);
      for (auto [i, e] : llvm::enumerate(inner.params)) {
        if (!e.read && !e.written) continue;
        touch(call.getOperand(i), e.read, e.written, effects);
      }
      return;
    }
    if (isa<tt::FuncOp, tt::PrintOp, tt::AssertOp, ttg::BarrierOp, tt::GridDependencyWaitOp,
            tt::GridDependencyLaunchOp>(op))
      return;
    if (op->getNumRegions() != 0) {
      if (!isa<scf::ForOp, scf::WhileOp, scf::IfOp, scf::ExecuteRegionOp, scf::IndexSwitchOp, tt::ReduceOp, tt::ScanOp,
               tt::MapElementwiseOp>(op))
        give(effects, "it holds '" + op->getName().getStringRef().str() + "', whose regions are not understood");
      return;
    }
    if (op->hasTrait<OpTrait::IsTerminator>() || op->getName().getStringRef() == "llvm.intr.assume") return;
    if (!isMemoryEffectFree(op)) give(effects, "'" + op->getName().getStringRef().str() + "' may touch any memory");
  }

  /// Adds the parameters that `v`, an address or a number used as one, may come from.
  void follow(Value v, Origins &out, DenseSet<Value> &seen) {
    if (!seen.insert(v).second) return;
    if (BlockArgument arg = dyn_cast<BlockArgument>(v)) return followArgument(arg, out, seen);
    Operation *op = v.getDefiningOp();
    unsigned index = cast<OpResult>(v).getResultNumber();
    if (isa<tt::AddPtrOp, tt::MakeTensorPtrOp, tt::AdvanceOp, tt::MakeTensorDescOp>(op))
      return follow(op->getOperand(0), out, seen);
    if (arith::SelectOp select = dyn_cast<arith::SelectOp>(op)) {
      follow(select.getTrueValue(), out, seen);
      return follow(select.getFalseValue(), out, seen);
    }
    if (isa<tt::LoadOp, tt::AtomicRMWOp, tt::AtomicCASOp, tt::AtomicLoadOp, tt::DescriptorLoadOp,
            tt::DescriptorGatherOp>(op)) {
      out.unknown = "an address is read from memory";
      return;
    }
    if (scf::ForOp loop = dyn_cast<scf::ForOp>(op)) {
      follow(loop.getInitArgs()[index], out, seen);
      return follow(loop.getBody()->getTerminator()->getOperand(index), out, seen);
    }
    if (scf::WhileOp loop = dyn_cast<scf::WhileOp>(op))
      return follow(loop.getConditionOp().getArgs()[index], out, seen);
    if (isa<scf::IfOp, scf::ExecuteRegionOp, scf::IndexSwitchOp>(op)) {
      for (Region &region : op->getRegions())
        for (Block &block : region)
          if (block.getTerminator()->getNumSuccessors() == 0)
            follow(block.getTerminator()->getOperand(index), out, seen);
      return;
    }
    if (tt::CallOp call = dyn_cast<tt::CallOp>(op)) {
      tt::FuncOp callee = SymbolTable::lookupNearestSymbolFrom<tt::FuncOp>(op, call.getCalleeAttr());
      if (!callee || callee.isExternal() || active_.count(callee.getOperation())) {
        out.unknown = "an address comes from a call that cannot be followed";
        return;
      }
      Origins inner;
      DenseSet<Value> innerSeen;
      for (Block &block : callee.getBody())
        if (tt::ReturnOp ret = dyn_cast<tt::ReturnOp>(block.getTerminator()))
          follow(ret.getOperand(index), inner, innerSeen);
      if (!inner.unknown.empty()) out.unknown = inner.unknown;
      for (unsigned p : inner.params) follow(call.getOperand(p), out, seen);
      return;
    }
    // Shapes, casts and arithmetic: from any operand. Constants (the null pointer) come from nowhere.
    for (Value operand : op->getOperands()) follow(operand, out, seen);
  }

  void followArgument(BlockArgument arg, Origins &out, DenseSet<Value> &seen) {
    Block *block = arg.getOwner();
    Operation *parent = block->getParentOp();
    unsigned index = arg.getArgNumber();
    if (!block->isEntryBlock()) {
      for (auto it = block->pred_begin(); it != block->pred_end(); ++it)
        if (BranchOpInterface branch = dyn_cast<BranchOpInterface>((*it)->getTerminator()))
          if (Value passed = branch.getSuccessorOperands(it.getSuccessorIndex())[index]) follow(passed, out, seen);
      return;
    }
    if (isa<tt::FuncOp>(parent)) {
      Type type = arg.getType();
      // A number that is used as an address could point anywhere.
      if (isa<tt::PointerType, tt::TensorDescType>(getElementTypeOrSelf(type)))
        out.params.insert(index);
      else if (cast<tt::FuncOp>(parent).isPublic())
        out.unknown = "a number is used as an address";
      else
        out.params.insert(index);
      return;
    }
    if (scf::ForOp loop = dyn_cast<scf::ForOp>(parent)) {
      if (index == 0) {
        follow(loop.getLowerBound(), out, seen);
        return follow(loop.getStep(), out, seen);
      }
      follow(loop.getInitArgs()[index - 1], out, seen);
      return follow(loop.getBody()->getTerminator()->getOperand(index - 1), out, seen);
    }
    if (scf::WhileOp loop = dyn_cast<scf::WhileOp>(parent)) {
      if (block == loop.getAfterBody()) return follow(loop.getConditionOp().getArgs()[index], out, seen);
      follow(loop.getInits()[index], out, seen);
      return follow(loop.getAfterBody()->getTerminator()->getOperand(index), out, seen);
    }
    for (Value operand : parent->getOperands()) follow(operand, out, seen);
  }
};

} // namespace

bool coversOnce(Value offset, int64_t &axis) {
  arith::AddIOp add = offset.getDefiningOp<arith::AddIOp>();
  if (!add) return false;
  for (auto [base, range] : {std::pair(add.getLhs(), add.getRhs()), std::pair(add.getRhs(), add.getLhs())}) {
    tt::MakeRangeOp r = range.getDefiningOp<tt::MakeRangeOp>();
    tt::SplatOp splat = base.getDefiningOp<tt::SplatOp>();
    if (!r || !splat) continue;
    int64_t n = static_cast<int32_t>(r.getEnd()) - static_cast<int32_t>(r.getStart());
    arith::MulIOp mul = splat.getSrc().getDefiningOp<arith::MulIOp>();
    if (!mul) continue;
    for (auto [pid, size] : {std::pair(mul.getLhs(), mul.getRhs()), std::pair(mul.getRhs(), mul.getLhs())}) {
      tt::GetProgramIdOp id = pid.getDefiningOp<tt::GetProgramIdOp>();
      APInt value;
      if (id && matchPattern(size, m_ConstantInt(&value)) && value.getSExtValue() >= n) {
        axis = static_cast<int64_t>(id.getAxis());
        return true;
      }
    }
  }
  return false;
}

namespace {

/// A parameter's one writer is a plain store at the top level of the kernel whose addresses never meet. Other axes of
/// the grid would write again, so they must be unused, which a launch of one axis is; only axis 0 counts.
void proveOnce(tt::FuncOp func, KernelEffects &effects) {
  if (!effects.known || func.isExternal()) return;
  func.walk([&](tt::StoreOp store) {
    if (store->getParentOp() != func || !func.getBody().hasOneBlock()) return;
    tt::AddPtrOp add = store.getPtr().getDefiningOp<tt::AddPtrOp>();
    tt::SplatOp splat = add ? add.getPtr().getDefiningOp<tt::SplatOp>() : nullptr;
    BlockArgument param = splat ? dyn_cast<BlockArgument>(splat.getSrc()) : nullptr;
    int64_t axis = -1;
    if (!param || param.getOwner()->getParentOp() != func || !coversOnce(add.getOffset(), axis) || axis != 0) return;
    ParamEffect &effect = effects.params[param.getArgNumber()];
    effect.writtenOnce = effect.writers == 1;
  });
}

} // namespace

std::vector<unsigned> KernelEffects::written() const {
  std::vector<unsigned> out;
  for (unsigned i = 0; i < params.size(); ++i)
    if (params[i].written) out.push_back(i);
  return out;
}

std::vector<unsigned> KernelEffects::read() const {
  std::vector<unsigned> out;
  for (unsigned i = 0; i < params.size(); ++i)
    if (params[i].read) out.push_back(i);
  return out;
}

KernelEffects analyzeEffects(tt::FuncOp func) {
  Analyzer analyzer;
  KernelEffects effects = analyzer.summary(func);
  for (unsigned i = 0; i < effects.params.size(); ++i) {
    ParamEffect &e = effects.params[i];
    e.pointer = isa<tt::PointerType, tt::TensorDescType>(func.getArgumentTypes()[i]);
    if (!e.pointer)
      e = ParamEffect();
    else if (!effects.known)
      e = {true, true, true, std::max(e.writers, 1), false};
  }
  proveOnce(func, effects);
  return effects;
}

} // namespace neso
