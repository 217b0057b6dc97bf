// The tile IR: MLIR dialect `tt`, whose text is Triton's TTIR (3.5 to 3.9), with arith, math, scf, cf and ub beside it.
//
// A module holds functions; a public tt.func is a kernel, executed once for each program of a launch grid. Its values are scalars,
// tensors of static shape, pointers and tensors of pointers. Example: y[i] = x[i] + 1 for i < n, 128 elements a program:
//
//     tt.func public @inc(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>, %n: i32) {
//       %one = arith.constant dense<1.0> : tensor<128xf32>
//       %size = arith.constant 128 : i32
//       %pid = tt.get_program_id x : i32
//       %base = arith.muli %pid, %size : i32
//       %range = tt.make_range {end = 128 : i32, start = 0 : i32} : tensor<128xi32>
//       ...
//       %v = tt.load %xs, %mask : tensor<128x!tt.ptr<f32>>
//
// Every op is described in TileOps.td and TileMemoryOps.td. Names of C++ classes: tt::LoadOp, tt::AddPtrOp, tt::ReduceOp …;
// types tt::PointerType and tt::TensorDescType. To build IR: `tt::SplatOp::create(builder, loc, type, value)`.
//
// Contexts are single-threaded: one context a compilation, never shared between threads.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/diagnostics.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/UB/IR/UBOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "ir/tile/TileDialect.h.inc"
#include "ir/tile/TileEnums.h.inc"
#include "ir/tile/TileGpuDialect.h.inc"
#define GET_ATTRDEF_CLASSES
#include "ir/tile/TileAttrs.h.inc"
#define GET_TYPEDEF_CLASSES
#include "ir/tile/TileTypes.h.inc"
#define GET_TYPEDEF_CLASSES
#include "ir/tile/TileGpuTypes.h.inc"

namespace neso::tt {

/// The memory that pointers point into, as a resource of side effects.
struct GlobalMemory : mlir::SideEffects::Resource::Base<GlobalMemory> {
  mlir::StringRef getName() final { return "global memory"; }
};

/// What a load from `ptr` gives: T for !tt.ptr<T>, tensor<…xT> for tensor<…x!tt.ptr<T>>, the block of a block pointer.
mlir::Type pointeeOf(mlir::Type ptr);
/// The pointer to an element of the block that the block pointer `type` points to.
mlir::Type elementPointer(mlir::Type type);
/// i1, or the tensor of i1 with the shape of `type`.
mlir::Type boolLike(mlir::Type type);
/// `type` with another element type (the type itself, if it is no tensor).
mlir::Type withElement(mlir::Type type, mlir::Type element);

} // namespace neso::tt

namespace neso::ttg {

/// The memory that the threads of a program share, as a resource of side effects.
struct SharedMemory : mlir::SideEffects::Resource::Base<SharedMemory> {
  mlir::StringRef getName() final { return "shared memory"; }
};

} // namespace neso::ttg

#define GET_OP_CLASSES
#include "ir/tile/TileOps.h.inc"
#define GET_OP_CLASSES
#include "ir/tile/TileGpuOps.h.inc"

namespace neso {

/// Makes tt, ttg, arith, math, scf, cf, ub, llvm (for llvm.intr.assume) and builtin known, and the inliner's
/// interfaces.
void registerTile(mlir::DialectRegistry &registry);

/// A single-threaded context with registerTile's dialects, which loads the tile dialects at once. It never prints to
/// stderr: diagnostics without a handler are dropped, so callers use DiagnosticCapture around what may fail.
std::unique_ptr<mlir::MLIRContext> makeTileContext();

/// Turns an MLIR location into ours: the first file, line and column inside it, the name of a named location as
/// context.
SourceLoc sourceLoc(mlir::Location loc);

/// Collects MLIR's diagnostics of a context while it lives, so that none reaches stderr. Not thread-safe.
class DiagnosticCapture {
public:
  explicit DiagnosticCapture(mlir::MLIRContext *ctx);
  ~DiagnosticCapture();
  DiagnosticCapture(const DiagnosticCapture &) = delete;
  bool hasErrors() const { return !errors_.empty(); }
  /// The errors so far as diagnostics of `kind`, whose one argument is MLIR's message. Where none was given, one with
  /// `fallback`.
  Error take(Diag kind, std::string fallback);

private:
  struct Item {
    SourceLoc loc;
    std::string message;
  };
  mlir::MLIRContext *ctx_;
  uint64_t handler_;
  std::vector<Item> errors_;
};

/// Reads TTIR as Triton 3.5 to 3.9 prints it. `file` names the text in diagnostics.
/// Errors: TileSyntax (E0401) with line and column, TileInvalid (E0402) for an op that breaks its rules, TileUnknownOp
/// (E0403).
Result<mlir::OwningOpRef<mlir::ModuleOp>> parseTile(std::string_view text, std::string_view file,
                                                    mlir::MLIRContext *ctx);

struct TilePrintOptions {
  bool locations = false; // print loc(…) and its aliases, as Triton does
  bool generic = false;   // the generic form of every op
};
/// The module as text of Triton's newest spelling (3.9).
std::string printTile(mlir::ModuleOp module, const TilePrintOptions &options = {});

/// Checks every rule of every op. Errors: TileInvalid, TileUnknownOp.
Status verifyTile(mlir::ModuleOp module);

} // namespace neso
