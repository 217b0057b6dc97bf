// Loads and stores on lanes, scratch buffers, atomics.
#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "backend/cpu/emitter.h"
#include "backend/cpu/places.h"
#include "ir/tile/attributes.h"
#include "ir/tile/tile.h"
#include "llvm/IR/Intrinsics.h"
#include "llvm/Analysis/VectorUtils.h"
#include "llvm/Support/SaveAndRestore.h"

namespace neso::cpu {

using llvm::Value;

// ---------------------------------------------------------------------------------------------------------------- loads and stores

/// Whether pointers are computed from positions in a way that keeps most neighbours side by side: not by memory, by floats or by
/// division.
bool Emitter::keepsNeighbours(mlir::Value v) {
  llvm::SmallVector<mlir::Value, 16> todo = {v};
  llvm::SmallPtrSet<mlir::Operation *, 16> seen;
  while (!todo.empty()) {
    mlir::Value at = todo.pop_back_val();
    if (!isTensor(at.getType())) continue;
    mlir::Operation *def = at.getDefiningOp();
    if (!def || buffers_.count(at) || !uses_->isVirtual(def)) return false;
    const OpCode code = codeOf(def);
    if (code == OpCode::Load || code == OpCode::DivSI || code == OpCode::DivUI || code == OpCode::FPToSI) return false;
    if (seen.insert(def).second) todo.append(def->operand_begin(), def->operand_end());
  }
  return true;
}

/// Elements at `pointers`, a register at a time: by one load where they turn out to lie side by side, as most of those of a rolled
/// or mirrored row do.
Value *Emitter::gatherOrRun(Value *pointers, llvm::Type *memory) {
  const int64_t size = static_cast<int64_t>(module_.getDataLayout().getTypeStoreSize(memory));
  const unsigned part = static_cast<unsigned>(std::min<int64_t>(width_, caps_.f32Lanes));
  auto *type = llvm::FixedVectorType::get(memory, part);
  const llvm::Align align(static_cast<uint64_t>(std::max<int64_t>(size, 1)));
  llvm::SmallVector<llvm::Constant *, 16> run;
  for (unsigned l = 0; l < part; ++l) run.push_back(b.getInt64(static_cast<uint64_t>(l) * static_cast<uint64_t>(size)));
  llvm::SmallVector<Value *, 4> parts;
  for (unsigned from = 0; from < width_; from += part) {
    llvm::SmallVector<int, 16> pick;
    for (unsigned l = 0; l < part; ++l) pick.push_back(static_cast<int>(from + l));
    Value *some = part == width_ ? pointers : b.CreateShuffleVector(pointers, pick);
    Value *first = b.CreateExtractElement(some, uint64_t{0});
    Value *apart = b.CreateSub(b.CreatePtrToInt(some, llvm::FixedVectorType::get(b.getInt64Ty(), part)),
                               b.CreateVectorSplat(part, b.CreatePtrToInt(first, b.getInt64Ty())));
    Value *isRun = b.CreateAndReduce(b.CreateICmpEQ(apart, llvm::ConstantVector::get(run)));
    llvm::BasicBlock *together = llvm::BasicBlock::Create(b.getContext(), "run", fn_),
                     *scattered = llvm::BasicBlock::Create(b.getContext(), "gather", fn_),
                     *done = llvm::BasicBlock::Create(b.getContext(), "loaded", fn_);
    b.CreateCondBr(isRun, together, scattered);
    b.SetInsertPoint(together);
    Value *loaded = b.CreateAlignedLoad(type, first, align);
    b.CreateBr(done);
    b.SetInsertPoint(scattered);
    Value *all = llvm::Constant::getAllOnesValue(llvm::FixedVectorType::get(b.getInt1Ty(), part));
    Value *gathered = b.CreateMaskedGather(type, some, align, all);
    b.CreateBr(done);
    b.SetInsertPoint(done);
    frames_.back().block = done;
    llvm::PHINode *either = b.CreatePHI(type, 2);
    either->addIncoming(loaded, together), either->addIncoming(gathered, scattered);
    parts.push_back(either);
  }
  // Halves into wholes.
  while (parts.size() > 1) {
    llvm::SmallVector<Value *, 4> wider;
    for (size_t i = 0; i < parts.size(); i += 2) {
      llvm::SmallVector<int, 64> both;
      const unsigned lanes = llvm::cast<llvm::FixedVectorType>(parts[i]->getType())->getNumElements();
      for (unsigned l = 0; l < 2 * lanes; ++l) both.push_back(static_cast<int>(l));
      wider.push_back(b.CreateShuffleVector(parts[i], parts[i + 1], both));
    }
    parts = std::move(wider);
  }
  return parts[0];
}

Value *Emitter::loadTogether(const Lanes &pointer, int64_t size, llvm::Type *memory, bool scratch) {
  if (pointer.kind != Lanes::Kind::Offsets) return nullptr;
  const llvm::Align align(std::max<int64_t>(size, 1));
  auto load = [&](int64_t elements, int64_t at) {
    Value *base = at ? b.CreateGEP(b.getInt8Ty(), pointer.base, llvm::ConstantInt::getSigned(b.getInt64Ty(), at)) : pointer.base;
    return b.CreateAlignedLoad(llvm::FixedVectorType::get(memory, static_cast<unsigned>(elements)), base, align);
  };
  auto [lo, hi] = std::minmax_element(pointer.offsets->begin(), pointer.offsets->end());
  const int64_t window = (*hi - *lo) / size + 1;
  bool whole = true;
  llvm::SmallVector<int, 64> pattern;
  for (int64_t o : *pointer.offsets) {
    whole &= (o - *lo) % size == 0;
    pattern.push_back(static_cast<int>((o - *lo) / size));
  }
  // A permutation of a small window is one load of the window and a shuffle. Between two elements that are read lies memory of the same tensor, so
  // the window may be read whole.
  if (whole && window <= std::max<int64_t>(width_, 2) && (scratch || window <= width_)) return b.CreateShuffleVector(load(window, *lo), pattern);
  // Every second element, as the parts of complex numbers lie: the window's first and last vector.
  if (whole && width_ >= 4 && window > width_ && window <= 2 * width_) {
    const int64_t last = window - width_;
    for (int &p : pattern) p = p < width_ ? p : static_cast<int>(width_ + p - last);
    return b.CreateShuffleVector(load(width_, *lo), load(width_, *lo + last * size), pattern);
  }
  const int64_t group = groupOf(pointer, size);
  if (group == 0) return nullptr;
  llvm::SmallVector<Value *, 8> parts;
  for (int64_t l = 0; l < width_; l += group) parts.push_back(load(group, (*pointer.offsets)[static_cast<size_t>(l)]));
  return llvm::concatenateVectors(b, parts);
}

/// As loadTogether where all lanes are on, which is asked at run time, else a gather; null where the elements do not lie together.
Value *Emitter::loadTogetherIfAll(const Lanes &pointer, int64_t size, llvm::Type *memory, Value *mask, Value *pass) {
  llvm::BasicBlock *before = b.GetInsertBlock(), *together = llvm::BasicBlock::Create(b.getContext(), "together", fn_);
  b.SetInsertPoint(together);
  Value *all = loadTogether(pointer, size, memory, false);
  b.SetInsertPoint(before);
  if (!all) {
    together->eraseFromParent();
    return nullptr;
  }
  llvm::BasicBlock *scattered = llvm::BasicBlock::Create(b.getContext(), "gather", fn_),
                   *done = llvm::BasicBlock::Create(b.getContext(), "loaded", fn_);
  b.CreateCondBr(b.CreateAndReduce(mask), together, scattered);
  b.SetInsertPoint(together);
  b.CreateBr(done);
  b.SetInsertPoint(scattered);
  Value *some = b.CreateMaskedGather(all->getType(), vec(pointer), llvm::Align(static_cast<uint64_t>(std::max<int64_t>(size, 1))), mask, pass);
  b.CreateBr(done);
  b.SetInsertPoint(done);
  frames_.back().block = done;
  llvm::PHINode *either = b.CreatePHI(all->getType(), 2);
  either->addIncoming(all, together), either->addIncoming(some, scattered);
  return either;
}

/// Elements that lie apart within two vectors, under a mask: both vectors under masks that leave out what lies between them; null: they do not lie so.
Value *Emitter::loadApart(const Lanes &pointer, int64_t size, llvm::Type *memory, Value *mask, Value *pass) {
  if (pointer.kind != Lanes::Kind::Offsets || !caps_.maskedMemory || size < 4 || width_ < 4 || width_ * size > 64) return nullptr;
  const int64_t first = *std::min_element(pointer.offsets->begin(), pointer.offsets->end());
  llvm::SmallVector<int, 32> pattern, laneOf(static_cast<size_t>(2 * width_), static_cast<int>(width_)); // width_: a lane that is off
  for (int64_t o : *pointer.offsets) {
    const int64_t at = (o - first) / size;
    if ((o - first) % size || at >= 2 * width_ || laneOf[static_cast<size_t>(at)] != width_) return nullptr;
    laneOf[static_cast<size_t>(at)] = static_cast<int>(pattern.size());
    pattern.push_back(static_cast<int>(at));
  }
  auto *type = llvm::FixedVectorType::get(memory, static_cast<unsigned>(width_));
  Value *off = llvm::Constant::getNullValue(mask->getType()), *none = llvm::Constant::getNullValue(type);
  llvm::SmallVector<Value *, 2> parts;
  for (int64_t half : {int64_t{0}, width_}) {
    Value *where = b.CreateShuffleVector(mask, off, llvm::ArrayRef(laneOf).slice(static_cast<size_t>(half), static_cast<size_t>(width_)));
    parts.push_back(b.CreateMaskedLoad(type, bytesAfter(pointer.base, llvm::ConstantInt::getSigned(b.getInt64Ty(), first + half * size)), llvm::Align(static_cast<uint64_t>(size)), where, none));
  }
  Value *all = b.CreateShuffleVector(parts[0], parts[1], pattern);
  auto *zero = llvm::dyn_cast<llvm::Constant>(pass);
  return zero && zero->isNullValue() ? all : b.CreateSelect(mask, all, pass);
}

Lanes Emitter::loadAt(const Lanes &pointer, mlir::Type element, const Lanes *mask, const Lanes *other, bool scratch,
                      bool mayRun) {
  const int level = std::max({pointer.level, mask ? mask->level : uint8_t{0}, other ? other->level : uint8_t{0}});
  const int64_t size = bytesOf(element);
  llvm::Type *memory = memoryTypeOf(element), *type = typeOf(element);
  if (mask)
    if (auto *c = llvm::dyn_cast<llvm::ConstantInt>(mask->base)) {
      if (c->isOne())
        mask = nullptr;
      else if (other)
        return *other;
    }
  AtLevel at(*this, level);
  const llvm::Align align(std::max<int64_t>(size, 1));
  auto fromMemory = [&](Value *v) { return type == memory ? v : b.CreateTrunc(v, typeLike(element, v)); };
  auto toMemory = [&](Value *v) {
    return type == memory ? v
                          : b.CreateZExt(v, v->getType()->isVectorTy() ? v->getType()->getWithNewType(memory) : memory);
  };
  auto vectorType = [&](int64_t n) { return llvm::FixedVectorType::get(memory, static_cast<unsigned>(n)); };

  if (pointer.uniform() && (!mask || mask->uniform())) {
    Value *p = pointer.base;
    if (mask) p = b.CreateSelect(mask->base, p, dummy_);
    Value *v = fromMemory(b.CreateAlignedLoad(memory, p, align));
    if (mask && other && !other->uniform())
      return fromValue(b.CreateSelect(mask->base, b.CreateVectorSplat(width_, v), vec(*other)), level);
    if (mask && other) v = b.CreateSelect(mask->base, v, other->base);
    return fromValue(v, level);
  }

  Value *m = mask ? vec(*mask) : nullptr;
  Value *pass = m && other ? toMemory(vec(*other))
                : m        ? static_cast<Value *>(llvm::Constant::getNullValue(vectorType(width_)))
                           : nullptr;
  bool contiguous = pointer.kind == Lanes::Kind::Offsets && isRun(*pointer.offsets, size);
  if (pointer.kind == Lanes::Kind::Strided && speculating_ && pointer.stepLevel == 0 && pointer.scale != 0 &&
      size % pointer.scale == 0) {
    AtLevel top(*this, 0);
    conditions_.push_back(
        b.CreateICmpEQ(pointer.step, llvm::ConstantInt::getSigned(pointer.step->getType(), size / pointer.scale)));
    contiguous = true;
  }
  if (contiguous) {
    if (!m) return fromValue(fromMemory(b.CreateAlignedLoad(vectorType(width_), pointer.base, align)), level);
    return fromValue(fromMemory(b.CreateMaskedLoad(vectorType(width_), pointer.base, align, m, pass)), level);
  }
  if (!m)
    if (Value *v = loadTogether(pointer, size, memory, scratch)) return fromValue(fromMemory(v), level);
  if (m && triesWhole_ && level == currentLevel())
    if (Value *v = loadTogetherIfAll(pointer, size, memory, m, pass)) return fromValue(fromMemory(v), level);
  if (m)
    if (Value *v = loadApart(pointer, size, memory, m, pass)) return fromValue(fromMemory(v), level);
  // One element for all lanes that are on: it is read if there is such a lane.
  if (pointer.uniform() && m->getType()->isVectorTy()) {
    Value *p = b.CreateSelect(b.CreateOrReduce(m), pointer.base, dummy_);
    Value *one = b.CreateVectorSplat(width_, b.CreateAlignedLoad(memory, p, align));
    return fromValue(fromMemory(b.CreateSelect(m, one, pass)), level);
  }
  Value *pointers = vec(pointer);
  if (!m && mayRun && level == currentLevel()) return fromValue(fromMemory(gatherOrRun(pointers, memory)), level);
  if (!m) m = llvm::Constant::getAllOnesValue(llvm::FixedVectorType::get(b.getInt1Ty(), static_cast<unsigned>(width_)));
  return fromValue(fromMemory(b.CreateMaskedGather(vectorType(width_), pointers, align, m, pass)), level);
}

void Emitter::storeAt(const Lanes &pointer, const Lanes &value, mlir::Type element, const Lanes *mask, bool pastCaches) {
  const int64_t size = bytesOf(element);
  llvm::Type *memory = memoryTypeOf(element);
  const llvm::Align align(std::max<int64_t>(size, 1));
  if (mask)
    if (auto *c = llvm::dyn_cast<llvm::ConstantInt>(mask->base)) {
      if (c->isZero()) return;
      mask = nullptr;
    }
  auto toMemory = [&](Value *v) {
    if (v->getType()->getScalarType() == memory) return v;
    return b.CreateZExt(v, v->getType()->isVectorTy() ? v->getType()->getWithNewType(memory) : memory);
  };
  if (width_ == 1 || (pointer.uniform() && value.uniform() && (!mask || mask->uniform()))) {
    Value *v = toMemory(toVector(b, value, 1)), *p = toVector(b, pointer, 1);
    if (!mask) {
      b.CreateAlignedStore(v, p, align);
      return;
    }
    ifThen(mask->base, [&] { b.CreateAlignedStore(v, p, align); });
    return;
  }
  Value *v = toMemory(vec(value));
  Value *m = mask ? vec(*mask) : nullptr;
  bool contiguous = pointer.kind == Lanes::Kind::Offsets && isRun(*pointer.offsets, size);
  if (pointer.kind == Lanes::Kind::Strided && speculating_ && pointer.stepLevel == 0 && pointer.scale != 0 &&
      size % pointer.scale == 0) {
    AtLevel top(*this, 0);
    conditions_.push_back(
        b.CreateICmpEQ(pointer.step, llvm::ConstantInt::getSigned(pointer.step->getType(), size / pointer.scale)));
    contiguous = true;
  }
  if (contiguous) {
    if (m)
      b.CreateMaskedStore(v, pointer.base, align, m);
    else if (pastCaches && width_ * size % kLineBytes == 0) {
      llvm::StoreInst *store = b.CreateAlignedStore(v, pointer.base, llvm::Align(kLineBytes));
      store->setMetadata(llvm::LLVMContext::MD_nontemporal, llvm::MDNode::get(b.getContext(), llvm::ConstantAsMetadata::get(b.getInt32(1))));
      leavesStores_ = true;
    } else
      b.CreateAlignedStore(v, pointer.base, align);
    return;
  }
  if (const int64_t group = m ? 0 : groupOf(pointer, size)) {
    for (int64_t l = 0; l < width_; l += group) {
      llvm::SmallVector<int, 32> lanes(static_cast<size_t>(group));
      std::iota(lanes.begin(), lanes.end(), static_cast<int>(l));
      b.CreateAlignedStore(b.CreateShuffleVector(v, lanes), bytesAfter(pointer.base, llvm::ConstantInt::getSigned(b.getInt64Ty(), (*pointer.offsets)[static_cast<size_t>(l)])), align);
    }
    return;
  }
  if (!m) m = llvm::Constant::getAllOnesValue(llvm::FixedVectorType::get(b.getInt1Ty(), static_cast<unsigned>(width_)));
  b.CreateMaskedScatter(v, vec(pointer), align, m);
}

int64_t Emitter::groupOf(const Lanes &pointer, int64_t size) const {
  constexpr int64_t kLeastBytes = 16;
  if (pointer.kind != Lanes::Kind::Offsets) return 0;
  const LaneOffsets &offsets = *pointer.offsets;
  auto isNext = [&](int64_t l) { return offsets[static_cast<size_t>(l)] == offsets[static_cast<size_t>(l - 1)] + size; };
  int64_t group = 1;
  while (group < width_ && isNext(group)) ++group;
  if (group * size < kLeastBytes || width_ % group || !llvm::isPowerOf2_64(static_cast<uint64_t>(group))) return 0;
  for (int64_t l = group; l < width_; ++l)
    if (l % group && !isNext(l)) return 0;
  return group;
}

/// The cache lines that a vector of neighbours will reach `ahead_` bytes later, into the second cache.
void Emitter::fetchAhead(const Lanes &pointer, int64_t size) {
  if (pointer.kind != Lanes::Kind::Offsets || !isRun(*pointer.offsets, size)) return;
  for (int64_t line = 0; line < width_ * size; line += 64) {
    Value *address = bytesAfter(pointer.base, b.getInt64(static_cast<uint64_t>(ahead_ + line)));
    // A read, of data.
    b.CreateIntrinsic(llvm::Intrinsic::prefetch, {address->getType()}, {address, b.getInt32(0), b.getInt32(2), b.getInt32(1)});
  }
}

Lanes Emitter::loadOp(mlir::Operation *op, const Index &index) {
  Lanes pointer = eval(op->getOperand(0), index);
  mlir::Type element = elementOf(op->getResult(0).getType());
  const bool mayRun = pointer.vector() && width_ >= caps_.f32Lanes && keepsNeighbours(op->getOperand(0));
  if (ahead_ && llvm::cast<tt::LoadOp>(op).getEvict() == tt::EvictionPolicy::EVICT_FIRST) fetchAhead(pointer, bytesOf(element));
  if (op->getNumOperands() == 1) return loadAt(pointer, element, nullptr, nullptr, false, mayRun);
  Lanes mask = eval(op->getOperand(1), index);
  if (op->getNumOperands() == 2) {
    // What masked-off lanes hold is not defined; zero is as good as any and the same each time.
    Lanes zero;
    zero.base = llvm::Constant::getNullValue(typeOf(element));
    return loadAt(pointer, element, &mask, &zero, false, mayRun);
  }
  Lanes other = eval(op->getOperand(2), index);
  return loadAt(pointer, element, &mask, &other, false, mayRun);
}

// ------------------------------------------------------------------------------------------------------------------------- buffers

Buffer &Emitter::newBuffer(mlir::Type element, llvm::ArrayRef<int64_t> shape, Lifetime lifetime) {
  auto buffer = std::make_unique<Buffer>();
  buffer->elementType = element;
  buffer->shape.assign(shape.begin(), shape.end());
  int64_t bytes = bytesOf(element);
  for (int64_t s : shape) bytes *= s;
  // Vectors may read past the last element of a small buffer.
  buffer->bytes = (bytes + 63) / 64 * 64 + 64;
  auto best = freeScratch_.end();
  for (auto it = freeScratch_.begin(); it != freeScratch_.end() && lifetime == Lifetime::Program; ++it)
    if (it->second >= buffer->bytes && (best == freeScratch_.end() || it->second < best->second)) best = it;
  if (best != freeScratch_.end()) {
    buffer->offset = best->first;
    best->first += buffer->bytes;
    best->second -= buffer->bytes;
    if (best->second == 0) freeScratch_.erase(best);
  } else {
    buffer->offset = scratchTop_;
    scratchTop_ += buffer->bytes;
  }
  llvm::IRBuilderBase::InsertPointGuard guard(b);
  b.SetInsertPoint(entry_->getTerminator());
  buffer->ptr = b.CreateConstInBoundsGEP1_64(b.getInt8Ty(), scratch_, static_cast<uint64_t>(buffer->offset));
  ownedBuffers_.push_back(std::move(buffer));
  return *ownedBuffers_.back();
}

void Emitter::freeBuffer(Buffer &buffer) {
  if (buffer.bytes == 0) return;
  freeScratch_.push_back({buffer.offset, buffer.bytes});
  buffer.bytes = 0;
  std::sort(freeScratch_.begin(), freeScratch_.end());
  for (size_t i = 0; i + 1 < freeScratch_.size();)
    if (freeScratch_[i].first + freeScratch_[i].second == freeScratch_[i + 1].first) {
      freeScratch_[i].second += freeScratch_[i + 1].second;
      freeScratch_.erase(freeScratch_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    } else
      ++i;
}

void Emitter::bind(mlir::Value v, Buffer &buffer) {
  buffers_[v] = &buffer;
  mlir::Operation *last = uses_->lastSink(v);
  if (last) freeAfter_[last].push_back(&buffer);
}

Lanes Emitter::bufferPointer(const Buffer &buffer, const Index &index) {
  Lanes base;
  base.base = buffer.ptr;
  return addIndex(base, linearize(index, buffer.shape), bytesOf(buffer.elementType));
}

Lanes Emitter::loadBuffer(const Buffer &buffer, const Index &index) {
  return loadAt(bufferPointer(buffer, index), buffer.elementType, nullptr, nullptr, true);
}

void Emitter::storeBuffer(const Buffer &buffer, const Index &index, const Lanes &value) {
  storeAt(bufferPointer(buffer, index), value, buffer.elementType, nullptr);
}

void Emitter::cover(llvm::ArrayRef<int64_t> shape, const Index *index) {
  coverShape_ = shape;
  coverIndex_ = index;
  ++coverParts_;
}

void Emitter::keep(mlir::Value v, const Index &index, const Lanes &value) {
  auto it = llvm::find_if(kept_, [&](const Kept &k) { return k.value == v; });
  if (it == kept_.end()) {
    // What the first part did not ask for stays unwritten there.
    if (coverParts_ > 1) return;
    it = kept_.insert(kept_.end(), Kept{v, &newBuffer(elementOf(v.getType()), coverShape_)});
  } else if (it->parts != coverParts_ - 1)
    return;
  it->parts = coverParts_;
  storeBuffer(*it->buffer, index, value);
}

void Emitter::commitKept() {
  coverIndex_ = nullptr;
  for (const Kept &k : kept_)
    if (k.parts == coverParts_)
      bind(k.value, *k.buffer);
    else
      freeBuffer(*k.buffer);
  kept_.clear();
  coverParts_ = 0;
}

Buffer &Emitter::materialize(mlir::Value v) {
  if (Buffer *known = buffers_.lookup(v)) return *known;
  Buffer &buffer = newBuffer(elementOf(v.getType()), shapeOf(v.getType()));
  fill(buffer, v);
  bind(v, buffer);
  return buffer;
}

void Emitter::fill(const Buffer &buffer, mlir::Value v) {
  Nest nest = planNest(buffer.shape, {v}, 64);
  sink([&] {
    llvm::SmallVector<mlir::Value, 4> masks = masksBelow({v}, buffer.shape);
    runNest(nest, {masks, false}, [&](const Index &index) {
      cover(buffer.shape, &index);
      storeBuffer(buffer, index, eval(v, index));
      coverIndex_ = nullptr;
    });
  });
  commitKept();
}

// ------------------------------------------------------------------------------------------------------------------------- stores

llvm::SmallVector<size_t, 8> Emitter::interleavedWith(size_t first, llvm::ArrayRef<PlacedStore> stores) {
  const Lanes &pointer = stores[first].pointer;
  const int64_t size = bytesOf(elementOf(stores[first].op->getOperand(1).getType()));
  if (pointer.kind != Lanes::Kind::Offsets || stores[first].mask.base || width_ < 4) return {};
  const int64_t apart = (*pointer.offsets)[1] / size;
  if ((apart != 2 && apart != 4 && apart != 8) || !isRun(*pointer.offsets, apart * size)) return {};
  // Stores by how far behind the lowest they write.
  llvm::SmallVector<std::pair<int64_t, size_t>, 16> near;
  for (size_t k = 0; k < stores.size(); ++k) {
    if (stores[k].done || stores[k].mask.base || stores[k].pointer.kind != pointer.kind ||
        stores[k].pointer.offsets != pointer.offsets)
      continue;
    std::optional<int64_t> d = distance(stores[first].op->getOperand(0), stores[k].op->getOperand(0));
    if (d && std::abs(*d) < apart) near.push_back({*d, k});
  }
  llvm::sort(near);
  for (size_t from = 0; from + static_cast<size_t>(apart) <= near.size(); ++from) {
    llvm::SmallVector<size_t, 8> run;
    for (size_t k = from; k < from + static_cast<size_t>(apart); ++k)
      if (near[k].first == near[from].first + static_cast<int64_t>(k - from)) run.push_back(near[k].second);
    if (run.size() == static_cast<size_t>(apart) && llvm::is_contained(run, first)) return run;
  }
  return {};
}

/// The vectors' elements in turn: a[0] b[0] c[0] … a[1] b[1] …, in as many vectors; a power of two of them.
static llvm::SmallVector<Value *, 8> interleave(llvm::IRBuilder<> &b, llvm::ArrayRef<Value *> vectors) {
  if (vectors.size() == 1) return {vectors[0]};
  llvm::SmallVector<Value *, 8> even, odd, out;
  for (size_t k = 0; k < vectors.size(); ++k) (k % 2 ? odd : even).push_back(vectors[k]);
  even = interleave(b, even), odd = interleave(b, odd);
  const int lanes = static_cast<int>(llvm::cast<llvm::FixedVectorType>(vectors[0]->getType())->getNumElements());
  for (size_t k = 0; k < even.size(); ++k)
    for (int half : {0, lanes / 2}) {
      llvm::SmallVector<int, 64> pattern;
      for (int l = 0; l < lanes / 2; ++l) pattern.push_back(half + l), pattern.push_back(lanes + half + l);
      out.push_back(b.CreateShuffleVector(even[k], odd[k], pattern));
    }
  return out;
}

void Emitter::storeTogether(llvm::MutableArrayRef<PlacedStore> stores) {
  for (size_t k = 0; k < stores.size(); ++k) {
    if (stores[k].done) continue;
    mlir::Type element = elementOf(stores[k].op->getOperand(1).getType());
    const llvm::SmallVector<size_t, 8> run = interleavedWith(k, stores);
    if (run.empty()) {
      storeAt(stores[k].pointer, stores[k].value, element, stores[k].mask.base ? &stores[k].mask : nullptr, pastCaches_);
      continue;
    }
    llvm::SmallVector<Value *, 8> vectors;
    for (size_t r : run) {
      Value *v = vec(stores[r].value);
      llvm::Type *memory = memoryTypeOf(element);
      vectors.push_back(
          v->getType()->getScalarType() == memory ? v : b.CreateZExt(v, v->getType()->getWithNewType(memory)));
      stores[r].done = true;
    }
    const int64_t size = bytesOf(element);
    int64_t at = 0;
    for (Value *v : interleave(b, vectors)) {
      Value *to = b.CreateGEP(b.getInt8Ty(), stores[run[0]].pointer.base, b.getInt64(static_cast<uint64_t>(at)));
      b.CreateAlignedStore(v, to, llvm::Align(static_cast<uint64_t>(size)));
      at += width_ * size;
    }
  }
}

void Emitter::storeAll(llvm::ArrayRef<mlir::Operation *> stores, const Index &index) {
  llvm::SmallVector<PlacedStore, 8> placed;
  for (mlir::Operation *op : stores) {
    Lanes mask = op->getNumOperands() > 2 ? eval(op->getOperand(2), index) : Lanes{};
    if (auto *c = llvm::dyn_cast_or_null<llvm::ConstantInt>(mask.base); c && c->isOne()) mask = {};
    placed.push_back({op, eval(op->getOperand(0), index), eval(op->getOperand(1), index), mask});
  }
  coverIndex_ = nullptr;
  storeTogether(placed);
}

void Emitter::emitStores(llvm::ArrayRef<mlir::Operation *> stores) {
  mlir::Operation *first = stores[0];
  if (!isTensor(first->getOperand(0).getType())) {
    for (mlir::Operation *op : stores) {
      Lanes mask;
      if (op->getNumOperands() > 2) mask = scalar(op->getOperand(2));
      width_ = 1;
      storeAt(scalar(op->getOperand(0)), scalar(op->getOperand(1)), op->getOperand(1).getType(),
              mask.base ? &mask : nullptr);
    }
    return;
  }
  Shape shape = shapeOf(first->getOperand(0).getType());
  llvm::SmallVector<mlir::Value, 8> values, masks;
  bool sameMask = true;
  for (mlir::Operation *op : stores) {
    for (mlir::Value o : op->getOperands()) values.push_back(o);
    mlir::Value mask = op->getNumOperands() > 2 ? op->getOperand(2) : mlir::Value();
    sameMask &= mask && (masks.empty() || masks[0] == mask);
    if (mask && std::find(masks.begin(), masks.end(), mask) == masks.end()) masks.push_back(mask);
  }
  Nest nest = planNest(shape, values, 64);
  together_ = stores;
  const std::optional<Sliding> sliding = slidingWindow(nest, stores);
  auto emit = [&] {
    sink([&] {
      if (sliding) return runSliding(nest, *sliding, stores);
      llvm::SmallVector<mlir::Value, 8> all(masks.begin(), masks.end());
      for (mlir::Value m : masksBelow(values, shape))
        if (std::find(all.begin(), all.end(), m) == all.end()) all.push_back(m);
      Nest cut = nest;
      const llvm::SmallVector<Turning, 4> turning = turningBelow(cut, values);
      runNest(cut, {all, sameMask, 0, true, takesApart(nest, values), turning}, [&](const Index &index) {
        if (masks.empty()) cover(shape, &index);
        storeAll(stores, index);
      });
    });
  };
  if (Value *past = sliding ? nullptr : goesPastCaches(nest, stores)) {
    auto emitPast = [&] {
      llvm::SaveAndRestore<bool> on(pastCaches_, true);
      emit();
    };
    branch(past, emitPast, emit);
  } else
    emit();
  commitKept();
  together_ = {};
}

// ------------------------------------------------------------------------------------------------------------------------- atomics

namespace {
llvm::AtomicOrdering orderingOf(mlir::Operation *op) {
  auto sem = op->getAttrOfType<mlir::IntegerAttr>("sem");
  switch (sem ? sem.getInt() : 4) {
  case 1: return llvm::AtomicOrdering::Monotonic;
  case 2: return llvm::AtomicOrdering::Acquire;
  case 3: return llvm::AtomicOrdering::Release;
  default: return llvm::AtomicOrdering::AcquireRelease;
  }
}

llvm::AtomicRMWInst::BinOp rmwOf(mlir::Operation *op) {
  using R = llvm::AtomicRMWInst;
  static constexpr R::BinOp kOps[] = {R::BAD_BINOP, R::And, R::Or,   R::Xor,  R::Add, R::FAdd,
                                      R::Max,       R::Min, R::UMax, R::UMin, R::Xchg};
  return kOps[op->getAttrOfType<mlir::IntegerAttr>("atomic_rmw_op").getInt()];
}
} // namespace

/// An update without another program beside it: lanes compute together where and what; each then loads, combines and stores.
void Emitter::emitInTurn(mlir::Operation *op) {
  using R = llvm::AtomicRMWInst;
  const mlir::Type element = elementOf(op->getOperand(1).getType());
  llvm::Type *type = memoryTypeOf(element);
  const llvm::Align align(static_cast<uint64_t>(bytesOf(element)));
  const R::BinOp kind = rmwOf(op);
  auto combined = [&](Value *old, Value *x) -> Value * {
    switch (kind) {
    case R::FAdd: {
      if (bytesOf(element) >= 4) return b.CreateFAdd(old, x);
      mlir::Type f32 = mlir::Float32Type::get(op->getContext());
      return convertFloat(b.CreateFAdd(convertFloat(old, element, f32, false), convertFloat(x, element, f32, false)), f32, element, false);
    }
    case R::Add: return b.CreateAdd(old, x);
    case R::Max: return b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, old, x);
    case R::Min: return b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, old, x);
    case R::UMax: return b.CreateBinaryIntrinsic(llvm::Intrinsic::umax, old, x);
    case R::UMin: return b.CreateBinaryIntrinsic(llvm::Intrinsic::umin, old, x);
    default: NESO_UNREACHABLE("an update in turn of another kind");
    }
  };
  auto one = [&](Value *pointer, Value *x) { b.CreateAlignedStore(combined(b.CreateAlignedLoad(type, pointer, align), x), pointer, align); };
  const bool hasMask = op->getNumOperands() > 2;
  llvm::SmallVector<mlir::Value, 4> values(op->getOperands().begin(), op->getOperands().end());
  const Shape shape = shapeOf(op->getOperand(0).getType());
  const Nest nest = planNest(shape, values, caps_.f32Lanes);
  sink([&] {
    speculating_ = false;
    runNest(nest, {}, [&](const Index &index) {
      Value *pointer = vec(eval(op->getOperand(0), index)), *x = vec(eval(op->getOperand(1), index));
      Value *mask = hasMask ? vec(eval(op->getOperand(2), index)) : nullptr;
      for (int64_t l = 0; l < width_; ++l) {
        auto lane = [&](Value *v) { return width_ == 1 ? v : b.CreateExtractElement(v, static_cast<uint64_t>(l)); };
        if (mask)
          ifThen(lane(mask), [&] { one(lane(pointer), lane(x)); });
        else
          one(lane(pointer), lane(x));
      }
    });
  });
}

