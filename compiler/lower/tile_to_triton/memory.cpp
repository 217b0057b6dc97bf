// Loads, stores, atomics, descriptors, and what is for the user's eyes.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lower/tile_to_triton/source.h"

namespace neso::triton_source {

using namespace mlir;

namespace {

std::string policy(tt::CacheModifier cache, tt::EvictionPolicy evict) {
  std::string out;
  if (cache != tt::CacheModifier::NONE)
    out += fmt::format(", cache_modifier=\".{}\"", stringifyCacheModifier(cache).str());
  if (evict != tt::EvictionPolicy::NORMAL) out += ", eviction_policy=" + quoted(stringifyEvictionPolicy(evict));
  return out;
}

std::string order(tt::MemSemantic sem, tt::MemSyncScope scope) {
  std::string out = ", sem=" + quoted(stringifyMemSemantic(sem));
  if (scope != tt::MemSyncScope::GPU) out += ", scope=" + quoted(stringifyMemSyncScope(scope));
  return out;
}

} // namespace

bool FunctionPrinter::statement(Op *op, bool &known) {
  known = true;
  if (auto load = dyn_cast<tt::LoadOp>(op)) {
    std::string options = option("mask", load.getMask());
    if (load.getMask()) {
      const Type element = getElementTypeOrSelf(load.getType());
      Text other = load.getOther() ? typed(load.getOther()) : Text{isa<FloatType>(element) ? "0.0" : "0"};
      // A plain zero is one in every type.
      auto constant = load.getOther() ? load.getOther().getDefiningOp<arith::ConstantOp>() : nullptr;
      if (constant &&
          (matchPattern(constant.getResult(), m_PosZeroFloat()) || matchPattern(constant.getResult(), m_Zero())))
        other.code = literal(constant.getValue());
      options += ", other=" + other.code;
    }
    options += policy(load.getCache(), load.getEvict());
    if (load.getIsVolatile()) options += ", volatile=True";
    return several(op, fmt::format("tl.load({}{})", exact(load.getPtr()), options));
  }
  if (auto store = dyn_cast<tt::StoreOp>(op)) {
    line(fmt::format("tl.store({}, {}{}{})", exact(store.getPtr()), typed(store.getValue()).code,
                     option("mask", store.getMask()), policy(store.getCache(), store.getEvict())));
  } else if (auto check = dyn_cast<tt::AssertOp>(op)) {
    line(fmt::format("tl.device_assert({}, {})", typed(check.getCondition()).code, quoted(check.getMessage())));
  } else if (auto print = dyn_cast<tt::PrintOp>(op)) {
    // Triton puts ": " behind a prefix of values by itself.
    llvm::StringRef prefix = print.getPrefix();
    if (!print.getArgs().empty()) prefix.consume_back(": ");
    const std::string values = arguments(print.getArgs());
    line(fmt::format("tl.device_print({}{}{})", quoted(prefix.ltrim()), values.empty() ? "" : ", " + values,
                     print.getHex() ? ", hex=True" : ""));
  } else if (isa<ttg::BarrierOp>(op)) {
    line("tl.debug_barrier()");
  } else if (op->getName().getStringRef() == "llvm.intr.assume") {
    line("tl.assume(" + typed(op->getOperand(0)).code + ")");
  } else if (isa<tt::GridDependencyWaitOp>(op)) {
    line("tl.extra.cuda.gdc_wait()");
  } else if (isa<tt::GridDependencyLaunchOp>(op)) {
    line("tl.extra.cuda.gdc_launch_dependents()");
  } else {
    known = false;
  }
  return !failed();
}

bool FunctionPrinter::atomic(Op *op, bool &known) {
  known = true;
  auto give = [&](const std::string &code) {
    if (op->use_empty()) {
      line(code);
      return !failed();
    }
    return several(op, code);
  };
  if (auto update = dyn_cast<tt::AtomicRMWOp>(op)) {
    using K = tt::RMWOp;
    const K kind = update.getAtomicRmwOp();
    const bool isUnsigned = kind == K::UMAX || kind == K::UMIN;
    const llvm::StringRef name = kind == K::FADD   ? "add"
                                 : kind == K::UMAX ? "max"
                                 : kind == K::UMIN ? "min"
                                 : kind == K::XCHG ? "xchg"
                                                   : stringifyRMWOp(kind);
    const Type element = getElementTypeOrSelf(update.getVal().getType());
    std::string pointer = exact(update.getPtr()), value = typed(update.getVal()).code;
    if (isUnsigned) {
      pointer = fmt::format("({}).to(tl.pointer_type({}))", pointer, unsignedName(element));
      value = fmt::format("({}).to({})", value, unsignedName(element));
    }
    std::string code = fmt::format("tl.atomic_{}({}, {}{}{})", name.str(), pointer, value,
                                   option("mask", update.getMask()), order(update.getSem(), update.getScope()));
    return give(isUnsigned ? fmt::format("{}.to({})", code, typeName(element)) : code);
  }
  if (auto swap = dyn_cast<tt::AtomicCASOp>(op))
    return give(fmt::format("tl.atomic_cas({}, {}, {}{})", exact(swap.getPtr()), exact(swap.getCmp()),
                            exact(swap.getVal()), order(swap.getSem(), swap.getScope())));
  if (auto load = dyn_cast<tt::AtomicLoadOp>(op))
    return give(fmt::format("tl.atomic_load({}{}{})", exact(load.getPtr()), option("mask", load.getMask()),
                            order(load.getSem(), load.getScope())));
  if (auto store = dyn_cast<tt::AtomicStoreOp>(op))
    return give(fmt::format("tl.atomic_store({}, {}{}{})", exact(store.getPtr()), typed(store.getValue()).code,
                            option("mask", store.getMask()), order(store.getSem(), store.getScope())));
  if (auto poll = dyn_cast<tt::AtomicPollOp>(op))
    return give(fmt::format("tl.atomic_poll({}, {}{}{})", exact(poll.getPtr()), exact(poll.getExpected()),
                            order(poll.getSem(), poll.getScope()), option("timeout_ns", poll.getTimeout())));
  known = false;
  return true;
}

bool FunctionPrinter::descriptor(Op *op, bool &known) {
  known = true;
  auto at = [&](ValueRange indices) {
    std::string out;
    for (Value v : indices) out += (out.empty() ? "" : ", ") + text(v).code;
    return "[" + out + "]";
  };
  if (auto make = dyn_cast<tt::MakeTensorDescOp>(op))
    return several(op, fmt::format("tl.make_tensor_descriptor({}, shape={}, strides={}, block_shape={}{})",
                                   exact(make.getBase()), at(make.getShape()), at(make.getStrides()),
                                   list(make.getType().getShape()),
                                   make.getPadding() == tt::PaddingOption::PAD_NAN ? ", padding_option=\"nan\"" : ""));
  if (auto load = dyn_cast<tt::DescriptorLoadOp>(op)) {
    Text block{fmt::format("{}.load({})", text(load.getDesc()).code, at(load.getIndices())), Binding::Primary,
               llvm::SmallVector<int64_t>(load.getDesc().getType().getShape())};
    // A block of the descriptor with axes of length 1 may be read without them.
    if (llvm::ArrayRef<int64_t>(block.shape) != load.getType().getShape())
      block = {fmt::format("tl.reshape({}, {})", block.code, list(load.getType().getShape())), Binding::Primary,
               llvm::SmallVector<int64_t>(load.getType().getShape())};
    assign(load, block);
    return !failed();
  }
  auto whole = [&](Value source, tt::TensorDescType desc) {
    const std::string code = exact(source);
    return desc.getShape() == cast<RankedTensorType>(source.getType()).getShape()
               ? code
               : fmt::format("tl.reshape({}, {})", code, list(desc.getShape()));
  };
  if (auto store = dyn_cast<tt::DescriptorStoreOp>(op)) {
    line(fmt::format("{}.store({}, {})", text(store.getDesc()).code, at(store.getIndices()),
                     whole(store.getSrc(), store.getDesc().getType())));
  } else if (auto reduce = dyn_cast<tt::DescriptorReduceOp>(op)) {
    const tt::DescriptorReduceKind kind = reduce.getKind();
    if (kind == tt::DescriptorReduceKind::INC || kind == tt::DescriptorReduceKind::DEC) {
      refuse(op, "a descriptor's reduction by inc or dec");
      return false;
    }
    line(fmt::format("{}.atomic_{}({}, {})", text(reduce.getDesc()).code, stringifyDescriptorReduceKind(kind).str(),
                     at(reduce.getIndices()), whole(reduce.getSrc(), reduce.getDesc().getType())));
  } else if (auto gather = dyn_cast<tt::DescriptorGatherOp>(op)) {
    return several(op, fmt::format("{}.gather({}, {})", text(gather.getDesc()).code, exact(gather.getXOffsets()),
                                   exact(gather.getYOffset())));
  } else if (auto scatter = dyn_cast<tt::DescriptorScatterOp>(op)) {
    line(fmt::format("{}.scatter({}, {}, {})", text(scatter.getDesc()).code, exact(scatter.getSrc()),
                     exact(scatter.getXOffsets()), exact(scatter.getYOffset())));
  } else {
    known = false;
  }
  return !failed();
}

} // namespace neso::triton_source
