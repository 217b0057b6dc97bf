// tt.dot of few rows with small numbers (weights of four bits), in fixed point: A's rows as digits of eight bits, each of which multiplies four
// numbers in one lane of 32 bits.
//
// A row x of f32 becomes whole numbers X = x / s, with s a power of two for which the largest |X| is in [2^22 * 127 / 128, 2^23 * 127 / 128], and
// X three digits, X = 65536 h + 256 m + l, each in [-128, 127]. A column of numbers q in [0, 15] times these is three sums of whole numbers, none of
// which is rounded; they are put together in f32 at the end:
//
//     sum of x q  =  s * (65536 * sum of h q + (256 * sum of m q + sum of l q))
//
// Error: X is x / s rounded by half at most, and s <= 2^-22 * 128 / 127 * max |x|, so each product is off by less than 2^-22.9 * max |x| * q; three
// roundings follow. Each of the K sums of multiply-adds in f32 is off by 2^-24 of what has been summed up. So both are as good where x is even, and
// where one x is far larger than others and its q is not zero. (Those q's are unsigned: what a zero point takes away has been in the sum before.)
// Elements of bf16 down to 2^-14 of the largest, and of f16 down to 2^-11, are exact.
//
// Rows with an infinity or a NaN, and those whose largest element is below 2^-104, for which there is no such s, go through the general product.
//
// What is multiplied: four k at a time of as many columns as a vector has lanes of 32 bits, four neighbours along k to a lane. The right operand's
// expression gives them as bytes; it is asked for columns i and i + N / 2 together, which lie in the same bytes (lower/tiling/weights.cpp; tt.right_in_fours
// says so). With VNNI a lane's four products are added to 32 bits at once; else pairs are added to 16 bits, which hold eight of them
// (8 * 2 * 15 * 128 < 2^15), and those to 32.
#include "backend/cpu/emitter.h"
#include "ir/tile/attributes.h"
#include "ir/tile/tile.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Matchers.h"
#include "llvm/IR/IntrinsicsX86.h"
#include "llvm/Support/MathExtras.h"

