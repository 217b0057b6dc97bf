// Values: scalars, expressions without a place at an index, shape operations through their operand.
#include "backend/nvidia/emitter.h"

#include "backend/nvidia/move.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/ADT/Hashing.h"

namespace neso::nvidia {

using llvm::Value;

size_t Emitter::KeyHash::operator()(const Key &k) const {
  return llvm::hash_combine(k.v.getAsOpaquePointer(), llvm::hash_combine_range(k.words.begin(), k.words.end()));
}

void Emitter::define(mlir::Value v, Tile tile) {
  NESO_CHECK(layoutOf(v) && tile.layout == *layoutOf(v), "a tensor is defined elsewhere than its type says");
  tiles_[v] = std::move(tile);
}

Value *Emitter::scalar(mlir::Value v) {
  auto it = scalars_.find(v);
  NESO_CHECK(it != scalars_.end(), "a scalar is used before it is emitted");
  return it->second;
}

Emitter::Index Emitter::indexOf(LayoutRef layout, int reg) {
  uint64_t flat = 0;
  const LinearLayout::In &registers = layout->in(kRegister);
  for (int bit = 0; bit < registers.bits(); ++bit)
    if (reg >> bit & 1) flat ^= registers.bases[static_cast<size_t>(bit)];
  Index index;
  for (int dim = 0; dim < static_cast<int>(layout->outs().size()); ++dim) {
    // Registers of one row share the row's index.
    const std::tuple<LayoutRef, int, int64_t> key = {layout, dim, layout->out(dimName(dim)).of(flat)};
    Value *known = nullptr;
    for (Scope &scope : scopes_)
      if (!known) known = scope.indices.lookup(key);
    if (!known) known = scopes_.back().indices[key] = dimIndex(block_, *layout, reg, dim);
    index.push_back(known);
  }
  return index;
}

llvm::ArrayRef<int> Emitter::pulledRegisters(mlir::Operation *op) {
  auto [it, isNew] = pulledRegisters_.try_emplace(op);
  if (!isNew) return it->second;
  LayoutRef source = layoutOf(op->getOperand(0)), layout = layoutOf(op->getResult(0));
  const int count = static_cast<int>(layout->inSize(kRegister));
  llvm::SmallVector<int, 16> map;
  const OpCode code = codeOf(op);
  if (code == OpCode::Trans || code == OpCode::Reshape) {
    for (int r = 0; r < count; ++r) map.push_back(r);
  } else {
    // A broadcast or new dim: the element of register r is where the source has the same index in the dims that count.
    auto imageOf = [](const LinearLayout &l, int reg) {
      uint64_t flat = 0;
      const LinearLayout::In &registers = l.in(kRegister);
      for (int bit = 0; bit < registers.bits(); ++bit)
        if (reg >> bit & 1) flat ^= registers.bases[static_cast<size_t>(bit)];
      return flat;
    };
    llvm::DenseMap<uint64_t, int> places;
    for (int r = 0; r < static_cast<int>(source->inSize(kRegister)); ++r) places.try_emplace(imageOf(*source, r), r);
    llvm::ArrayRef<int64_t> shape = shapeOf(op->getOperand(0).getType());
    const int dropped =
        code == OpCode::ExpandDims ? static_cast<int>(op->getAttrOfType<mlir::IntegerAttr>("axis").getInt()) : -1;
    for (int r = 0; r < count; ++r) {
      const uint64_t flat = imageOf(*layout, r);
      uint64_t wanted = 0;
      int from = 0;
      for (int dim = 0; dim < static_cast<int>(layout->outs().size()); ++dim) {
        if (dim == dropped) continue;
        const int64_t index = layout->out(dimName(dim)).of(flat) & (shape[static_cast<size_t>(from)] - 1);
        wanted |= static_cast<uint64_t>(index) << source->out(dimName(from)).shift;
        ++from;
      }
      auto place = places.find(wanted);
      NESO_CHECK(place != places.end(), "a derived value has no register for an element");
      map.push_back(place->second);
    }
  }
  return pulledRegisters_[op] = std::move(map);
}

int Emitter::firstAlike(mlir::Value v, LayoutRef layout, int reg) {
  auto [bits, isNew] = alikeBits_.try_emplace({v, layout}, 0);
  if (isNew) {
    const AxisInfo info = axis_->get(v);
    const LinearLayout::In &registers = layout->in(kRegister);
    for (int bit = 0; bit < registers.bits(); ++bit) {
      // A register bit that moves within a window in every dim: windows begin at multiples of their size.
      bool isWithin = true;
      for (size_t dim = 0; dim < layout->outs().size(); ++dim)
        isWithin &= layout->out(dimName(static_cast<int>(dim))).of(registers.bases[static_cast<size_t>(bit)]) < info.constancy[dim];
      if (isWithin) bits->second |= 1 << bit;
    }
  }
  return reg & ~bits->second;
}

Value *Emitter::element(mlir::Value v, int reg) {
  if (!llvm::isa<mlir::RankedTensorType>(v.getType())) return scalar(v);
  if (auto known = tiles_.find(v); known != tiles_.end()) return known->second.values[static_cast<size_t>(reg)];
  mlir::Operation *op = v.getDefiningOp();
  NESO_CHECK(op && layoutOf(v), "a tensor is used before it is emitted");
  switch (codeOf(op)) {
  case OpCode::Place: return evalVirtual(op->getOperand(0), indexOf(layoutOf(v), firstAlike(op->getOperand(0), layoutOf(v), reg)));
  case OpCode::ExpandDims:
  case OpCode::Broadcast:
  case OpCode::Trans:
  case OpCode::Reshape: return element(op->getOperand(0), pulledRegisters(op)[static_cast<size_t>(reg)]);
  default: NESO_UNREACHABLE("a tensor is used before it is emitted");
  }
}

Tile Emitter::tile(mlir::Value v) {
  LayoutRef layout = layoutOf(v);
  Tile t{*layout, {}};
  const int count = static_cast<int>(layout->inSize(kRegister));
  for (int r = 0; r < count; ++r) t.values.push_back(element(v, r));
  return t;
}

Value *Emitter::evalVirtual(mlir::Value v, const Index &index) {
  if (!llvm::isa<mlir::RankedTensorType>(v.getType())) return scalar(v);
  Key key{v, {}};
  for (Value *i : index) key.words.push_back(i);
  for (Scope &scope : scopes_)
    if (auto known = scope.elements.find(key); known != scope.elements.end()) return known->second;
  Value *value = evalUncached(v, index);
  scopes_.back().elements[std::move(key)] = value;
  return value;
}

Value *Emitter::evalUncached(mlir::Value v, const Index &index) {
  mlir::Operation *op = v.getDefiningOp();
  llvm::ArrayRef<int64_t> shape = shapeOf(v.getType());
  switch (codeOf(op)) {
  case OpCode::ArithConstant: return constant(op->getAttr("value"), elementOf(v.getType()), index, shape);
  case OpCode::Poison: return llvm::Constant::getNullValue(typeOf(elementOf(v.getType())));
  case OpCode::Splat: return scalar(op->getOperand(0));
  case OpCode::MakeRange: {
    const int64_t start = op->getAttrOfType<mlir::IntegerAttr>("start").getInt();
    return start ? b.CreateAdd(index[0], b.getInt32(static_cast<uint32_t>(start)), "", false, true) : index[0];
  }
  case OpCode::ExpandDims: {
    Index inner = index;
    inner.erase(inner.begin() + op->getAttrOfType<mlir::IntegerAttr>("axis").getInt());
    return evalVirtual(op->getOperand(0), inner);
  }
  case OpCode::Broadcast: {
    llvm::ArrayRef<int64_t> from = shapeOf(op->getOperand(0).getType());
    Index inner = index;
    for (size_t dim = 0; dim < from.size(); ++dim)
      if (from[dim] == 1) inner[dim] = b.getInt32(0);
    return evalVirtual(op->getOperand(0), inner);
  }
  case OpCode::Trans: {
    auto order = op->getAttrOfType<mlir::DenseI32ArrayAttr>("order").asArrayRef();
    Index inner(index.size(), nullptr);
    for (size_t dim = 0; dim < order.size(); ++dim) inner[static_cast<size_t>(order[dim])] = index[dim];
    return evalVirtual(op->getOperand(0), inner);
  }
  case OpCode::Reshape: {
    // All sizes are powers of two: the flat index is cut anew by shifts and masks.
    Value *flat = b.getInt32(0);
    for (size_t dim = 0; dim < shape.size(); ++dim)
      flat = b.CreateAdd(b.CreateShl(flat, static_cast<uint64_t>(log2Exact(shape[dim]))), index[dim]);
    llvm::ArrayRef<int64_t> from = shapeOf(op->getOperand(0).getType());
    Index inner(from.size(), nullptr);
    for (size_t dim = from.size(); dim-- > 0;) {
      inner[dim] = b.CreateAnd(flat, b.getInt32(static_cast<uint32_t>(from[dim] - 1)));
      flat = b.CreateLShr(flat, static_cast<uint64_t>(log2Exact(from[dim])));
    }
    return evalVirtual(op->getOperand(0), inner);
  }
  default: break;
  }
  llvm::SmallVector<Value *, 4> args;
  for (mlir::Value o : op->getOperands()) args.push_back(evalVirtual(o, index));
  llvm::SmallVector<Value *, 2> results = emitElement(op, args);
  const unsigned number = llvm::cast<mlir::OpResult>(v).getResultNumber();
  if (number < results.size()) return results[number];
  return llvm::PoisonValue::get(typeOf(elementOf(v.getType())));
}

Value *Emitter::constant(mlir::Attribute value, mlir::Type element, const Index &index, llvm::ArrayRef<int64_t> shape) {
  // No attribute is made here: several threads read one context.
  llvm::Type *type = typeOf(element);
  auto ofFloat = [&](const llvm::APFloat &f) -> llvm::Constant * {
    return type->isIntegerTy() ? static_cast<llvm::Constant *>(llvm::ConstantInt::get(type, f.bitcastToAPInt()))
                               : llvm::ConstantFP::get(b.getContext(), f);
  };
  auto ofInt = [&](const llvm::APInt &i) -> llvm::Constant * {
    return llvm::ConstantInt::get(type, i.sextOrTrunc(type->getIntegerBitWidth()));
  };
  const bool isFloat = llvm::isa<mlir::FloatType>(element);
  if (auto f = llvm::dyn_cast<mlir::FloatAttr>(value)) return ofFloat(f.getValue());
  if (auto i = llvm::dyn_cast<mlir::IntegerAttr>(value)) return ofInt(i.getValue());
  auto dense = llvm::cast<mlir::DenseElementsAttr>(value);
  if (dense.isSplat())
    return isFloat ? ofFloat(dense.getSplatValue<llvm::APFloat>()) : ofInt(dense.getSplatValue<llvm::APInt>());
  // A table in constant memory.
  llvm::SmallVector<llvm::Constant *, 64> elements;
  llvm::Type *memory = memoryTypeOf(element);
  if (isFloat)
    for (const llvm::APFloat &f : dense.getValues<llvm::APFloat>()) elements.push_back(ofFloat(f));
  else
    for (const llvm::APInt &i : dense.getValues<llvm::APInt>())
      elements.push_back(llvm::ConstantInt::get(memory, i.zextOrTrunc(memory->getIntegerBitWidth())));
  llvm::Constant *table = llvm::ConstantArray::get(llvm::ArrayType::get(memory, elements.size()), elements);
  auto *global = new llvm::GlobalVariable(module_, table->getType(), true, llvm::GlobalValue::InternalLinkage, table,
                                          "table", nullptr, llvm::GlobalValue::NotThreadLocal, 4);
  Value *flat = b.getInt32(0);
  for (size_t dim = 0; dim < shape.size(); ++dim)
    flat = b.CreateAdd(b.CreateMul(flat, b.getInt32(static_cast<uint32_t>(shape[dim]))), index[dim]);
  Value *v = b.CreateLoad(memory, b.CreateGEP(memory, global, flat));
  return memory == type ? v : b.CreateTrunc(v, type);
}

} // namespace neso::nvidia
