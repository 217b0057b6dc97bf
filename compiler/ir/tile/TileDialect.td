// The dialect `tt`: what one program instance of a kernel does. Its text is Triton's TTIR, so files move between the two.
#ifndef NESO_TILE_DIALECT
#define NESO_TILE_DIALECT
include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/BuiltinAttributes.td"

def Tile_Dialect : Dialect {
  let name = "tt";
  let cppNamespace = "::neso::tt";
  let summary = "Tile programs, text-compatible with Triton's TTIR";
  let useDefaultTypePrinterParser = 1;
  let useDefaultAttributePrinterParser = 1;
  let hasConstantMaterializer = 1;
  // Triton's hints on values (tt.divisibility and its like) are discardable attributes of ops and arguments.
  let dependentDialects = ["::neso::ttg::TileGpuDialect",
                           "::mlir::arith::ArithDialect", "::mlir::math::MathDialect", "::mlir::scf::SCFDialect",
                           "::mlir::cf::ControlFlowDialect", "::mlir::ub::UBDialect"];
}

// The barrier is the one op of Triton's GPU dialect that appears in TTIR (tl.debug_barrier). The others are written by the software
// pipeline of the NVIDIA backend.
def TileGpu_Dialect : Dialect {
  let name = "ttg";
  let cppNamespace = "::neso::ttg";
  let summary = "What a program does with the memory that its threads share";
  let useDefaultTypePrinterParser = 1;
}
#endif