namespace neso::cpu {

using llvm::Value;

namespace {
constexpr int kDigits = 3;
/// k whose products pairs of sums of 16 bits hold.
constexpr int64_t kInWords = 32;
/// The largest number that is multiplied so.
constexpr int64_t kMost = 15;
/// Rows of A at most; lower/tiling asks for as many as are worth it at every level.
constexpr int64_t kMostFixedRows = 4;
/// Exponents (with f32's bias) of the largest element for which a scale exists.
constexpr uint32_t kLeastExponent = 23;
/// Added to the largest |x| as bits of f32: from 127/128 of a power of two on, the next exponent.
constexpr uint32_t kRoundUp = 0x20000;
/// How far ahead numbers are fetched into the first cache.
constexpr int64_t kAhead = 4096;
} // namespace

mlir::Value Emitter::smallNumber(mlir::Operation *op) {
  mlir::Operation *widened = op->getOperand(1).getDefiningOp();
  if (!widened || !uses_->isVirtual(widened) || buffers_.count(op->getOperand(1))) return {};
  const OpCode code = codeOf(widened);
  if (code != OpCode::SIToFP && code != OpCode::UIToFP) return {};
  mlir::Value number = widened->getOperand(0);
  mlir::Operation *cut = number.getDefiningOp();
  if (!cut || codeOf(cut) != OpCode::AndI || buffers_.count(number)) return {};
  auto isMost = [](mlir::Value v) {
    mlir::Operation *def = v.getDefiningOp();
    if (def && codeOf(def) == OpCode::Splat) v = def->getOperand(0);
    llvm::APInt bits;
    return mlir::matchPattern(v, mlir::m_ConstantInt(&bits)) && bits.ule(kMost);
  };
  return isMost(cut->getOperand(0)) || isMost(cut->getOperand(1)) ? number : mlir::Value();
}

bool Emitter::multipliesFixed(const Product &p) {
  return caps_.byteProducts != ByteProducts::None && p.op->hasAttr(tile::kRightInFoursAttr) && p.lead == 0 && p.M <= kMostFixedRows &&
         p.N % (2 * caps_.f32Lanes) == 0 && p.K % kInWords == 0 && p.computeType.isF32() && !p.gathers && smallNumber(p.op);
}

Value *Emitter::fixedRows(const Product &p, const Fixed &f, const Buffer &table) {
  const unsigned lanes = static_cast<unsigned>(caps_.f32Lanes);
  auto *words = llvm::FixedVectorType::get(b.getInt32Ty(), lanes), *floats = llvm::FixedVectorType::get(b.getFloatTy(), lanes),
       *bytes = llvm::FixedVectorType::get(b.getInt8Ty(), lanes * 4);
  auto number = [&](int64_t n) { return b.getInt64(static_cast<uint64_t>(n)); };
  auto all = [&](Value *x) { return b.CreateVectorSplat(lanes, x); };
  // Four elements' digits change places: four of a kind side by side, the highest first.
  llvm::SmallVector<int, 64> order;
  for (int i = 0; i < static_cast<int>(lanes) * 4; ++i) {
    const int kind = i / 4 % 4, element = i % 4;
    order.push_back(i / 16 * 16 + element * 4 + (kind < kDigits ? kDigits - 1 - kind : kind));
  }
  llvm::AllocaInst *whole = entryAlloca(b.getInt1Ty(), "fixed"), *most = entryAlloca(words, "most");
  b.CreateStore(b.getTrue(), whole);
  forLoop(0, p.M, 1, [&](Value *rv) {
    Value *r = b.CreateZExt(rv, b.getInt64Ty());
    Value *row = b.CreateAlignedLoad(b.getPtrTy(), bytesAfter(table.ptr, b.CreateMul(r, number(8))), llvm::Align(8));
    auto placeOf = [&](Value *start, Value *k) { return bytesAfter(start, b.CreateMul(b.CreateZExt(k, b.getInt64Ty()), number(4))); };
    b.CreateStore(llvm::Constant::getNullValue(words), most);
    forLoop(0, p.K, lanes, [&](Value *k) {
      Value *size = b.CreateAnd(b.CreateAlignedLoad(words, placeOf(row, k), llvm::Align(4)), all(b.getInt32(0x7fffffff)));
      b.CreateStore(b.CreateBinaryIntrinsic(llvm::Intrinsic::umax, b.CreateLoad(words, most), size), most);
    });
    Value *largest = b.CreateIntMaxReduce(b.CreateLoad(words, most), false);
    Value *exponent = b.CreateLShr(b.CreateAdd(largest, b.getInt32(kRoundUp)), 23);
    Value *usual = b.CreateOr(b.CreateICmpEQ(largest, b.getInt32(0)), b.CreateICmpUGE(exponent, b.getInt32(kLeastExponent)));
    usual = b.CreateAnd(usual, b.CreateICmpULT(largest, b.getInt32(0x7f800000)));
    b.CreateStore(b.CreateAnd(b.CreateLoad(b.getInt1Ty(), whole), usual), whole);
    exponent = b.CreateBinaryIntrinsic(llvm::Intrinsic::umax, exponent, b.getInt32(kLeastExponent));
    auto power = [&](Value *biased) { return b.CreateBitCast(b.CreateShl(biased, 23), b.getFloatTy()); };
    Value *scale = power(b.CreateSub(exponent, b.getInt32(22))), *inverse = power(b.CreateSub(b.getInt32(276), exponent));
    b.CreateAlignedStore(scale, bytesAfter(f.scales->ptr, b.CreateMul(r, number(4))), llvm::Align(4));
    Value *digits = bytesAfter(f.digits->ptr, b.CreateMul(r, number(p.K * 4)));
    forLoop(0, p.K, lanes, [&](Value *k) {
      Value *x = b.CreateFMul(b.CreateAlignedLoad(floats, placeOf(row, k), llvm::Align(4)), all(inverse));
      Value *rounded = b.CreateIntrinsic(llvm::Intrinsic::lrint, {words, floats}, {x});
      // Each digit in [-128, 127]: with 128 added to each the bytes are digits without a sign.
      Value *bias = all(b.getInt32(0x808080));
      Value *signs = b.CreateBitCast(b.CreateXor(b.CreateAdd(rounded, bias), bias), bytes);
      b.CreateAlignedStore(b.CreateShuffleVector(signs, order), placeOf(digits, k), llvm::Align(4));
    });
  });
  return b.CreateLoad(b.getInt1Ty(), whole);
}

Value *Emitter::addBytes(Value *sum, Value *numbers, Value *digits) {
  const bool wide = caps_.f32Lanes == 16;
  auto call = [&](llvm::Intrinsic::ID id, llvm::ArrayRef<Value *> args) {
    llvm::Function *f = llvm::Intrinsic::getOrInsertDeclaration(&module_, id);
    llvm::SmallVector<Value *, 3> cast;
    for (size_t i = 0; i < args.size(); ++i) cast.push_back(b.CreateBitCast(args[i], f->getFunctionType()->getParamType(static_cast<unsigned>(i))));
    return b.CreateCall(f, cast);
  };
  if (caps_.byteProducts == ByteProducts::Fours) return call(llvm::Intrinsic::x86_avx512_vpdpbusd_512, {sum, numbers, digits});
  Value *pairs = call(wide ? llvm::Intrinsic::x86_avx512_pmaddubs_w_512 : llvm::Intrinsic::x86_avx2_pmadd_ub_sw, {numbers, digits});
  return sum ? b.CreateAdd(sum, pairs) : pairs;
}

/// Sums of pairs, in 16 bits, added to those in 32.
Value *Emitter::addWords(Value *sum, Value *pairs) {
  const llvm::Intrinsic::ID id = caps_.f32Lanes == 16 ? llvm::Intrinsic::x86_avx512_pmaddw_d_512 : llvm::Intrinsic::x86_avx2_pmadd_wd;
  return b.CreateAdd(sum, b.CreateIntrinsic(id, {}, {pairs, llvm::ConstantInt::get(pairs->getType(), 1)}));
}

/// Fetches a later block's numbers into the first cache while this one's are multiplied: they come from memory once, and asking for all of a block at once
/// would find no room in the list of what is underway. Each turn of kInWords at `k` of the columns from `first` on asks for its share of the lines.
void Emitter::prefetchFours(const Product &p, int64_t first, Value *k) {
  mlir::Operation *load = smallNumber(p.op).getDefiningOp();
  while (load && codeOf(load) != OpCode::Load) load = load->getNumOperands() ? load->getOperand(0).getDefiningOp() : nullptr;
  if (!load) return;
  const Lanes start = eval(load->getOperand(0), {uniformInt(0), uniformInt(0)});
  if (!start.uniform()) return;
  const int64_t block = p.K * p.N / 2, ahead = (kAhead + block - 1) / block * block, turn = kInWords * caps_.f32Lanes;
  Value *at = bytesAfter(start.base, b.CreateMul(b.CreateZExt(k, b.getInt64Ty()), b.getInt64(static_cast<uint64_t>(caps_.f32Lanes))));
  for (int64_t line = 0; line < turn; line += 64) {
    Value *address = bytesAfter(at, b.getInt64(static_cast<uint64_t>(ahead + first / caps_.f32Lanes * (turn * p.K / kInWords) + line)));
    b.CreateIntrinsic(llvm::Intrinsic::prefetch, {address->getType()}, {address, b.getInt32(0), b.getInt32(3), b.getInt32(1)});
  }
}

void Emitter::fixedColumns(const Product &p, const Fixed &f, int64_t first, Value *row, int64_t rows) {
  const int64_t lanes = caps_.f32Lanes;
  const bool fours = caps_.byteProducts == ByteProducts::Fours;
  auto *words = llvm::FixedVectorType::get(b.getInt32Ty(), static_cast<unsigned>(lanes)),
       *floats = llvm::FixedVectorType::get(b.getFloatTy(), static_cast<unsigned>(lanes)),
       *bytes = llvm::FixedVectorType::get(b.getInt8Ty(), static_cast<unsigned>(lanes) * 4);
  auto number = [&](int64_t n) { return b.getInt64(static_cast<uint64_t>(n)); };
  mlir::Value small = smallNumber(p.op);
  LaneOffsets alongN;
  for (int64_t l = 0; l < lanes * 4; ++l) alongN.push_back(l / 4);
  // Four k from k + u on; all of a turn count from one base.
  auto numbers = [&](Lanes k, int64_t u, int64_t half) {
    LaneOffsets alongK;
    for (int64_t l = 0; l < lanes * 4; ++l) alongK.push_back(u + l % 4);
    Lanes column = uniformInt(half * p.N / 2 + first);
    k.kind = column.kind = Lanes::Kind::Offsets, k.offsets = pool_.intern(alongK), column.offsets = pool_.intern(alongN);
    return b.CreateTrunc(vec(eval(small, {k, column})), bytes);
  };
  Value *digits = bytesAfter(f.digits->ptr, b.CreateMul(row, number(p.K * 4)));
  auto digitsOf = [&](int64_t r, Value *k, int64_t u, int digit) {
    Value *at = bytesAfter(bytesAfter(digits, b.CreateMul(k, number(4))), number(r * p.K * 4 + u * 4 + digit * 4));
    Value *four = b.CreateAlignedLoad(b.getInt32Ty(), at, llvm::Align(4));
    return b.CreateBitCast(b.CreateVectorSplat(static_cast<unsigned>(lanes), four), bytes);
  };
  Registers sums;
  for (int64_t i = 0; i < rows * 2 * kDigits; ++i) {
    sums.push_back(entryAlloca(words, "digits"));
    b.CreateStore(llvm::Constant::getNullValue(words), sums.back());
  }
  forLoop(0, p.K, kInWords, [&](Value *kv) {
    Lanes k = fromValue(kv, currentLevel());
    k.align = static_cast<uint8_t>(llvm::Log2_64(kInWords));
    Value *kAt = b.CreateZExt(kv, b.getInt64Ty());
    prefetchFours(p, first, kv);
    llvm::SmallVector<Value *, 24> pairs(sums.size());
    if (fours)
      for (size_t i = 0; i < sums.size(); ++i) pairs[i] = b.CreateLoad(words, sums[i]);
    for (int64_t u = 0; u < kInWords; u += 4) {
      Value *const halves[] = {numbers(k, u, 0), numbers(k, u, 1)};
      for (int64_t r = 0; r < rows; ++r)
        for (int digit = 0; digit < kDigits; ++digit) {
          Value *x = digitsOf(r, kAt, u, digit);
          for (int half = 0; half < 2; ++half) {
            Value *&sum = pairs[static_cast<size_t>((r * 2 + half) * kDigits + digit)];
            sum = addBytes(sum, halves[half], x);
          }
        }
    }
    for (size_t i = 0; i < sums.size(); ++i)
      b.CreateStore(fours ? pairs[i] : addWords(b.CreateLoad(words, sums[i]), pairs[i]), sums[i]);
  });
  for (int64_t r = 0; r < rows; ++r) {
    Value *scale = b.CreateAlignedLoad(b.getFloatTy(), bytesAfter(f.scales->ptr, b.CreateMul(b.CreateAdd(row, number(r)), number(4))), llvm::Align(4));
    for (int64_t half = 0; half < 2; ++half) {
      Value *total = nullptr;
      for (int digit = kDigits - 1; digit >= 0; --digit) {
        Value *sum = b.CreateSIToFP(b.CreateLoad(words, sums[static_cast<size_t>((r * 2 + half) * kDigits + digit)]), floats);
        Value *unit = b.CreateFMul(scale, llvm::ConstantFP::get(b.getFloatTy(), static_cast<double>(int64_t{1} << 8 * (kDigits - 1 - digit))));
        unit = b.CreateVectorSplat(static_cast<unsigned>(lanes), unit);
        total = total ? b.CreateIntrinsic(llvm::Intrinsic::fma, {floats}, {sum, unit, total}) : b.CreateFMul(sum, unit);
      }
      Value *at = bytesAfter(bytesAfter(p.acc->ptr, b.CreateMul(row, number(p.N * 4))), number((r * p.N + half * p.N / 2 + first) * 4));
      if (!p.zero) total = b.CreateFAdd(b.CreateAlignedLoad(floats, at, llvm::Align(4)), total);
      b.CreateAlignedStore(total, at, llvm::Align(4));
    }
  }
}

void Emitter::multiplyFixed(const Product &p, const Fixed &f) {
  const int64_t together = caps_.byteProducts == ByteProducts::Fours ? p.M : 1;
  sink([&] {
    width_ = caps_.f32Lanes * 4;
    for (int64_t first = 0; first < p.N / 2; first += caps_.f32Lanes)
      forLoop(0, p.M, together, [&](Value *row) { fixedColumns(p, f, first, b.CreateZExt(row, b.getInt64Ty()), together); });
  });
}

} // namespace neso::cpu