void Emitter::emitAtomic(mlir::Operation *op) {
  if (op->hasAttr(tile::kInTurnAttr) && isTensor(op->getOperand(0).getType()) && op->getResult(0).use_empty()) return emitInTurn(op);
  const OpCode code = codeOf(op);
  const bool tensor = isTensor(op->getOperand(0).getType());
  const llvm::AtomicOrdering order = orderingOf(op);
  const unsigned maskAt = code == OpCode::AtomicRmw || code == OpCode::AtomicStore ? 2
                          : code == OpCode::AtomicLoad                             ? 1
                                                                                   : 99;
  const bool hasMask = op->getNumOperands() > maskAt;
  mlir::Type element =
      elementOf(code == OpCode::AtomicLoad || code == OpCode::AtomicStore
                    ? llvm::cast<tt::PointerType>(elementOf(op->getOperand(0).getType())).getPointeeType()
                    : op->getResult(0).getType());
  llvm::Type *type = memoryTypeOf(element);
  const bool hasResult = op->getNumResults() && !op->getResult(0).use_empty();
  llvm::AllocaInst *cell = hasResult ? entryAlloca(type, "old") : nullptr;

  auto one = [&](Value *pointer, llvm::ArrayRef<Value *> operands) -> Value * {
    const llvm::Align align(static_cast<uint64_t>(bytesOf(element)));
    llvm::Type *integer = b.getIntNTy(static_cast<unsigned>(bytesOf(element)) * 8);
    if (code == OpCode::AtomicLoad) {
      llvm::LoadInst *l = b.CreateAlignedLoad(type, pointer, align);
      l->setAtomic(order == llvm::AtomicOrdering::Monotonic ? order : llvm::AtomicOrdering::Acquire);
      return l;
    }
    if (code == OpCode::AtomicStore) {
      llvm::StoreInst *s = b.CreateAlignedStore(operands[0], pointer, align);
      s->setAtomic(order == llvm::AtomicOrdering::Monotonic ? order : llvm::AtomicOrdering::Release);
      return nullptr;
    }
    if (code == OpCode::AtomicCas) {
      Value *expected = b.CreateBitCast(operands[0], integer), *desired = b.CreateBitCast(operands[1], integer);
      Value *pair = b.CreateAtomicCmpXchg(pointer, expected, desired, align, order,
                                          llvm::AtomicCmpXchgInst::getStrongestFailureOrdering(order));
      return b.CreateBitCast(b.CreateExtractValue(pair, 0), type);
    }
    using R = llvm::AtomicRMWInst;
    const R::BinOp rmw = rmwOf(op);
    if (rmw == R::FAdd && bytesOf(element) < 4) {
      // Narrow floats: a compare-and-swap loop around the rounded sum.
      mlir::Type f32 = mlir::Float32Type::get(op->getContext());
      llvm::BasicBlock *pre = b.GetInsertBlock();
      llvm::BasicBlock *loop = llvm::BasicBlock::Create(b.getContext(), "cas", fn_),
                       *exit = llvm::BasicBlock::Create(b.getContext(), "casdone", fn_);
      Value *start = b.CreateAlignedLoad(integer, pointer, align);
      b.CreateBr(loop);
      b.SetInsertPoint(loop);
      llvm::PHINode *old = b.CreatePHI(integer, 2);
      old->addIncoming(start, pre);
      Value *sum = b.CreateFAdd(convertFloat(b.CreateBitCast(old, type), element, f32, false),
                                convertFloat(operands[0], element, f32, false));
      Value *next = b.CreateBitCast(convertFloat(sum, f32, element, false), integer);
      Value *pair = b.CreateAtomicCmpXchg(pointer, old, next, align, order,
                                          llvm::AtomicCmpXchgInst::getStrongestFailureOrdering(order));
      Value *seen = b.CreateExtractValue(pair, 0);
      old->addIncoming(seen, b.GetInsertBlock());
      b.CreateCondBr(b.CreateExtractValue(pair, 1), exit, loop);
      b.SetInsertPoint(exit);
      frames_.back().block = exit;
      return b.CreateBitCast(old, type);
    }
    return b.CreateAtomicRMW(rmw, pointer, operands[0], align, order);
  };
  auto run = [&](Value *pointer, llvm::ArrayRef<Value *> operands, Value *mask) {
    if (cell) b.CreateStore(llvm::Constant::getNullValue(type), cell);
    auto go = [&] {
      Value *old = one(pointer, operands);
      if (cell) b.CreateStore(old, cell);
    };
    if (mask)
      ifThen(mask, go);
    else
      go();
  };
  const unsigned operandCount = hasMask ? maskAt : op->getNumOperands();
  if (!tensor) {
    llvm::SmallVector<Value *, 2> operands;
    for (unsigned i = 1; i < operandCount; ++i) operands.push_back(scalar(op->getOperand(i)).base);
    run(scalar(op->getOperand(0)).base, operands, hasMask ? scalar(op->getOperand(maskAt)).base : nullptr);
    if (cell) scalars_[op->getResult(0)] = fromValue(b.CreateLoad(type, cell), 0);
    return;
  }
  Shape shape = shapeOf(op->getOperand(0).getType());
  Buffer *result = hasResult ? &newBuffer(element, shape) : nullptr;
  llvm::SmallVector<mlir::Value, 4> values(op->getOperands().begin(), op->getOperands().end());
  Nest nest = planNest(shape, values, 1);
  // No speculation: both forms would run the same scalar code.
  sink([&] {
    speculating_ = false;
    runNest(nest, {}, [&](const Index &index) {
      llvm::SmallVector<Value *, 2> operands;
      for (unsigned i = 1; i < operandCount; ++i) operands.push_back(toVector(b, eval(op->getOperand(i), index), 1));
      Value *mask = hasMask ? eval(op->getOperand(maskAt), index).base : nullptr;
      run(toVector(b, eval(op->getOperand(0), index), 1), operands, mask);
      if (result) storeBuffer(*result, index, fromValue(b.CreateLoad(type, cell), currentLevel()));
    });
  });
  if (result) bind(op->getResult(0), *result);
}

