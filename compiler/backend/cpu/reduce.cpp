// Reductions and scans with any combine function.
#include <algorithm>

#include "backend/cpu/emitter.h"
#include "ir/tile/tile.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/Support/MathExtras.h"

namespace neso::cpu {

using llvm::Value;

/// Neutral element of a combine function that is one operation on its two arguments; null for all others.
llvm::Constant *Emitter::reduceIdentity(mlir::Operation *op) {
  mlir::Block &body = op->getRegion(0).front();
  if (body.getNumArguments() != 2 || body.getOperations().size() != 2) return nullptr;
  mlir::Operation &f = body.front();
  if (f.getNumOperands() != 2 || f.getOperand(0) == f.getOperand(1) || f.getOperand(0).getParentBlock() != &body ||
      f.getOperand(1).getParentBlock() != &body)
    return nullptr;
  mlir::Type element = f.getResult(0).getType();
  llvm::Type *t = typeOf(element);
  const bool plainFloat = t->isFloatTy() || t->isDoubleTy() || t->isHalfTy();
  auto number = [&](double v) -> llvm::Constant * { return plainFloat ? llvm::ConstantFP::get(t, v) : nullptr; };
  auto integer = [&](const llvm::APInt &v) { return llvm::ConstantInt::get(b.getContext(), v); };
  const unsigned bits = t->isIntegerTy() ? t->getIntegerBitWidth() : 0;
  switch (codeOf(&f)) {
  case OpCode::AddF: return number(-0.0);
  case OpCode::MulF: return number(1.0);
  case OpCode::MaxNumF:
  case OpCode::MinNumF: return plainFloat ? llvm::ConstantFP::getNaN(t) : nullptr;
  case OpCode::MaximumF: return plainFloat ? llvm::ConstantFP::getInfinity(t, true) : nullptr;
  case OpCode::MinimumF: return plainFloat ? llvm::ConstantFP::getInfinity(t, false) : nullptr;
  case OpCode::AddI:
  case OpCode::OrI:
  case OpCode::XorI:
  case OpCode::MaxUI: return bits ? integer(llvm::APInt(bits, 0)) : nullptr;
  case OpCode::MulI: return integer(llvm::APInt(bits, 1));
  case OpCode::AndI:
  case OpCode::MinUI: return integer(llvm::APInt::getAllOnes(bits));
  case OpCode::MaxSI: return integer(llvm::APInt::getSignedMinValue(bits));
  case OpCode::MinSI: return integer(llvm::APInt::getSignedMaxValue(bits));
  default: return nullptr;
  }
}

namespace {
/// f(f(x, v), v) is f(x, v).
bool onceIsOften(OpCode combine, llvm::Constant *v) {
  switch (combine) {
  case OpCode::AddF:
  case OpCode::AddI:
  case OpCode::XorI: return v->isZeroValue();
  case OpCode::MulF: return llvm::cast<llvm::ConstantFP>(v)->isExactlyValue(1.0);
  case OpCode::MulI: return v->isOneValue();
  default: return true; // of two values one is chosen, or bits are
  }
}

/// A part of a conjunction that varies along `axis` alone, without its broadcast.
mlir::Value partAlong(mlir::Value mask, int axis) {
  mlir::Operation *def = mask.getDefiningOp();
  if (!def) return {};
  if (codeOf(def) == OpCode::AndI) {
    mlir::Value x = partAlong(def->getOperand(0), axis);
    return x ? x : partAlong(def->getOperand(1), axis);
  }
  if (codeOf(def) != OpCode::Broadcast) return {};
  llvm::ArrayRef<int64_t> shape = llvm::cast<mlir::RankedTensorType>(def->getOperand(0).getType()).getShape();
  for (size_t d = 0; d < shape.size(); ++d)
    if (static_cast<int>(d) != axis && shape[d] != 1) return {};
  return def->getOperand(0);
}
} // namespace

std::optional<Emitter::MaskedReduction> Emitter::maskedReduction(mlir::Operation *op, bool across) {
  llvm::Constant *identity = reduceIdentity(op);
  mlir::Value source = op->getOperand(0);
  mlir::Operation *def = source.getDefiningOp();
  if (!identity || !def || buffers_.count(source) || !uses_->isVirtual(def)) return std::nullopt;
  const bool selects = codeOf(def) == OpCode::Select && isTensor(def->getOperand(0).getType());
  const bool loads = codeOf(def) == OpCode::Load && def->getNumOperands() > 2;
  if (!selects && !loads) return std::nullopt;
  mlir::Value mask = def->getOperand(selects ? 0 : 1), other = def->getOperand(2);
  mlir::Operation *filled = other.getDefiningOp();
  llvm::Value *value = nullptr;
  if (filled && codeOf(filled) == OpCode::Splat) value = scalar(filled->getOperand(0)).base;
  if (filled && codeOf(filled) == OpCode::ArithConstant)
    value = constant(filled->getAttr("value"), elementOf(other.getType())).base;
  auto *outside = llvm::dyn_cast_or_null<llvm::Constant>(value);
  if (!outside || outside->getType() != identity->getType() ||
      !onceIsOften(codeOf(&op->getRegion(0).front().front()), outside))
    return std::nullopt;
  // What is kept on the way must be there as a whole.
  if (keepsBelow(source, shapeOf(source.getType()))) return std::nullopt;
  if (across) mask = partAlong(mask, static_cast<int>(op->getAttrOfType<mlir::IntegerAttr>("axis").getInt()));
  if (!mask) return std::nullopt;
  return MaskedReduction{mask, outside};
}

std::optional<Emitter::Reach> Emitter::reachOf(mlir::Value mask, const Index &outer, int axis) {
  Nest nest;
  nest.shape = shapeOf(mask.getType());
  nest.vectorDim = axis, nest.extent = nest.shape[static_cast<size_t>(axis)];
  nest.width = std::min<int64_t>(caps_.f32Lanes, nest.extent);
  while (nest.extent % nest.width) nest.width /= 2;
  if (nest.width == 1) return std::nullopt;
  const int64_t saved = width_;
  width_ = nest.width;
  frames_.push_back({b.GetInsertBlock(), {}});
  std::optional<Prefix> prefix = prefixOf(mask, vectorIndex(nest, outer, b.getInt32(0)), nest);
  frames_.pop_back();
  width_ = saved;
  if (!prefix) return std::nullopt;
  Value *extent = b.getInt32(static_cast<uint32_t>(nest.extent)), *zero = b.getInt32(0);
  Reach r{prefix->below, prefix->below, nullptr};
  if (prefix->certain) {
    r.sure = b.CreateSelect(prefix->certain, prefix->below, zero);
    r.end = b.CreateSelect(prefix->certain, prefix->below, extent);
  }
  r.outside = b.CreateICmpSLT(r.end, extent);
  return r;
}

/// Combines the lanes of each operand's vector down to one, halves against halves.
llvm::SmallVector<Value *, 2> Emitter::combineLanes(mlir::Region &combine, llvm::SmallVector<Value *, 2> values,
                                                    int64_t width) {
  const int64_t savedWidth = width_;
  const int level = currentLevel();
  while (width > 1) {
    const int64_t half = width / 2;
    llvm::SmallVector<Lanes, 4> args;
    for (int64_t from : {int64_t{0}, half})
      for (Value *v : values) {
        if (half == 1) {
          args.push_back(fromValue(b.CreateExtractElement(v, static_cast<uint64_t>(from)), level));
          continue;
        }
        llvm::SmallVector<int, 32> pick;
        for (int64_t l = 0; l < half; ++l) pick.push_back(static_cast<int>(from + l));
        args.push_back(fromValue(b.CreateShuffleVector(v, pick), level));
      }
    width_ = half;
    llvm::SmallVector<Lanes> results;
    if (!evalRegion(combine, args, results)) break;
    for (size_t i = 0; i < values.size(); ++i) values[i] = toVector(b, results[i], half);
    width = half;
  }
  width_ = savedWidth;
  return values;
}

void Emitter::emitReduce(mlir::Operation *op) {
  const int axis = static_cast<int>(op->getAttrOfType<mlir::IntegerAttr>("axis").getInt());
  llvm::SmallVector<mlir::Value, 2> sources(op->getOperands().begin(), op->getOperands().end());
  Shape shape = shapeOf(sources[0].getType());
  Shape outShape = shape;
  outShape.erase(outShape.begin() + axis);
  const size_t n = sources.size();
  mlir::Region &combine = op->getRegion(0);
  const bool scalarResult = !isTensor(op->getResult(0).getType());
  llvm::SmallVector<Buffer *, 2> results(n, nullptr);
  llvm::SmallVector<llvm::AllocaInst *, 2> cells(n, nullptr);
  for (size_t i = 0; i < n; ++i) {
    mlir::Type element = elementOf(op->getResult(static_cast<unsigned>(i)).getType());
    if (scalarResult)
      cells[i] = entryAlloca(typeOf(element), "reduced");
    else
      results[i] = &newBuffer(element, outShape);
  }
  const int vectorDim = unitDim(shape, sources);
  const int64_t native = caps_.f32Lanes;
  llvm::Constant *identity = reduceIdentity(op);

  auto combined = [&](llvm::ArrayRef<Value *> accumulated, llvm::ArrayRef<Lanes> elements) {
    llvm::SmallVector<Lanes, 4> args;
    for (Value *a : accumulated) args.push_back(fromValue(a, currentLevel()));
    args.append(elements.begin(), elements.end());
    llvm::SmallVector<Lanes> out;
    if (!evalRegion(combine, args, out) && !failed()) fail(op, "this combine function");
    return out;
  };

  if (scalarResult || (vectorDim == axis && shape[axis] >= native)) {
    // Along the vector direction: several accumulators, combined at the end.
    Nest nest;
    nest.shape = shape;
    nest.vectorDim = axis;
    nest.extent = shape[axis];
    nest.width = widthFor(sources, nest.extent, 4);
    while (nest.extent % nest.width) nest.width /= 2;
    llvm::SmallVector<llvm::AllocaInst *, 2> accumulators;
    for (mlir::Value s : sources) {
      llvm::Type *t = typeOf(elementOf(s.getType()));
      accumulators.push_back(
          entryAlloca(nest.width > 1 ? llvm::FixedVectorType::get(t, static_cast<unsigned>(nest.width)) : t, "acc"));
    }
    const std::optional<MaskedReduction> masked = maskedReduction(op, false);
    sink([&] {
      llvm::SmallVector<mlir::Value, 4> masks = masksBelow(sources, shape);
      if (masked) {
        llvm::erase(masks, masked->mask);
        masks.insert(masks.begin(), masked->mask);
      }
      // One vector loop for each outer index, so the outer loops are walked by a nest of their own.
      Nest rows;
      rows.shape = outShape;
      rows.vectorDim = -1;
      Index outer(shape.size(), uniformInt(0));
      auto row = [&] {
        width_ = nest.width;
        auto step = [&](const Index &index, bool first) {
          if (!masked) cover(shape, &index);
          llvm::SmallVector<Lanes, 2> elements;
          for (mlir::Value s : sources) elements.push_back(eval(s, index));
          coverIndex_ = nullptr;
          if (first) {
            for (size_t i = 0; i < n; ++i) b.CreateStore(vec(elements[i]), accumulators[i]);
            return;
          }
          // A narrow tail goes into the first lanes.
          llvm::SmallVector<Value *, 2> current;
          for (llvm::AllocaInst *a : accumulators) {
            llvm::Type *t = a->getAllocatedType()->getScalarType();
            if (width_ > 1) t = llvm::FixedVectorType::get(t, static_cast<unsigned>(width_));
            current.push_back(b.CreateLoad(t, a));
          }
          llvm::SmallVector<Lanes> out = combined(current, elements);
          for (size_t i = 0; i < n && i < out.size(); ++i) b.CreateStore(vec(out[i]), accumulators[i]);
        };
        Masks loopMasks{masks, masked.has_value(), 0, identity != nullptr};
        if (identity) {
          std::optional<Reach> reach = masked ? reachOf(masked->mask, outer, axis) : std::nullopt;
          Value *from = reach ? b.CreateSelect(reach->outside, masked->outside, identity) : identity;
          b.CreateStore(nest.width > 1 ? b.CreateVectorSplat(static_cast<unsigned>(nest.width), from) : from,
                        accumulators[0]);
        } else {
          forLoop(0, 1, 1, [&](Value *) { step(vectorIndex(nest, outer, b.getInt32(0)), true); });
          loopMasks.start = nest.width;
        }
        if (loopMasks.start < nest.extent)
          vectorLoop(nest, outer, loopMasks, [&](const Index &index) { step(index, false); });
        llvm::SmallVector<Value *, 2> last;
        for (llvm::AllocaInst *a : accumulators) last.push_back(b.CreateLoad(a->getAllocatedType(), a));
        last = combineLanes(combine, last, nest.width);
        width_ = 1;
        Index at = outer;
        at.erase(at.begin() + axis);
        for (size_t i = 0; i < n; ++i) {
          if (scalarResult)
            b.CreateStore(last[i], cells[i]);
          else
            storeBuffer(*results[i], at, fromValue(last[i], currentLevel()));
        }
      };
      auto rowsFrom = [&](auto &self, size_t d) -> void {
        while (d < shape.size() && (static_cast<int>(d) == axis || shape[d] == 1)) ++d;
        if (d == shape.size()) return row();
        forLoop(0, shape[d], 1, [&](Value *iv) {
          outer[d] = fromValue(iv, currentLevel());
          self(self, d + 1);
        });
      };
      rowsFrom(rowsFrom, 0);
    });
  } else {
    // Across: results in vectors, a loop over the axis inside.
    Nest nest = planNest(outShape, {}, widthFor(sources, 64, 4));
    const int moved = vectorDim > axis ? vectorDim - 1 : vectorDim;
    if (vectorDim != axis && shape[vectorDim] >= native) {
      nest.vectorDim = moved;
      nest.flatFrom = -1;
      nest.extent = shape[vectorDim];
      nest.width = widthFor(sources, nest.extent, 4);
      while (nest.extent % nest.width) nest.width /= 2;
    }
    llvm::SmallVector<llvm::AllocaInst *, 2> accumulators;
    for (mlir::Value s : sources) {
      llvm::Type *t = typeOf(elementOf(s.getType()));
      accumulators.push_back(
          entryAlloca(nest.width > 1 ? llvm::FixedVectorType::get(t, static_cast<unsigned>(nest.width)) : t, "acc"));
    }
    const std::optional<MaskedReduction> masked = shape[axis] > 4 ? maskedReduction(op, true) : std::nullopt;
    sink([&] {
      const Index origin(shape.size(), uniformInt(0));
      const std::optional<Reach> reach = masked ? reachOf(masked->mask, origin, axis) : std::nullopt;
      runNest(nest, {}, [&](const Index &at) {
        auto step = [&](const Lanes &position, bool first) {
          Index index = at;
          index.insert(index.begin() + axis, position);
          if (!reach) cover(shape, &index);
          llvm::SmallVector<Lanes, 2> elements;
          for (mlir::Value s : sources) elements.push_back(eval(s, index));
          coverIndex_ = nullptr;
          llvm::SmallVector<Value *, 2> current;
          if (!first) {
            for (llvm::AllocaInst *a : accumulators) current.push_back(b.CreateLoad(a->getAllocatedType(), a));
            llvm::SmallVector<Lanes> out = combined(current, elements);
            elements.assign(out.begin(), out.end());
          }
          for (size_t i = 0; i < n && i < elements.size(); ++i) b.CreateStore(vec(elements[i]), accumulators[i]);
        };
        if (reach) {
          Value *from = b.CreateSelect(reach->outside, masked->outside, identity);
          b.CreateStore(nest.width > 1 ? b.CreateVectorSplat(static_cast<unsigned>(nest.width), from) : from,
                        accumulators[0]);
          auto rows = [&](Value *lo, Value *hi, bool known) {
            forLoop(lo, hi, 1, [&](Value *iv) {
              const Lanes position = fromValue(iv, currentLevel());
              if (known) {
                Index row = origin;
                row[static_cast<size_t>(axis)] = position;
                Lanes yes;
                yes.base = b.getTrue(), yes.level = static_cast<uint8_t>(currentLevel());
                frames_.back().memo[keyOf(masked->mask, row)] = yes;
              }
              step(position, false);
            });
          };
          rows(b.getInt32(0), reach->sure, true);
          rows(reach->sure, reach->end, false);
        } else if (shape[axis] <= 4) {
          for (int64_t k = 0; k < shape[axis]; ++k) step(uniformInt(k), k == 0);
        } else {
          forLoop(0, 1, 1, [&](Value *iv) { step(fromValue(iv, currentLevel()), true); });
          forLoop(1, shape[axis], 1, [&](Value *iv) { step(fromValue(iv, currentLevel()), false); });
        }
        for (size_t i = 0; i < n; ++i) {
          Value *v = b.CreateLoad(accumulators[i]->getAllocatedType(), accumulators[i]);
          storeBuffer(*results[i], at, fromValue(v, currentLevel()));
        }
      });
    });
  }
  commitKept();
  for (size_t i = 0; i < n; ++i) {
    mlir::Value result = op->getResult(static_cast<unsigned>(i));
    if (scalarResult)
      scalars_[result] = fromValue(b.CreateLoad(cells[i]->getAllocatedType(), cells[i]), 0);
    else
      bind(result, *results[i]);
  }
}

void Emitter::emitScan(mlir::Operation *op) {
  const int axis = static_cast<int>(op->getAttrOfType<mlir::IntegerAttr>("axis").getInt());
  auto reverseAttr = op->getAttrOfType<mlir::BoolAttr>("reverse");
  const bool reverse = reverseAttr && reverseAttr.getValue();
  llvm::SmallVector<mlir::Value, 2> sources(op->getOperands().begin(), op->getOperands().end());
  Shape shape = shapeOf(sources[0].getType());
  const size_t n = sources.size();
  const int rank = static_cast<int>(shape.size());
  mlir::Region &combine = op->getRegion(0);
  llvm::SmallVector<Buffer *, 2> results;
  for (mlir::Value r : op->getResults()) results.push_back(&newBuffer(elementOf(r.getType()), shape));

  auto combined = [&](llvm::ArrayRef<Lanes> earlier, llvm::ArrayRef<Lanes> later) {
    llvm::SmallVector<Lanes, 4> args(earlier.begin(), earlier.end());
    args.append(later.begin(), later.end());
    llvm::SmallVector<Lanes> out;
    if (!evalRegion(combine, args, out)) {
      if (!failed()) fail(op, "this combine function");
      out.assign(later.begin(), later.end());
    }
    return out;
  };
  const int64_t extent = shape[axis];

  if (axis == rank - 1) {
    // Inside a vector: doubling steps; from vector to vector: the last lane is carried.
    int64_t width = caps_.f32Lanes;
    while (extent % width || width > extent) width /= 2;
    llvm::SmallVector<llvm::AllocaInst *, 2> carries;
    for (mlir::Value s : sources) carries.push_back(entryAlloca(typeOf(elementOf(s.getType())), "carry"));
    sink([&] {
      Index outer(shape.size(), uniformInt(0));
      auto row = [&] {
        width_ = width;
        auto chunk = [&](Value *iv, bool first) {
          Nest nest;
          nest.shape = shape;
          nest.vectorDim = axis;
          nest.extent = extent;
          nest.width = width;
          Value *start = reverse ? b.CreateSub(b.getInt32(static_cast<uint32_t>(extent - width)), iv) : iv;
          Index index = vectorIndex(nest, outer, start);
          auto flip = [&](Value *v) {
            if (!reverse || width == 1) return v;
            llvm::SmallVector<int, 16> pattern;
            for (int64_t l = width - 1; l >= 0; --l) pattern.push_back(static_cast<int>(l));
            return b.CreateShuffleVector(v, pattern);
          };
          llvm::SmallVector<Value *, 2> values;
          for (mlir::Value s : sources) values.push_back(flip(vec(eval(s, index))));
          const int level = currentLevel();
          for (int64_t s = 1; s < width; s *= 2) {
            llvm::SmallVector<int, 16> pattern;
            llvm::SmallVector<llvm::Constant *, 16> reached;
            for (int64_t l = 0; l < width; ++l) {
              pattern.push_back(static_cast<int>(l >= s ? l - s : l));
              reached.push_back(b.getInt1(l >= s));
            }
            llvm::SmallVector<Lanes, 2> earlier, later;
            for (Value *v : values) {
              earlier.push_back(fromValue(b.CreateShuffleVector(v, pattern), level));
              later.push_back(fromValue(v, level));
            }
            llvm::SmallVector<Lanes> out = combined(earlier, later);
            for (size_t i = 0; i < n; ++i)
              values[i] = b.CreateSelect(llvm::ConstantVector::get(reached), vec(out[i]), values[i]);
          }
          if (!first) {
            llvm::SmallVector<Lanes, 2> earlier, later;
            for (size_t i = 0; i < n; ++i) {
              Value *carry = b.CreateLoad(carries[i]->getAllocatedType(), carries[i]);
              earlier.push_back(
                  fromValue(width > 1 ? b.CreateVectorSplat(static_cast<unsigned>(width), carry) : carry, level));
              later.push_back(fromValue(values[i], level));
            }
            llvm::SmallVector<Lanes> out = combined(earlier, later);
            for (size_t i = 0; i < n; ++i) values[i] = vec(out[i]);
          }
          for (size_t i = 0; i < n; ++i) {
            b.CreateStore(width > 1 ? b.CreateExtractElement(values[i], static_cast<uint64_t>(width - 1)) : values[i],
                          carries[i]);
            storeBuffer(*results[i], index, fromValue(flip(values[i]), level));
          }
        };
        forLoop(0, 1, 1, [&](Value *iv) { chunk(iv, true); });
        forLoop(width, extent, width, [&](Value *iv) { chunk(iv, false); });
      };
      auto rowsFrom = [&](auto &self, int d) -> void {
        while (d < rank && (d == axis || shape[d] == 1)) ++d;
        if (d == rank) return row();
        forLoop(0, shape[d], 1, [&](Value *iv) {
          outer[d] = fromValue(iv, currentLevel());
          self(self, d + 1);
        });
      };
      rowsFrom(rowsFrom, 0);
    });
  } else {
    // Along an outer dimension: vectors across, the running values in registers.
    Shape across = shape;
    across.erase(across.begin() + axis);
    Nest nest = planNest(across, {}, widthFor(sources, 64, 2));
    llvm::SmallVector<llvm::AllocaInst *, 2> carries;
    for (mlir::Value s : sources) {
      llvm::Type *t = typeOf(elementOf(s.getType()));
      carries.push_back(
          entryAlloca(nest.width > 1 ? llvm::FixedVectorType::get(t, static_cast<unsigned>(nest.width)) : t, "carry"));
    }
    sink([&] {
      runNest(nest, {}, [&](const Index &at) {
        auto step = [&](Value *iv, bool first) {
          Value *position = reverse ? b.CreateSub(b.getInt32(static_cast<uint32_t>(extent - 1)), iv) : iv;
          Index index = at;
          index.insert(index.begin() + axis, fromValue(position, currentLevel()));
          llvm::SmallVector<Lanes, 2> values;
          for (mlir::Value s : sources) values.push_back(eval(s, index));
          if (!first) {
            llvm::SmallVector<Lanes, 2> earlier;
            for (llvm::AllocaInst *c : carries)
              earlier.push_back(fromValue(b.CreateLoad(c->getAllocatedType(), c), currentLevel()));
            llvm::SmallVector<Lanes> out = combined(earlier, values);
            values.assign(out.begin(), out.end());
          }
          for (size_t i = 0; i < n; ++i) {
            b.CreateStore(vec(values[i]), carries[i]);
            storeBuffer(*results[i], index, values[i]);
          }
        };
        forLoop(0, 1, 1, [&](Value *iv) { step(iv, true); });
        forLoop(1, extent, 1, [&](Value *iv) { step(iv, false); });
      });
    });
  }
  for (size_t i = 0; i < n; ++i) bind(op->getResult(static_cast<unsigned>(i)), *results[i]);
}

} // namespace neso::cpu
