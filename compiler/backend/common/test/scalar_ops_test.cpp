// Integer operations of constants fold to constants, so that what an operation means can be read off without a machine:
// against arithmetic in 64 bits, for all pairs of edge values, in scalars and in vectors of equal lanes.
#include <gtest/gtest.h>

#include "backend/common/scalar_ops.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"

using namespace neso;

namespace {
constexpr int kBits = 8;
// i8 as a signed and an unsigned number.
int64_t s(int64_t v) { return static_cast<int8_t>(v); }
int64_t u(int64_t v) { return static_cast<uint8_t>(v); }
int64_t floorDiv(int64_t x, int64_t y) { return x / y - (x % y != 0 && (x < 0) != (y < 0)); }

// A zero divisor counts as one; where it does, rounding up or down says nothing worth keeping.
int64_t expected(OpCode code, int64_t x, int64_t y) {
  const int64_t sd = s(y) == 0 ? 1 : s(y), ud = u(y) == 0 ? 1 : u(y);
  const bool over = u(y) >= kBits;
  switch (code) {
  case OpCode::AddI: return x + y;
  case OpCode::SubI: return x - y;
  case OpCode::MulI: return x * y;
  case OpCode::AndI: return x & y;
  case OpCode::OrI: return x | y;
  case OpCode::XorI: return x ^ y;
  case OpCode::DivSI: return s(x) / sd;
  case OpCode::RemSI: return s(x) % sd;
  case OpCode::DivUI: return u(x) / ud;
  case OpCode::RemUI: return u(x) % ud;
  case OpCode::FloorDivSI: return floorDiv(s(x), sd);
  case OpCode::CeilDivSI: return -floorDiv(-s(x), sd);
  case OpCode::CeilDivUI: return (u(x) + ud - 1) / ud;
  case OpCode::ShlI: return over ? 0 : x << u(y);
  case OpCode::ShrUI: return over ? 0 : u(x) >> u(y);
  case OpCode::ShrSI: return s(x) >> (over ? kBits - 1 : u(y));
  case OpCode::MulhiUI: return u(x) * u(y) >> kBits;
  default: ADD_FAILURE() << "no meaning"; return 0;
  }
}
} // namespace

TEST(ScalarOps, IntegersMeanWhatTheyMeanForAllOperands) {
  llvm::LLVMContext context;
  llvm::Module module("m", context);
  auto *function = llvm::Function::Create(llvm::FunctionType::get(llvm::Type::getVoidTy(context), false),
                                          llvm::GlobalValue::ExternalLinkage, "f", module);
  llvm::IRBuilder<> b(llvm::BasicBlock::Create(context, "", function));
  llvm::Type *i8 = b.getInt8Ty();
  const OpCode codes[] = {OpCode::AddI,  OpCode::SubI,  OpCode::MulI,       OpCode::AndI,      OpCode::OrI,
                          OpCode::XorI,  OpCode::DivSI, OpCode::RemSI,      OpCode::DivUI,     OpCode::RemUI,
                          OpCode::ShlI,  OpCode::ShrUI, OpCode::FloorDivSI, OpCode::CeilDivSI, OpCode::CeilDivUI,
                          OpCode::ShrSI, OpCode::MulhiUI};
  const int64_t edges[] = {0, 1, 2, 3, 5, 7, 8, 9, 63, 64, 100, 126, 127, 128, 129, 200, 251, 254, 255};
  for (const int lanes : {1, 4})
    for (OpCode code : codes)
      for (int64_t x : edges)
        for (int64_t y : edges) {
          const bool rounds = code == OpCode::FloorDivSI || code == OpCode::CeilDivSI || code == OpCode::CeilDivUI;
          if (rounds && y == 0) continue;
          auto constant = [&](int64_t v) -> llvm::Value * {
            auto *one = llvm::ConstantInt::get(i8, static_cast<uint64_t>(v));
            if (lanes == 1) return one;
            return llvm::ConstantVector::getSplat(llvm::ElementCount::getFixed(static_cast<unsigned>(lanes)), one);
          };
          llvm::Value *vx = constant(x), *vy = constant(y);
          llvm::Value *r = emitIntegerOp(b, nullptr, code, {vx, vy}, vx->getType(),
                                         [&](OpCode kind, llvm::Value *n, llvm::Value *d) {
                                           return divideScalars(b, kind, n, d);
                                         });
          auto *folded = llvm::dyn_cast_or_null<llvm::Constant>(r);
          ASSERT_NE(folded, nullptr) << static_cast<int>(code) << " of " << x << " and " << y;
          if (lanes > 1) folded = folded->getSplatValue();
          auto *number = llvm::dyn_cast_or_null<llvm::ConstantInt>(folded);
          ASSERT_NE(number, nullptr) << static_cast<int>(code) << " of " << x << " and " << y << " is not a number";
          EXPECT_EQ(number->getSExtValue(), s(expected(code, x, y)))
              << static_cast<int>(code) << " of " << x << " and " << y;
        }
}

TEST(ScalarOps, RowsNameElementaryFunctions) {
  EXPECT_EQ(functionOf(OpCode::Exp), MathFn::Exp);
  EXPECT_EQ(functionOf(OpCode::RemF), MathFn::Fmod);
  EXPECT_EQ(functionOf(OpCode::AddF), std::nullopt);
}