void Emitter::emitHistogram(mlir::Operation *op) {
  mlir::Value source = op->getOperand(0);
  Shape bins = shapeOf(op->getResult(0).getType());
  mlir::Type element = elementOf(op->getResult(0).getType());
  Buffer &counts = newBuffer(element, bins);
  llvm::Type *type = typeOf(element);
  b.CreateMemSet(counts.ptr, b.getInt8(0), static_cast<uint64_t>(bins[0] * bytesOf(element)), llvm::MaybeAlign(64));
  Nest nest = planNest(shapeOf(source.getType()), {source}, 1);
  sink([&] {
    speculating_ = false;
    runNest(nest, {}, [&](const Index &index) {
      Value *bin = toVector(b, eval(source, index), 1);
      Value *ok = b.CreateICmpULT(bin, llvm::ConstantInt::get(bin->getType(), static_cast<uint64_t>(bins[0])));
      if (op->getNumOperands() > 1) ok = b.CreateAnd(ok, eval(op->getOperand(1), index).base);
      ifThen(ok, [&] {
        Value *p = b.CreateGEP(type, counts.ptr, b.CreateZExtOrTrunc(bin, b.getInt64Ty()));
        b.CreateStore(b.CreateAdd(b.CreateLoad(type, p), llvm::ConstantInt::get(type, 1)), p);
      });
    });
  });
  bind(op->getResult(0), counts);
}

} // namespace neso::cpu
