// Short builders for the ops that generated kernels use, so that lowering code reads as what it computes. Nothing here
// decides anything.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "mlir/IR/Builders.h"

namespace neso::tile {

enum class AtomicKind { Add, FAdd, Min, Max, UMin, UMax };
/// How a product takes f32 operands.
enum class F32Products {
#define NESO_F32_PRODUCTS(name, word, precision) name,
#include "ir/tile/f32_products.def"
};

mlir::Value programId(mlir::OpBuilder &b, mlir::Location loc, int axis); // i32
mlir::Value makeRange(mlir::OpBuilder &b, mlir::Location loc, int64_t start, int64_t end);
mlir::Value splat(mlir::OpBuilder &b, mlir::Location loc, mlir::Value scalar, llvm::ArrayRef<int64_t> shape);
mlir::Value expandDims(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x, int axis);
mlir::Value broadcast(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x, llvm::ArrayRef<int64_t> shape);
mlir::Value trans(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x); // of a matrix
mlir::Value addptr(mlir::OpBuilder &b, mlir::Location loc, mlir::Value ptr, mlir::Value offset);
/// mask and other may be null; other needs mask. once: nobody will read it again, so caches need not keep it.
mlir::Value load(mlir::OpBuilder &b, mlir::Location loc, mlir::Value ptr, mlir::Value mask, mlir::Value other,
                 bool once = false);
void store(mlir::OpBuilder &b, mlir::Location loc, mlir::Value ptr, mlir::Value value, mlir::Value mask);
/// Relaxed, device scope; what was there before, 0 where masked off. inTurn: no other program runs meanwhile, and the elements update in their order.
mlir::Value atomicRmw(mlir::OpBuilder &b, mlir::Location loc, AtomicKind kind, mlir::Value ptr, mlir::Value value,
                      mlir::Value mask, bool inTurn = false);
mlir::Value bitcast(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x, mlir::Type to);
mlir::Value fpToFp(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x, mlir::Type to); // rounds to nearest even
mlir::Value mulhiui(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x, mlir::Value y);
mlir::Value externElementwise(mlir::OpBuilder &b, mlir::Location loc, const std::string &symbol,
                              llvm::ArrayRef<mlir::Value> args, mlir::Type result);
void assertOp(mlir::OpBuilder &b, mlir::Location loc, mlir::Value condition, const std::string &message);
/// acc + x * y for x [M, K], y [K, N].
mlir::Value dot(mlir::OpBuilder &b, mlir::Location loc, mlir::Value x, mlir::Value y, mlir::Value acc,
                F32Products f32 = F32Products::Ieee);
/// combine gets the left scalars, then the right ones, and gives as many as there are operands.
using Combine = std::function<llvm::SmallVector<mlir::Value>(mlir::ValueRange)>;
llvm::SmallVector<mlir::Value> reduce(mlir::OpBuilder &b, mlir::Location loc, llvm::ArrayRef<mlir::Value> operands,
                                      int axis, const Combine &combine);
llvm::SmallVector<mlir::Value> scan(mlir::OpBuilder &b, mlir::Location loc, llvm::ArrayRef<mlir::Value> operands,
                                    int axis, bool reverse, const Combine &combine);

} // namespace neso::tile
