// What a level has no instruction for, written out in others. Results are those of the instruction, bit by bit, but for steps of
// approximations.
#include "backend/common/float_convert.h"
#include "backend/cpu/target.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"

namespace neso::cpu {

using llvm::Value;

namespace {
/// a · m + c of f32, rounded once; of steps of an approximation the sum in f64 is rounded to f32 as it is, which differs from that in one of
/// 2^29 cases or so. The product is exact in f64; their sum is rounded to odd (Boldo and Melquiond, Emulation of FMA and
/// correctly rounded sums: proved algorithms using rounding to odd, theorem 5), so that the rounding to f32 behind it is right.
Value *fusedF32(llvm::IRBuilder<> &b, Value *a, Value *m, Value *c, bool isStep) {
  FloatConverter convert(b);
  llvm::Type *f64 = convert.shaped(a, b.getDoubleTy());
  Value *product = b.CreateFMul(b.CreateFPExt(a, f64), b.CreateFPExt(m, f64)), *addend = b.CreateFPExt(c, f64);
  Value *sum = b.CreateFAdd(product, addend);
  if (isStep) return b.CreateFPTrunc(sum, a->getType());
  // What the sum lost (Knuth's TwoSum).
  Value *other = b.CreateFSub(sum, product);
  Value *lost = b.CreateFAdd(b.CreateFSub(product, b.CreateFSub(sum, other)), b.CreateFSub(addend, other));
  // An even sum that lost something becomes its odd neighbour on that side. Infinities and NaN have lost NaN, which is not ordered.
  llvm::Type *i64 = convert.shaped(a, b.getInt64Ty());
  auto number = [&](uint64_t n) { return llvm::ConstantInt::get(i64, n); };
  Value *zero = llvm::ConstantFP::get(f64, 0.0), *bits = b.CreateBitCast(sum, i64);
  Value *even = b.CreateICmpEQ(b.CreateAnd(bits, number(1)), number(0));
  Value *outward = b.CreateICmpEQ(b.CreateFCmpOGT(lost, zero), b.CreateICmpSGE(bits, number(0)));
  Value *odd = b.CreateAdd(bits, b.CreateSelect(outward, number(1), llvm::ConstantInt::getSigned(i64, -1)));
  Value *moved = b.CreateSelect(b.CreateAnd(even, b.CreateFCmpONE(lost, zero)), odd, bits);
  return b.CreateFPTrunc(b.CreateBitCast(moved, f64), a->getType());
}

/// Elements one by one; lanes that are off go to and come from a cell that nobody reads. LLVM 22 cannot select code for some
/// gathers of 8 and 16 bits into SVE's registers where their length is fixed.
Value *gathered(llvm::IRBuilder<> &b, llvm::IntrinsicInst &call) {
  const bool isStore = call.getIntrinsicID() == llvm::Intrinsic::masked_scatter;
  Value *pointers = call.getArgOperand(isStore ? 1 : 0), *mask = call.getArgOperand(isStore ? 2 : 1);
  auto *type = llvm::cast<llvm::FixedVectorType>(isStore ? call.getArgOperand(0)->getType() : call.getType());
  llvm::Function *function = call.getFunction();
  llvm::IRBuilder<> entry(&*function->getEntryBlock().getFirstInsertionPt());
  llvm::AllocaInst *cell = entry.CreateAlloca(type->getElementType());
  const llvm::Align align = call.getParamAlign(isStore ? 1 : 0).valueOrOne();
  cell->setAlignment(std::max(cell->getAlign(), align));
  if (!isStore) b.CreateStore(llvm::Constant::getNullValue(type->getElementType()), cell);
  Value *all = isStore ? nullptr : call.getArgOperand(2);
  for (unsigned l = 0; l < type->getNumElements(); ++l) {
    Value *lane = b.getInt32(l), *isOn = b.CreateExtractElement(mask, lane);
    Value *at = b.CreateSelect(isOn, b.CreateExtractElement(pointers, lane), cell);
    if (isStore) {
      b.CreateAlignedStore(b.CreateExtractElement(call.getArgOperand(0), lane), at, align);
      continue;
    }
    Value *loaded = b.CreateAlignedLoad(type->getElementType(), at, align);
    all = b.CreateInsertElement(all, b.CreateSelect(isOn, loaded, b.CreateExtractElement(all, lane)), lane);
  }
  return isStore ? &call : all;
}

/// The instruction's replacement; null: it stays. What gives no value is its own.
Value *writtenOut(llvm::IRBuilder<> &b, llvm::Instruction &i, const Capabilities &caps) {
  auto scalar = [](Value *v) { return v->getType()->getScalarType(); };
  if (auto *call = llvm::dyn_cast<llvm::IntrinsicInst>(&i)) {
    const llvm::Intrinsic::ID id = call->getIntrinsicID();
    if (!caps.narrowGathers && (id == llvm::Intrinsic::masked_gather || id == llvm::Intrinsic::masked_scatter)) {
      llvm::Type *element = scalar(id == llvm::Intrinsic::masked_gather ? call : call->getArgOperand(0));
      return element->getPrimitiveSizeInBits() && element->getPrimitiveSizeInBits() < 32 ? gathered(b, *call) : nullptr;
    }
    const bool fused = call->getIntrinsicID() == llvm::Intrinsic::fma && scalar(call)->isFloatTy();
    return fused && !caps.fusedMultiplyAdd
               ? fusedF32(b, call->getArgOperand(0), call->getArgOperand(1), call->getArgOperand(2), call->hasApproxFunc())
               : nullptr;
  }
  if (caps.halves) return nullptr;
  FloatConverter c(b);
  if (llvm::isa<llvm::FPExtInst>(i) && scalar(i.getOperand(0))->isHalfTy()) {
    Value *wide = c.decodeF16(i.getOperand(0));
    return scalar(&i)->isDoubleTy() ? b.CreateFPExt(wide, i.getType()) : wide;
  }
  if (llvm::isa<llvm::FPTruncInst>(i) && scalar(&i)->isHalfTy()) {
    Value *from = i.getOperand(0);
    return c.encodeF16(scalar(from)->isDoubleTy() ? c.toOddF32(from) : from);
  }
  return nullptr;
}
} // namespace

void withoutInstructions(llvm::Module &module, const Capabilities &caps) {
  if (caps.fusedMultiplyAdd && caps.halves && caps.narrowGathers) return;
  for (llvm::Function &function : module)
    for (llvm::Instruction &i : llvm::make_early_inc_range(llvm::instructions(function))) {
      llvm::IRBuilder<> b(&i);
      Value *instead = writtenOut(b, i, caps);
      if (!instead) continue;
      if (instead != &i) i.replaceAllUsesWith(instead);
      i.eraseFromParent();
    }
}

} // namespace neso::cpu
