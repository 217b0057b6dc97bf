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
//
// Or one thread has the machine copy whole boxes of a tensor that a descriptor names, and barriers in shared memory say what has arrived and
// what may be overwritten. A barrier of a slot goes through phases: each ends when so many have arrived as it was made for, and when all
// bytes that were announced for it have come. await {parity} passes when the phase of that parity has ended: a fresh barrier is in phase 0,
// so parity 1 passes at once.
//
//     %full = ttg.barriers {arrivals = 1 : i32} : !ttg.barriers<3>
//     %empty = ttg.barriers {arrivals = 8 : i32} : !ttg.barriers<3>              // a warp each
//     ttg.barrier local
//     ttg.by_one_thread %more {
//       ttg.await %empty[%slot], %free : !ttg.barriers<3>
//       ttg.expect %full[%slot] {bytes = 16384 : i32} : !ttg.barriers<3>
//       ttg.bulk_copy %desc[%i, %j] -> %ring[%slot], %full[%slot] : !tt.tensordesc<128x64xbf16> -> !ttg.ring<3x128x64xbf16>, !ttg.barriers<3>
//     }
//     ttg.await %full[%slot], %parity : !ttg.barriers<3>
//     ttg.arrive %empty[%slot] : !ttg.barriers<3>
//     ttg.barrier local
//     ttg.end_barriers %full : !ttg.barriers<3>
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

// !ttg.barriers<3>: one a slot.
def TileGpu_Barriers : TypeDef<TileGpu_Dialect, "Barriers"> {
  let mnemonic = "barriers";
  let parameters = (ins "int64_t":$slots);
  let assemblyFormat = "`<` $slots `>`";
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
// All threads see them behind the next wait of the block (ttg.barrier). arrivals: that end a phase.
def TileGpu_BarriersOp : Op<TileGpu_Dialect, "barriers", [MemoryEffects<[MemAlloc<TileGpu_SharedMemory>, MemWrite<TileGpu_SharedMemory>]>]> {
  let summary = "Barriers in shared memory, in phase 0";
  let arguments = (ins I32Attr:$arrivals);
  let results = (outs TileGpu_Barriers:$barriers);
  let assemblyFormat = "attr-dict `:` type($barriers)";
  let hasVerifier = 1;
}
def TileGpu_EndBarriersOp : Op<TileGpu_Dialect, "end_barriers", [MemoryEffects<[MemFree<TileGpu_SharedMemory>]>]> {
  let summary = "The end of barriers, behind a wait of the block; no copy is under way";
  let arguments = (ins TileGpu_Barriers:$barriers);
  let assemblyFormat = "$barriers attr-dict `:` type($barriers)";
}
// One thread of the block carries out the region where the condition holds; the others pass by.
def TileGpu_ByOneThreadOp : Op<TileGpu_Dialect, "by_one_thread", [SingleBlock, NoTerminator, RecursiveMemoryEffects]> {
  let summary = "What one thread does for the block";
  let arguments = (ins I1:$condition);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$condition $body attr-dict";
  let hasVerifier = 1;
}
// Arrives, and announces bytes that end the phase when they have come.
def TileGpu_ExpectOp : Op<TileGpu_Dialect, "expect", [TileGpu_Order]> {
  let summary = "Announces the bytes of copies to a barrier";
  let arguments = (ins TileGpu_Barriers:$barriers, I32:$slot, I32Attr:$bytes);
  let assemblyFormat = "$barriers `[` $slot `]` attr-dict `:` type($barriers)";
  let hasVerifier = 1;
}
// The box at these indices; elements outside of the tensor are zero. The descriptor's axes are the tile's, the one with neighbours last, and in
// front of them those along which a box has one element.
def TileGpu_BulkCopyOp : Op<TileGpu_Dialect, "bulk_copy", [MemoryEffects<[MemRead<TileGpu_GlobalMemory>, MemRead<TileGpu_SharedMemory>, MemWrite<TileGpu_SharedMemory>]>]> {
  let summary = "Begins to copy a box of a tensor into a slot; a barrier counts its bytes";
  let arguments = (ins Tile_TensorDesc:$desc, Variadic<I32>:$indices, TileGpu_Ring:$ring, I32:$slot, TileGpu_Barriers:$barriers, I32:$barrier);
  let assemblyFormat = "$desc `[` $indices `]` `->` $ring `[` $slot `]` `,` $barriers `[` $barrier `]` attr-dict `:` type($desc) `->` type($ring) `,` type($barriers)";
  let hasVerifier = 1;
}
def TileGpu_AwaitOp : Op<TileGpu_Dialect, "await", [TileGpu_Order]> {
  let summary = "Waits until a barrier's phase of this parity has ended";
  let arguments = (ins TileGpu_Barriers:$barriers, I32:$slot, I32:$parity);
  let assemblyFormat = "$barriers `[` $slot `]` `,` $parity attr-dict `:` type($barriers)";
}
// Each warp once, where the condition (absent: true) holds.
def TileGpu_ArriveOp : Op<TileGpu_Dialect, "arrive", [TileGpu_Order]> {
  let summary = "Each warp says that it has come here";
  let arguments = (ins TileGpu_Barriers:$barriers, I32:$slot, Optional<I1>:$condition);
  let assemblyFormat = "$barriers `[` $slot `]` (`if` $condition^)? attr-dict `:` type($barriers)";
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
