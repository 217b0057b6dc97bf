#include "backend/nvidia/test/simulator_values.h"

#include <cmath>

namespace neso::nvidia::test {

Bits bitcast(const Bits &from, llvm::Type *source, llvm::Type *target) {
  unsigned in = widthOf(source), out = widthOf(target);
  Bits result(countOf(target), 0);
  for (size_t bit = 0; bit < from.size() * in; ++bit)
    if (from[bit / in] >> (bit % in) & 1) result[bit / out] |= uint64_t(1) << (bit % out);
  return result;
}
Bits castOf(llvm::CastInst &cast, const Bits &from, const Fail &fail) {
  llvm::Type *source = cast.getSrcTy(), *target = cast.getDestTy();
  Bits result;
  for (uint64_t x : from) {
    switch (cast.getOpcode()) {
    case llvm::Instruction::ZExt:
    case llvm::Instruction::Trunc:
    case llvm::Instruction::IntToPtr:
    case llvm::Instruction::PtrToInt: result.push_back(x & maskOf(widthOf(target))); break;
    case llvm::Instruction::SExt:
      result.push_back(uint64_t(signedOf(x, widthOf(source))) & maskOf(widthOf(target)));
      break;
    case llvm::Instruction::FPExt:
    case llvm::Instruction::FPTrunc: result.push_back(fromDouble(toDouble(x, source), target)); break;
    case llvm::Instruction::AddrSpaceCast: result.push_back(x); break;
    default: fail("unknown cast"); result.push_back(0);
    }
  }
  return result;
}
uint64_t compareOf(llvm::CmpInst &op, uint64_t x, uint64_t y, const Fail &fail) {
  llvm::Type *type = op.getOperand(0)->getType();
  unsigned width = widthOf(type);
  int64_t sx = signedOf(x, width), sy = signedOf(y, width);
  double fx = 0, fy = 0;
  if (type->isFloatingPointTy()) fx = toDouble(x, type), fy = toDouble(y, type);
  switch (op.getPredicate()) {
  case llvm::CmpInst::ICMP_EQ: return x == y;
  case llvm::CmpInst::ICMP_NE: return x != y;
  case llvm::CmpInst::ICMP_ULT: return x < y;
  case llvm::CmpInst::ICMP_ULE: return x <= y;
  case llvm::CmpInst::ICMP_UGT: return x > y;
  case llvm::CmpInst::ICMP_UGE: return x >= y;
  case llvm::CmpInst::ICMP_SLT: return sx < sy;
  case llvm::CmpInst::ICMP_SLE: return sx <= sy;
  case llvm::CmpInst::ICMP_SGT: return sx > sy;
  case llvm::CmpInst::ICMP_SGE: return sx >= sy;
  case llvm::CmpInst::FCMP_UNO: return std::isnan(fx) || std::isnan(fy);
  case llvm::CmpInst::FCMP_OLT: return fx < fy;
  case llvm::CmpInst::FCMP_OGT: return fx > fy;
  case llvm::CmpInst::FCMP_OEQ: return fx == fy;
  default: fail("unknown comparison"); return 0;
  }
}
uint64_t binary(llvm::Instruction &op, uint64_t x, uint64_t y, const Fail &fail) {
  llvm::Type *type = op.getType();
  unsigned width = widthOf(type);
  if (type->isFPOrFPVectorTy()) {
    double a = toDouble(x, type), b = toDouble(y, type);
    switch (op.getOpcode()) {
    case llvm::Instruction::FAdd: return fromDouble(a + b, type);
    case llvm::Instruction::FSub: return fromDouble(a - b, type);
    case llvm::Instruction::FMul: return fromDouble(a * b, type);
    case llvm::Instruction::FDiv: return fromDouble(a / b, type);
    default: fail("unknown float operation"); return 0;
    }
  }
  uint64_t mask = maskOf(width);
  switch (op.getOpcode()) {
  case llvm::Instruction::Add: return (x + y) & mask;
  case llvm::Instruction::Sub: return (x - y) & mask;
  case llvm::Instruction::Mul: return (x * y) & mask;
  case llvm::Instruction::SDiv: return y ? uint64_t(signedOf(x, width) / signedOf(y, width)) & mask : 0;
  case llvm::Instruction::SRem: return y ? uint64_t(signedOf(x, width) % signedOf(y, width)) & mask : 0;
  case llvm::Instruction::UDiv: return y ? x / y : 0;
  case llvm::Instruction::URem: return y ? x % y : 0;
  case llvm::Instruction::And: return x & y;
  case llvm::Instruction::Or: return x | y;
  case llvm::Instruction::Xor: return x ^ y;
  case llvm::Instruction::Shl: return y < width ? (x << y) & mask : 0;
  case llvm::Instruction::LShr: return y < width ? x >> y : 0;
  case llvm::Instruction::AShr: return uint64_t(signedOf(x, width) >> std::min<uint64_t>(y, width - 1)) & mask;
  default: fail(std::string("unknown operation ") + op.getOpcodeName()); return 0;
  }
}

double operandElement(uint64_t bits, const std::string &kind) {
  if (kind == "f64") return std::bit_cast<double>(bits);
  if (kind == "bf16") return double(std::bit_cast<float>(uint32_t(bits) << 16));
  if (kind == "tf32") return double(std::bit_cast<float>(uint32_t(bits) & 0xffffe000u));
  if (kind == "s8") return double(int8_t(bits));
  if (kind == "u8") return double(uint8_t(bits));
  const llvm::fltSemantics &semantics = kind == "f16"    ? llvm::APFloat::IEEEhalf()
                                        : kind == "e4m3" ? llvm::APFloat::Float8E4M3FN()
                                                         : llvm::APFloat::Float8E5M2();
  llvm::APFloat value(semantics, llvm::APInt(llvm::APFloat::getSizeInBits(semantics), bits));
  bool lost;
  value.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &lost);
  return value.convertToDouble();
}

uint64_t placeOf(uint64_t descriptor, bool turned, uint64_t at, uint64_t k, uint64_t bytes) {
  uint64_t begin = (descriptor & 0x3fff) << 4, leading = (descriptor >> 16 & 0x3fff) << 4,
           stride = (descriptor >> 32 & 0x3fff) << 4, mode = descriptor >> 62;
  uint64_t span = mode == 1 ? 128 : mode == 2 ? 64 : 32;
  uint64_t place = turned ? begin + at * bytes / span * leading + at * bytes % span + k / 8 * stride + k % 8 * span
                          : begin + at / 8 * stride + at % 8 * span + k * bytes;
  return permuted(place, span);
}

} // namespace neso::nvidia::test
