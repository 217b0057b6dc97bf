#include "backend/common/arg_places.h"

#include "llvm/Support/MathExtras.h"

namespace neso {
namespace {
/// What an argument of a parameter's type takes; an alignment of 8 at least.
struct Extent {
  int32_t bytes, align;
};
Extent extentOf(mlir::Type parameter) {
  if (auto pointer = llvm::dyn_cast<tt::PointerType>(parameter)) return {pointer.isBlock() ? 0 : 8, 8};
  return {parameter.isIntOrIndexOrFloat() ? 8 : 0, 8};
}
} // namespace

std::vector<neso_arg_place> argPlaces(tt::FuncOp function) {
  std::vector<neso_arg_place> places;
  int32_t end = 0;
  for (mlir::Type parameter : function.getFunctionType().getInputs()) {
    const Extent extent = extentOf(parameter);
    const int32_t offset = static_cast<int32_t>(llvm::alignTo(end, extent.align));
    places.push_back({offset, extent.bytes});
    end = offset + extent.bytes;
  }
  return places;
}

} // namespace neso
