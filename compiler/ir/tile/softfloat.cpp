#include "ir/tile/softfloat.h"

#include <bit>
#include <cmath>

#include "llvm/ADT/APFloat.h"

using namespace mlir;

namespace neso::tile {

double roundTo(FloatType type, double value, bool towardsZero) {
  if (type.isF64()) return value;
  if (type.isF32() && !towardsZero) return static_cast<float>(value);
  if (std::isnan(value)) return value;
  bool lost;
  llvm::APFloat v(value);
  v.convert(type.getFloatSemantics(), towardsZero ? llvm::APFloat::rmTowardZero : llvm::APFloat::rmNearestTiesToEven,
            &lost);
  v.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &lost);
  return v.convertToDouble();
}

double largest(FloatType type) {
  llvm::APFloat v = llvm::APFloat::getLargest(type.getFloatSemantics());
  bool lost;
  v.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &lost);
  return v.convertToDouble();
}

double saturateTo(FloatType type, double value, bool towardsZero) {
  if (type.getWidth() > 8 || std::isnan(value)) return roundTo(type, value, towardsZero);
  double top = largest(type);
  if (value > top) return top;
  if (value < -top) return -top;
  return roundTo(type, value, towardsZero);
}

uint64_t encode(FloatType type, double value) {
  if (type.isF64()) return std::bit_cast<uint64_t>(value);
  if (type.isF32()) return std::bit_cast<uint32_t>(static_cast<float>(value));
  bool lost;
  llvm::APFloat v(value);
  v.convert(type.getFloatSemantics(), llvm::APFloat::rmNearestTiesToEven, &lost);
  return v.bitcastToAPInt().getZExtValue();
}

double decode(FloatType type, uint64_t bits) {
  if (type.isF64()) return std::bit_cast<double>(bits);
  if (type.isF32()) return std::bit_cast<float>(static_cast<uint32_t>(bits));
  bool lost;
  llvm::APFloat v(type.getFloatSemantics(), llvm::APInt(type.getWidth(), bits));
  v.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &lost);
  return v.convertToDouble();
}

double cutToTf32(double value) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(static_cast<float>(value)) & 0xFFFFE000u);
}

} // namespace neso::tile
