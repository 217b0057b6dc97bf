// Atomics: one instruction an element by the thread that owns it, or several neighbours that it adds to; old values go to the threads that hold copies.
#include "backend/nvidia/atomics.h"

#include "backend/nvidia/emitter.h"
#include "backend/nvidia/linear.h"
#include "backend/nvidia/move.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/Instructions.h"

namespace neso::nvidia {

using llvm::Value;

namespace {

const char *orderName(tt::MemSemantic sem) {
  switch (sem) {
  case tt::MemSemantic::RELAXED: return ".relaxed";
  case tt::MemSemantic::ACQUIRE: return ".acquire";
  case tt::MemSemantic::RELEASE: return ".release";
  case tt::MemSemantic::ACQUIRE_RELEASE: return ".acq_rel";
  }
  NESO_UNREACHABLE("memory order");
}
const char *scopeName(tt::MemSyncScope scope) {
  switch (scope) {
  case tt::MemSyncScope::GPU: return ".gpu";
  case tt::MemSyncScope::CTA: return ".cta";
  case tt::MemSyncScope::SYSTEM: return ".sys";
  }
  NESO_UNREACHABLE("memory scope");
}

/// The instruction's operation and type: ".add.noftz.f16", of so many neighbours ".add.noftz.v8.f16"; empty where the machine has none.
std::string rmwName(tt::RMWOp op, mlir::Type type, const Chip &chip, int64_t neighbours) {
  const bool isInt = llvm::isa<mlir::IntegerType>(type);
  const std::string bits = std::to_string(type.isIntOrFloat() ? type.getIntOrFloatBitWidth() : 64);
  const bool word = bits == "32" || bits == "64";
  switch (op) {
  case tt::RMWOp::AND: return isInt && word ? ".and.b" + bits : "";
  case tt::RMWOp::OR: return isInt && word ? ".or.b" + bits : "";
  case tt::RMWOp::XOR: return isInt && word ? ".xor.b" + bits : "";
  case tt::RMWOp::ADD: return isInt && word ? ".add.u" + bits : "";
  case tt::RMWOp::MAX: return isInt && word ? ".max.s" + bits : "";
  case tt::RMWOp::MIN: return isInt && word ? ".min.s" + bits : "";
  case tt::RMWOp::UMAX: return isInt && word ? ".max.u" + bits : "";
  case tt::RMWOp::UMIN: return isInt && word ? ".min.u" + bits : "";
  case tt::RMWOp::XCHG: return word ? ".exch.b" + bits : "";
  case tt::RMWOp::FADD: {
    const std::string vector = neighbours > 1 ? ".v" + std::to_string(neighbours) : "";
    if (type.isF32() || type.isF64()) return ".add" + vector + ".f" + bits;
    if (type.isF16()) return ".add.noftz" + vector + ".f16";
    if (type.isBF16() && chip.has(Feature::AtomicBf16)) return ".add.noftz" + vector + ".bf16";
    return "";
  }
  }
  NESO_UNREACHABLE("atomic operation");
}

/// The register of the assembly that holds an element, and its constraint.
std::pair<llvm::Type *, const char *> wordOf(llvm::IRBuilder<> &b, int64_t bytes) {
  if (bytes == 8) return {b.getInt64Ty(), "l"};
  if (bytes == 4) return {b.getInt32Ty(), "r"};
  return {b.getInt16Ty(), "h"};
}

} // namespace

bool isReduction(tt::AtomicRMWOp op) {
  const bool alone = op.getSem() == tt::MemSemantic::RELAXED || op.getSem() == tt::MemSemantic::RELEASE;
  // exch has no such form.
  return alone && op.getResult().use_empty() && op.getAtomicRmwOp() != tt::RMWOp::XCHG;
}

int64_t mostAddedAtOnce(tt::AtomicRMWOp op, const Chip &chip) {
  if (!chip.has(Feature::AtomicVector) || op.getAtomicRmwOp() != tt::RMWOp::FADD || !isReduction(op)) return 1;
  auto tensor = llvm::dyn_cast<mlir::RankedTensorType>(op.getVal().getType());
  if (!tensor) return 1;
  const mlir::Type element = tensor.getElementType();
  return element.isF32() ? 4 : element.isF16() || element.isBF16() ? 8 : 1;
}

Value *Emitter::atomicAsm(const std::string &instruction, llvm::ArrayRef<Value *> operands, Value *condition,
                          int64_t bytes, bool result, bool together) {
  auto [word, constraint] = wordOf(b, bytes);
  // %instruction [$ptr], $value…: with a result before them, which a masked-off element leaves zero.
  llvm::SmallVector<Value *, 4> args;
  std::string constraints, text, list;
  int next = result ? 1 : 0;
  if (result) constraints = std::string("=") + constraint;
  auto add = [&](Value *v, const std::string &c) {
    args.push_back(v);
    constraints += (constraints.empty() ? "" : ",") + c;
    return "$" + std::to_string(next++);
  };
  for (size_t i = 0; i < operands.size(); ++i)
    list += i == 0 ? "[" + add(operands[0], "l") + "]" : (i == 1 && together ? ", {" : ", ") + add(operands[i], constraint);
  if (together) list += "}";
  if (condition) text = "@" + add(condition, "b") + " ";
  if (condition && result) add(llvm::ConstantInt::get(word, 0), "0");
  text += instruction + " " + (result ? "$0, " : "") + list + ";";
  constraints += ",~{memory}";
  llvm::SmallVector<llvm::Type *, 4> types;
  for (Value *a : args) types.push_back(a->getType());
  auto *type = llvm::FunctionType::get(result ? word : b.getVoidTy(), types, false);
  llvm::CallInst *call = b.CreateCall(type, llvm::InlineAsm::get(type, text, constraints, true), args);
  call->setDoesNotThrow();
  return result ? call : nullptr;
}

namespace {
/// LLVM's operation; nothing for those that it has only on other types.
std::optional<llvm::AtomicRMWInst::BinOp> loopOp(tt::RMWOp op, mlir::Type type) {
  using B = llvm::AtomicRMWInst::BinOp;
  const bool isInt = llvm::isa<mlir::IntegerType>(type) && type.getIntOrFloatBitWidth() >= 8;
  switch (op) {
  case tt::RMWOp::AND: return isInt ? std::optional(B::And) : std::nullopt;
  case tt::RMWOp::OR: return isInt ? std::optional(B::Or) : std::nullopt;
  case tt::RMWOp::XOR: return isInt ? std::optional(B::Xor) : std::nullopt;
  case tt::RMWOp::ADD: return isInt ? std::optional(B::Add) : std::nullopt;
  case tt::RMWOp::MAX: return isInt ? B::Max : B::FMax;
  case tt::RMWOp::MIN: return isInt ? B::Min : B::FMin;
  case tt::RMWOp::UMAX: return isInt ? std::optional(B::UMax) : std::nullopt;
  case tt::RMWOp::UMIN: return isInt ? std::optional(B::UMin) : std::nullopt;
  case tt::RMWOp::XCHG: return isInt ? std::optional(B::Xchg) : std::nullopt;
  case tt::RMWOp::FADD: return type.isBF16() || type.isF16() ? std::optional(B::FAdd) : std::nullopt;
  }
  NESO_UNREACHABLE("atomic operation");
}
} // namespace

Value *Emitter::atomicLoop(tt::AtomicRMWOp op, Value *ptr, Value *value, Value *condition) {
  const llvm::AtomicOrdering order = op.getSem() == tt::MemSemantic::RELAXED   ? llvm::AtomicOrdering::Monotonic
                                     : op.getSem() == tt::MemSemantic::ACQUIRE ? llvm::AtomicOrdering::Acquire
                                     : op.getSem() == tt::MemSemantic::RELEASE ? llvm::AtomicOrdering::Release
                                                                               : llvm::AtomicOrdering::AcquireRelease;
  const char *scope = op.getScope() == tt::MemSyncScope::GPU   ? "device"
                      : op.getScope() == tt::MemSyncScope::CTA ? "block"
                                                               : "";
  const llvm::SyncScope::ID scopeId = b.getContext().getOrInsertSyncScopeID(scope);
  const int64_t bytes = bytesOf(elementOf(op.getVal().getType()));
  llvm::BasicBlock *before = b.GetInsertBlock(), *end = nullptr;
  Value *old = nullptr;
  emitWhen(block_, condition, [&] {
    old = b.CreateAtomicRMW(*loopOp(op.getAtomicRmwOp(), elementOf(op.getVal().getType())), ptr, value,
                            llvm::Align(static_cast<uint64_t>(bytes)), order, scopeId);
    end = b.GetInsertBlock();
  });
  if (!condition) return old;
  llvm::PHINode *result = b.CreatePHI(old->getType(), 2);
  result->addIncoming(old, end);
  result->addIncoming(llvm::Constant::getNullValue(old->getType()), before);
  return result;
}

void Emitter::emitAtomic(mlir::Operation *op) {
  std::string instruction;
  bool byLoop = false;
  llvm::SmallVector<mlir::Value, 2> values;
  mlir::Value ptr = op->getOperand(0), mask;
  tt::MemSemantic sem = tt::MemSemantic::RELAXED;
  mlir::Type element = elementOf(tt::pointeeOf(ptr.getType()));
  const int64_t bytes = bytesOf(element);
  bool used = op->getNumResults() > 0 && !op->getResult(0).use_empty();
  const std::string width = ".b" + std::to_string(bytes * 8);
  LayoutRef layout = layoutOf(ptr);
  std::optional<Groups> neighbours;
  if (op->hasAttr(placed::kTogetherAttr)) neighbours = accessGroups(op, layout);
  if (auto rmw = llvm::dyn_cast<tt::AtomicRMWOp>(op)) {
    sem = rmw.getSem(), mask = rmw.getMask(), values = {rmw.getVal()};
    const std::string name = rmwName(rmw.getAtomicRmwOp(), element, chip_, neighbours ? neighbours->width : 1);
    byLoop = name.empty();
    if (byLoop && !loopOp(rmw.getAtomicRmwOp(), element)) {
      std::string what;
      llvm::raw_string_ostream(what) << "atomic " << tt::stringifyRMWOp(rmw.getAtomicRmwOp()) << " on " << element
                                     << " on " << chip_.arch;
      return fail(op, what);
    }
    const bool reduction = isReduction(rmw);
    if (!reduction) used = true;
    instruction =
        std::string(reduction ? "red" : "atom") + orderName(sem) + scopeName(rmw.getScope()) + ".global" + name;
  } else if (auto cas = llvm::dyn_cast<tt::AtomicCASOp>(op)) {
    if (bytes < 2) return fail(op, "compare and swap of single bytes");
    sem = cas.getSem(), values = {cas.getCmp(), cas.getVal()}, used = true;
    instruction = std::string("atom") + orderName(sem) + scopeName(cas.getScope()) + ".global.cas" + width;
  } else if (auto load = llvm::dyn_cast<tt::AtomicLoadOp>(op)) {
    sem = load.getSem(), mask = load.getMask(), used = true;
    instruction = std::string("ld") + orderName(sem) + scopeName(load.getScope()) + ".global" + width;
  } else if (auto store = llvm::dyn_cast<tt::AtomicStoreOp>(op)) {
    sem = store.getSem(), mask = store.getMask(), values = {store.getValue()};
    instruction = std::string("st") + orderName(sem) + scopeName(store.getScope()) + ".global" + width;
  }
  const bool needed = op->getNumResults() > 0 && !op->getResult(0).use_empty();

  // Writes of the block's other threads come before what releases, their reads behind what acquires.
  const bool releases = sem == tt::MemSemantic::RELEASE || sem == tt::MemSemantic::ACQUIRE_RELEASE;
  const bool acquires = sem == tt::MemSemantic::ACQUIRE || sem == tt::MemSemantic::ACQUIRE_RELEASE;
  if (releases) emitBarrier(block_);

  auto toWord = [&](Value *v) -> Value * {
    llvm::Type *word = wordOf(b, bytes).first;
    v = toStorage(b, v);
    if (v->getType()->isIntegerTy()) return b.CreateZExtOrTrunc(v, word);
    return b.CreateBitCast(v, word);
  };
  auto fromWord = [&](Value *v) {
    llvm::Type *storage = storageType(typeOf(element));
    v = storage->isIntegerTy() ? b.CreateTrunc(v, storage) : b.CreateBitCast(v, storage);
    return fromStorage(b, v, typeOf(element));
  };
  // A scalar is a tensor of one element, which every thread holds.
  LinearLayout single({{kRegister, {}},
                       {kLane, std::vector<uint64_t>(5, 0)},
                       {kWarp, std::vector<uint64_t>(static_cast<size_t>(log2Exact(block_.warps)), 0)},
                       {kBlock, {}}},
                      {});
  Tile old{layout ? *layout : single, {}};
  Value *owns = ownsElements(block_, old.layout);
  auto get = [&](mlir::Value v, int r) { return this->element(v, r); };
  if (neighbours) {
    NESO_CHECK(!byLoop && !acquires, "what adds to neighbours at once is an instruction that nobody waits for");
    for (const auto &group : neighbours->registers) {
      llvm::SmallVector<Value *, 9> operands = {get(ptr, group[0])};
      for (int r : group) operands.push_back(toWord(get(values[0], r)));
      atomicAsm(instruction, operands, both(owns, mask ? get(mask, group[0]) : nullptr), bytes, false, group.size() > 1);
    }
    return;
  }
  for (int r = 0; r < static_cast<int>(old.layout.inSize(kRegister)); ++r) {
    if (byLoop) {
      Value *condition = both(owns, mask ? get(mask, r) : nullptr);
      old.values.push_back(atomicLoop(llvm::cast<tt::AtomicRMWOp>(op), get(ptr, r), get(values[0], r), condition));
      continue;
    }
    llvm::SmallVector<Value *, 3> operands = {get(ptr, r)};
    for (mlir::Value v : values) operands.push_back(toWord(get(v, r)));
    Value *result = atomicAsm(instruction, operands, both(owns, mask ? get(mask, r) : nullptr), bytes, used);
    old.values.push_back(used ? fromWord(result) : nullptr);
  }
  if (needed) {
    if (owns) old = broadcastFromOwners(block_, old);
    if (layout)
      define(op->getResult(0), std::move(old));
    else
      scalars_[op->getResult(0)] = old.values[0];
  }
  if (acquires) emitBarrier(block_);
}

} // namespace neso::nvidia
