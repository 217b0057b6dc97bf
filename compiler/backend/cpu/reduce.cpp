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
    sink([&] {
      llvm::SmallVector<mlir::Value, 4> masks = masksBelow(sources, shape);
      // One vector loop for each outer index, so the outer loops are walked by a nest of their own.
      Nest rows;
      rows.shape = outShape;
      rows.vectorDim = -1;
      Index outer(shape.size(), uniformInt(0));
      auto row = [&] {
        width_ = nest.width;
        auto step = [&](const Index &index, bool first) {
          cover(shape, &index);
          llvm::SmallVector<Lanes, 2> elements;
          for (mlir::Value s : sources) elements.push_back(eval(s, index));
          coverIndex_ = nullptr;
          if (first) {
            for (size_t i = 0; i < n; ++i) b.CreateStore(vec(elements[i]), accumulators[i]);
            return;
          }
          llvm::SmallVector<Value *, 2> current;
          for (llvm::AllocaInst *a : accumulators) current.push_back(b.CreateLoad(a->getAllocatedType(), a));
          llvm::SmallVector<Lanes> out = combined(current, elements);
          for (size_t i = 0; i < n && i < out.size(); ++i) b.CreateStore(vec(out[i]), accumulators[i]);
        };
        Masks loopMasks{masks, false, 0};
        if (identity) {
          llvm::Type *t = accumulators[0]->getAllocatedType();
          b.CreateStore(t->isVectorTy() ? llvm::ConstantVector::getSplat(
                                              llvm::cast<llvm::VectorType>(t)->getElementCount(), identity)
                                        : identity,
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
    sink([&] {
      runNest(nest, {}, [&](const Index &at) {
        auto step = [&](const Lanes &position, bool first) {
          Index index = at;
          index.insert(index.begin() + axis, position);
          cover(shape, &index);
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
        if (shape[axis] <= 4) {
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
