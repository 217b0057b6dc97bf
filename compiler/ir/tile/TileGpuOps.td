// The op of Triton's dialect `ttg` that appears in TTIR.
#ifndef NESO_TILE_GPU_OPS
#define NESO_TILE_GPU_OPS
include "ir/tile/TileDialect.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def TileGpu_GlobalMemory : Resource<"::neso::tt::GlobalMemory">;

// ttg.barrier local|global_read: the threads of one program wait for one another; which memory it orders is kept as text.
def TileGpu_BarrierOp : Op<TileGpu_Dialect, "barrier", [MemoryEffects<[MemRead<TileGpu_GlobalMemory>, MemWrite<TileGpu_GlobalMemory>]>]> {
  let summary = "Barrier of the threads of a program";
  let arguments = (ins StrAttr:$addrSpace);
  let hasCustomAssemblyFormat = 1;
}
#endif
