// Library functions by the names that kernels use (CUDA's libdevice, AMD's ocml): special functions by calls, elementary ones as everywhere,
// the others by rows (extern.h).
#include "backend/cpu/extern.h"

#include "backend/common/special.h"
#include "backend/cpu/emitter.h"
#include "ir/tile/tile.h"
#include "llvm/ADT/DenseMap.h"

namespace neso::cpu {

using llvm::Value;

static const ExternRow *rowOf(tile::LibraryFn fn) {
  static const llvm::DenseMap<int, const ExternRow *> table = [] {
    llvm::DenseMap<int, const ExternRow *> t;
    for (std::span<const ExternRow> rows : {externFloats(), externIntegers()})
      for (const ExternRow &row : rows) t[static_cast<int>(row.fn)] = &row;
    return t;
  }();
  return table.lookup(static_cast<int>(fn));
}

Value *Emitter::emitExtern(mlir::Operation *op, llvm::StringRef symbol, llvm::ArrayRef<Value *> args) {
  if (args.empty()) return nullptr;
  const llvm::StringRef name = tile::libraryName(symbol);
  Value *x = args[0];
  const bool isF32 = x->getType()->getScalarType()->isFloatTy();
  const bool isFp = isF32 || x->getType()->getScalarType()->isDoubleTy();
  llvm::StringRef special = name;
  special.consume_front("neso_");
  if (isF32 && specialSymbol(special).empty() && special.ends_with("f")) special = special.drop_back();
  for (const char *suffix : {"_i64", "_i32", "_i16", "_i8", "_u8"}) special.consume_back(suffix);
  // A real base with an integer exponent (__nv_powif) is not among them.
  const bool ofOneKind = llvm::all_of(args, [&](Value *a) { return a->getType()->isFPOrFPVectorTy() == isFp; });
  if (std::optional<MathFn> fn = inlineSpecialOf(special); fn && isF32) return math_.emit(*fn, args);
  if (llvm::StringRef callee = specialSymbol(special); ofOneKind && !callee.empty()) {
    // The library computes in double and int64, a few functions in float as well; one call a lane.
    auto *vector = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
    if (const unsigned width = vector ? specialLanes(special, isF32, vector->getNumElements()) : 0; isFp && width)
      return math_.onVectors(callee, width, args);
    if (isF32 && specialOnFloats(special)) return math_.libm(callee, args);
    llvm::SmallVector<Value *, 3> wide;
    for (Value *a : args) {
      llvm::Type *to = a->getType()->getWithNewType(isFp ? b.getDoubleTy() : static_cast<llvm::Type *>(b.getInt64Ty()));
      wide.push_back(isFp                     ? b.CreateFPCast(a, to)
                     : symbol.ends_with("u8") ? b.CreateZExt(a, to)
                                              : b.CreateSExtOrTrunc(a, to));
    }
    Value *r = math_.libm(callee, wide);
    return isFp ? b.CreateFPCast(r, x->getType()) : b.CreateTrunc(r, x->getType());
  }
  if (isFp) {
    std::optional<MathFn> fn = mathFnOf(name);
    if (!fn && isF32 && name.ends_with("f")) fn = mathFnOf(name.drop_back());
    if (fn) return math_.emit(*fn, args);
  }
  const std::optional<tile::LibraryCall> call = tile::libraryCall(symbol);
  const ExternRow *row = call ? rowOf(call->fn) : nullptr;
  const bool isInt = x->getType()->isIntOrIntVectorTy();
  if (!row || (row->arguments > 0 && args.size() != static_cast<size_t>(row->arguments)) || (row->kind == 'f' && !isFp) || (row->kind == 'i' && !isInt))
    return nullptr;
  return row->emit({b, math_, args, typeLike(elementOf(op->getResult(0).getType()), x), call->rounding});
}

} // namespace neso::cpu
