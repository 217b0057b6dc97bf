// The dialect `ttg`: the barrier that appears in TTIR, rings of tiles in shared memory for software pipelines, and what a block of
// threads does together on a tile.
//
// A ring has a number of slots of one tile each. Copies into a slot are asynchronous: those issued since the last async_commit form a
// group, and async_wait {pending = n} waits until all groups but the last n have arrived, for the copies of all threads.
//
//     %ring = ttg.local_alloc {fast = 1 : i32} : !ttg.ring<3x128x64xbf16>
//     ttg.async_copy %ptr, %mask -> %ring[%slot] : tensor<128x64x!tt.ptr<bf16>> -> !ttg.ring<3x128x64xbf16>
//     ttg.async_commit
//     ttg.async_wait {pending = 1 : i32}
//     %tile = ttg.local_load %ring[%slot] : !ttg.ring<3x128x64xbf16> -> tensor<128x64xbf16>
//     %part = ttg.local_load %ring[%slot] {offsets = array<i32: 0, 16>} : !ttg.ring<3x128x64xbf16> -> tensor<128x16xbf16>
//     ttg.local_dealloc %ring : !ttg.ring<3x128x64xbf16>
#ifndef NESO_TILE_GPU_OPS
#define NESO_TILE_GPU_OPS
include "ir/tile/TileDialect.td"
include "ir/tile/TileTypes.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def TileGpu_GlobalMemory : Resource<"::neso::tt::GlobalMemory">;

// ttg.barrier local|global_read: the threads of one program wait for one another; which memory it orders is kept as text.
def TileGpu_BarrierOp : Op<TileGpu_Dialect, "barrier", [MemoryEffects<[MemRead<TileGpu_GlobalMemory>, MemWrite<TileGpu_GlobalMemory>]>]> {
  let summary = "Barrier of the threads of a program";
  let arguments = (ins StrAttr:$addrSpace);
  let hasCustomAssemblyFormat = 1;
}

// !ttg.ring<3x128x64xbf16>: 3 slots of 128 x 64 elements.
def TileGpu_Ring : TypeDef<TileGpu_Dialect, "Ring"> {
  let mnemonic = "ring";
  let parameters = (ins ArrayRefParameter<"int64_t">:$shape, "::mlir::Type":$elementType);
  let hasCustomAssemblyFormat = 1;
  let extraClassDeclaration = [{
    int64_t getSlots() { return getShape().front(); }
    ::mlir::RankedTensorType getTileType() { return ::mlir::RankedTensorType::get(getShape().drop_front(), getElementType()); }
  }];
  let genVerifyDecl = 1;
}

def TileGpu_SharedMemory : Resource<"::neso::ttg::SharedMemory">;
defvar TileGpu_Order = MemoryEffects<[MemRead<TileGpu_SharedMemory>, MemWrite<TileGpu_SharedMemory>]>;

// fast: the dim of a tile whose elements lie side by side.
def TileGpu_LocalAllocOp : Op<TileGpu_Dialect, "local_alloc", [MemoryEffects<[MemAlloc<TileGpu_SharedMemory>]>]> {
  let summary = "A ring of tiles in shared memory";
  let arguments = (ins I32Attr:$fast);
  let results = (outs TileGpu_Ring:$ring);
  let assemblyFormat = "attr-dict `:` type($ring)";
}
def TileGpu_LocalDeallocOp : Op<TileGpu_Dialect, "local_dealloc", [MemoryEffects<[MemFree<TileGpu_SharedMemory>]>]> {
  let summary = "The end of a ring; no copy into it is under way";
  let arguments = (ins TileGpu_Ring:$ring);
  let assemblyFormat = "$ring attr-dict `:` type($ring)";
}
// Elements that the mask leaves out become zero.
def TileGpu_AsyncCopyOp : Op<TileGpu_Dialect, "async_copy", [MemoryEffects<[MemRead<TileGpu_GlobalMemory>, MemWrite<TileGpu_SharedMemory>]>]> {
  let summary = "Begins to copy a tile from global memory into a slot";
  let arguments = (ins RankedTensorOf<[Tile_ScalarPtr]>:$ptr, RankedTensorOf<[I1]>:$mask, TileGpu_Ring:$ring, I32:$slot);
  let assemblyFormat = "$ptr `,` $mask `->` $ring `[` $slot `]` attr-dict `:` type($ptr) `,` type($mask) `->` type($ring)";
  let hasVerifier = 1;
}
def TileGpu_AsyncCommitOp : Op<TileGpu_Dialect, "async_commit", [TileGpu_Order]> {
  let summary = "Closes a group of copies";
  let assemblyFormat = "attr-dict";
}
def TileGpu_AsyncWaitOp : Op<TileGpu_Dialect, "async_wait", [TileGpu_Order]> {
  let summary = "Waits for all but the last groups of copies, of all threads";
  let arguments = (ins I32Attr:$pending);
  let assemblyFormat = "attr-dict";
}
// offsets: where a part begins, one a dim, each a multiple of the part's size there; absent: the result is the whole tile.
def TileGpu_LocalLoadOp : Op<TileGpu_Dialect, "local_load", [MemoryEffects<[MemRead<TileGpu_SharedMemory>]>]> {
  let summary = "The tile in a slot, or a part of it";
  let arguments = (ins TileGpu_Ring:$ring, I32:$slot, OptionalAttr<DenseI32ArrayAttr>:$offsets);
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
  let assemblyFormat = "$ring `[` $slot `]` attr-dict `:` type($ring) `->` type($result)";
}

// bitonic: each row rises first and falls then (equal numbers are all one), so that merging is enough.
//     %key, %place = ttg.sort %k, %p {axis = 1 : i32} : tensor<4x512xi64>, tensor<4x512xi32>
def TileGpu_SortOp : Op<TileGpu_Dialect, "sort", [Pure, DeclareOpInterfaceMethods<InferTypeOpInterface>]> {
  let summary = "Rows along an axis in ascending order of (operand 0, operand 1, ...), each an unsigned number; all operands move together";
  let arguments = (ins Variadic<RankedTensorOf<[AnySignlessInteger]>>:$srcs, I32Attr:$axis, UnitAttr:$bitonic);
  let results = (outs Variadic<RankedTensorOf<[AnySignlessInteger]>>:$sorted);
  let assemblyFormat = "$srcs attr-dict `:` type($srcs)";
  let hasVerifier = 1;
}
#endif
