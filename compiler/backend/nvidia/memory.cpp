// Loads and stores: as wide as layout, address and mask allow, predicated, with cache and eviction hints.
#include "backend/nvidia/emitter.h"

#include "backend/nvidia/linear.h"
#include "llvm/IR/InlineAsm.h"

namespace neso::nvidia {

using llvm::Value;

Value *Emitter::both(Value *a, Value *b2) {
  if (!a) return b2;
  if (!b2) return a;
  return b.CreateAnd(a, b2);
}

Emitter::Groups Emitter::accessGroups(mlir::Operation *op, LayoutRef layout) {
  Groups groups;
  llvm::ArrayRef<int32_t> together = op->getAttrOfType<mlir::DenseI32ArrayAttr>(placed::kTogetherAttr).asArrayRef();
  groups.width = int64_t(1) << together.size();
  int inner = 0; // the register bits inside one access
  for (int bit : together) inner |= 1 << bit;
  for (int r = 0; r < static_cast<int>(layout->inSize(kRegister)); ++r) {
    if (r & inner) continue;
    llvm::SmallVector<int, 8> &group = groups.registers.emplace_back();
    for (int64_t i = 0; i < groups.width; ++i) {
      int reg = r;
      for (size_t k = 0; k < together.size(); ++k)
        if (i >> k & 1) reg |= 1 << together[k];
      group.push_back(reg);
    }
  }
  return groups;
}

namespace {

const char *cacheName(tt::CacheModifier cache, bool isStore) {
  switch (cache) {
  case tt::CacheModifier::CA: return isStore ? "" : ".ca";
  case tt::CacheModifier::CG: return ".cg";
  case tt::CacheModifier::CS: return ".cs";
  case tt::CacheModifier::WB: return isStore ? ".wb" : "";
  case tt::CacheModifier::WT: return isStore ? ".wt" : "";
  case tt::CacheModifier::CV: return isStore ? "" : ".cv";
  case tt::CacheModifier::NONE: return "";
  }
  NESO_UNREACHABLE("cache modifier");
}

/// The part of an instruction's name that says how caches are used: a modifier, or a priority of eviction; PTX takes
/// one of them.
std::string hints(tt::CacheModifier cache, tt::EvictionPolicy evict, bool isStore) {
  const char *name = cacheName(cache, isStore);
  if (*name) return name;
  if (evict == tt::EvictionPolicy::EVICT_FIRST) return ".L1::evict_first";
  if (evict == tt::EvictionPolicy::EVICT_LAST) return ".L1::evict_last";
  return "";
}

/// How `bytes` are moved by one instruction: v4 of b32, one b16, …
struct Words {
  int bits, count;
  std::string type() const {
    return (count > 1 ? ".v" + std::to_string(count) : std::string()) + ".b" + std::to_string(bits);
  }
  const char *constraint() const { return bits == 64 ? "l" : bits == 32 ? "r" : "h"; }
};
Words wordsOf(int64_t bytes, int64_t elementBytes) {
  if (elementBytes == 8) return {64, static_cast<int>(bytes / 8)};
  if (bytes >= 4) return {32, static_cast<int>(bytes / 4)};
  return {static_cast<int>(bytes * 8), 1};
}

/// {$0, $1, …}, or $0 alone.
std::string operandList(int first, int count) {
  std::string list;
  for (int i = 0; i < count; ++i) list += (i ? ", $" : "$") + std::to_string(first + i);
  return count > 1 ? "{" + list + "}" : list;
}

} // namespace

Registers Emitter::loadVector(tt::LoadOp op, Value *ptr, Value *mask, llvm::ArrayRef<Value *> others,
                              mlir::Type element, int64_t count) {
  llvm::Type *storage = storageType(typeOf(element));
  const int64_t bytes = bytesOf(element);
  const std::string hint = hints(op.getCache(), op.getEvict(), false);
  auto *vector = llvm::FixedVectorType::get(storage, static_cast<unsigned>(count));
  Registers values;
  auto unpack = [&](Value *packed) {
    for (int64_t i = 0; i < count; ++i) {
      Value *v = count == 1 ? packed : b.CreateExtractElement(packed, static_cast<uint64_t>(i));
      values.push_back(fromStorage(b, v, typeOf(element)));
    }
    return values;
  };
  llvm::Type *whole = count == 1 ? storage : vector;
  if (!mask && hint.empty()) {
    llvm::LoadInst *load =
        b.CreateAlignedLoad(whole, ptr, llvm::Align(static_cast<uint64_t>(bytes * count)), op.getIsVolatile());
    return unpack(load);
  }
  // Words of the asm: at least 16 bits wide in registers.
  const Words words = wordsOf(bytes * count, bytes);
  llvm::Type *word = b.getIntNTy(static_cast<unsigned>(std::max(words.bits, 16)));
  auto *packedInt = b.getIntNTy(static_cast<unsigned>(words.bits * words.count));

  // What a masked-off access leaves: tied to the results.
  llvm::SmallVector<Value *, 8> initial;
  if (mask) {
    if (others.empty()) {
      initial.assign(static_cast<size_t>(words.count), llvm::ConstantInt::get(word, 0));
    } else {
      Value *packed = llvm::PoisonValue::get(whole);
      for (int64_t i = 0; i < count; ++i) {
        Value *v = toStorage(b, others[static_cast<size_t>(i)]);
        packed = count == 1 ? v : b.CreateInsertElement(packed, v, static_cast<uint64_t>(i));
      }
      if (words.count == 1) {
        initial.push_back(b.CreateZExtOrBitCast(b.CreateBitCast(packed, packedInt), word));
      } else {
        packed = b.CreateBitCast(packed, llvm::FixedVectorType::get(word, static_cast<unsigned>(words.count)));
        for (int i = 0; i < words.count; ++i)
          initial.push_back(b.CreateExtractElement(packed, static_cast<uint64_t>(i)));
      }
    }
  }
  std::string constraints, text;
  for (int i = 0; i < words.count; ++i) constraints += std::string(i ? ",=" : "=") + words.constraint();
  llvm::SmallVector<Value *, 8> args = {ptr};
  constraints += ",l";
  const int address = words.count;
  if (mask) {
    args.push_back(mask);
    constraints += ",b";
    text = "@$" + std::to_string(address + 1) + " ";
    for (int i = 0; i < words.count; ++i) {
      args.push_back(initial[static_cast<size_t>(i)]);
      constraints += "," + std::to_string(i);
    }
  }
  text += std::string("ld") + (op.getIsVolatile() ? ".volatile" : "") + ".global" + (op.getIsVolatile() ? "" : hint) +
          words.type() + " " + operandList(0, words.count) + ", [$" + std::to_string(address) + "];";
  llvm::Type *resultType = word;
  if (words.count > 1)
    resultType = llvm::StructType::get(b.getContext(),
                                       llvm::SmallVector<llvm::Type *, 8>(static_cast<size_t>(words.count), word));
  llvm::SmallVector<llvm::Type *, 8> types;
  for (Value *a : args) types.push_back(a->getType());
  auto *type = llvm::FunctionType::get(resultType, types, false);
  llvm::CallInst *call = b.CreateCall(type, llvm::InlineAsm::get(type, text, constraints, op.getIsVolatile()), args);
  call->setDoesNotThrow();
  if (!op.getIsVolatile()) call->setOnlyReadsMemory();
  Value *packed = nullptr;
  if (words.count == 1) {
    packed = b.CreateTrunc(call, packedInt);
  } else {
    packed = llvm::PoisonValue::get(llvm::FixedVectorType::get(word, static_cast<unsigned>(words.count)));
    for (int i = 0; i < words.count; ++i)
      packed =
          b.CreateInsertElement(packed, b.CreateExtractValue(call, static_cast<unsigned>(i)), static_cast<uint64_t>(i));
  }
  return unpack(b.CreateBitCast(packed, whole));
}

void Emitter::storeVector(tt::StoreOp op, Value *ptr, Value *mask, llvm::ArrayRef<Value *> given, mlir::Type element) {
  const int64_t bytes = bytesOf(element), count = static_cast<int64_t>(given.size());
  llvm::Type *storage = storageType(typeOf(element));
  const std::string hint = hints(op.getCache(), op.getEvict(), true);
  llvm::Type *whole = count == 1 ? storage : llvm::FixedVectorType::get(storage, static_cast<unsigned>(count));
  Value *packed = llvm::PoisonValue::get(whole);
  for (int64_t i = 0; i < count; ++i) {
    Value *v = toStorage(b, given[static_cast<size_t>(i)]);
    packed = count == 1 ? v : b.CreateInsertElement(packed, v, static_cast<uint64_t>(i));
  }
  if (!mask && hint.empty()) {
    b.CreateAlignedStore(packed, ptr, llvm::Align(static_cast<uint64_t>(bytes * count)));
    return;
  }
  const Words words = wordsOf(bytes * count, bytes);
  llvm::Type *word = b.getIntNTy(static_cast<unsigned>(std::max(words.bits, 16)));
  llvm::SmallVector<Value *, 8> args = {ptr};
  std::string constraints = "l", text;
  if (mask) {
    args.push_back(mask);
    constraints += ",b";
    text = "@$1 ";
  }
  const int first = static_cast<int>(args.size());
  if (words.count == 1) {
    args.push_back(
        b.CreateZExtOrBitCast(b.CreateBitCast(packed, b.getIntNTy(static_cast<unsigned>(words.bits))), word));
  } else {
    packed = b.CreateBitCast(packed, llvm::FixedVectorType::get(word, static_cast<unsigned>(words.count)));
    for (int i = 0; i < words.count; ++i) args.push_back(b.CreateExtractElement(packed, static_cast<uint64_t>(i)));
  }
  for (int i = 0; i < words.count; ++i) constraints += std::string(",") + words.constraint();
  constraints += ",~{memory}";
  text += "st.global" + hint + words.type() + " [$0], " + operandList(first, words.count) + ";";
  llvm::SmallVector<llvm::Type *, 8> types;
  for (Value *a : args) types.push_back(a->getType());
  auto *type = llvm::FunctionType::get(b.getVoidTy(), types, false);
  b.CreateCall(type, llvm::InlineAsm::get(type, text, constraints, true), args)->setDoesNotThrow();
}

void Emitter::emitLoad(mlir::Operation *op) {
  auto load = llvm::cast<tt::LoadOp>(op);
  mlir::Value result = load.getResult(), ptr = load.getPtr(), mask = load.getMask(), other = load.getOther();
  mlir::Type element = elementOf(result.getType());
  if (!load.getBoundaryCheck().empty()) return fail(op, "a load through a block pointer");
  LayoutRef layout = layoutOf(ptr);
  if (!layout) {
    llvm::SmallVector<Value *, 1> others;
    if (other) others.push_back(scalar(other));
    scalars_[result] = loadVector(load, scalar(ptr), mask ? scalar(mask) : nullptr, others, element, 1)[0];
    return;
  }
  const Groups groups = accessGroups(op, layout);
  Tile tile{*layout, Registers(static_cast<size_t>(layout->inSize(kRegister)), nullptr)};
  for (const auto &group : groups.registers) {
    Value *address = this->element(ptr, group[0]);
    Value *condition = mask ? this->element(mask, group[0]) : nullptr;
    llvm::SmallVector<Value *, 8> others;
    if (other && mask)
      for (int r : group) others.push_back(this->element(other, r));
    Registers values = loadVector(load, address, condition, others, element, groups.width);
    for (size_t i = 0; i < group.size(); ++i) tile.values[static_cast<size_t>(group[i])] = values[i];
  }
  define(result, std::move(tile));
}

void Emitter::emitStore(mlir::Operation *op) {
  auto store = llvm::cast<tt::StoreOp>(op);
  mlir::Value ptr = store.getPtr(), mask = store.getMask(), value = store.getValue();
  mlir::Type element = elementOf(value.getType());
  if (!store.getBoundaryCheck().empty()) return fail(op, "a store through a block pointer");
  LayoutRef layout = layoutOf(ptr);
  if (!layout) {
    Value *first = b.CreateICmpEQ(block_.thread, b.getInt32(0));
    storeVector(store, scalar(ptr), both(first, mask ? scalar(mask) : nullptr), {scalar(value)}, element);
    return;
  }
  const Groups groups = accessGroups(op, layout);
  Value *owns = ownsElements(block_, *layout);
  for (const auto &group : groups.registers) {
    llvm::SmallVector<Value *, 8> values;
    for (int r : group) values.push_back(this->element(value, r));
    Value *condition = both(owns, mask ? this->element(mask, group[0]) : nullptr);
    storeVector(store, this->element(ptr, group[0]), condition, values, element);
  }
}

} // namespace neso::nvidia
