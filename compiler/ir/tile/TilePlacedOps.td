// The dialect `placed`: what the passes of a GPU backend decide about a tile program, written into it.
//
// A tensor whose type has an encoding is placed: its elements are in registers of threads. One without is an expression of scalars and
// ranges (addresses, masks, constants) that has no place: `place` computes it in a layout, element by element where its user wants them.
//
//     %a = placed.place %range : tensor<128xi32> -> tensor<128xi32, #linear>
//     %b = placed.convert_layout %x : tensor<128xf32, #linear> -> tensor<128xf32, #linear1>
//     placed.local_store %tile -> %ring[%slot] : tensor<128x64xbf16, #linear> -> !ttg.ring<1x128x64xbf16>
//
// What is decided about operations of other dialects stands in attributes of them, which this dialect verifies: placed.h lists them.
#ifndef NESO_TILE_PLACED_OPS
#define NESO_TILE_PLACED_OPS
include "ir/tile/TileGpuOps.td"
include "mlir/IR/TensorEncoding.td"

def Placed_Dialect : Dialect {
  let name = "placed";
  let cppNamespace = "::neso::placed";
  let summary = "Where the tensors of a program lie, and how it is carried out";
  let useDefaultAttributePrinterParser = 1;
  let hasOperationAttrVerify = 1;
}

// Which register of which lane of which warp holds which element: the encoding of a placed tensor's type. One basis a bit of the place,
// the image of that bit as an index, dim0 first (ir/layout/gpu.h). The text inside is that of Triton's #ttg.linear:
//
//     #placed.linear<{register = [[0, 1]], lane = [[0, 2], [0, 4], [1, 0], [0, 0], [0, 0]], warp = [[2, 0]], block = []}>
def Placed_Linear : AttrDef<Placed_Dialect, "Linear", [DeclareAttrInterfaceMethods<VerifiableTensorEncoding>]> {
  let mnemonic = "linear";
  let summary = "Which thread holds which element of a tensor";
  let parameters = (ins AttrParameter<"::neso::LinearLayout", "register, lane, warp, block -> dims", "const ::neso::LinearLayout &">:$layout);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

// How a tt.dot is done: element by element, from shared memory.
def Placed_Fma : AttrDef<Placed_Dialect, "Fma"> {
  let mnemonic = "fma";
  let summary = "A product by fused multiply-add";
}
// How a tt.dot is done: mma.sync, the warps of one matrix along M and N.
//     #placed.mma_sync<warps = [2, 2]>
def Placed_MmaSync : AttrDef<Placed_Dialect, "MmaSync"> {
  let mnemonic = "mma_sync";
  let summary = "A product by mma.sync, a warp an instruction";
  let parameters = (ins ArrayRefParameter<"int64_t">:$warps);
  let assemblyFormat = "`<` `warps` `=` `[` $warps `]` `>`";
}

// How a tt.dot is done: wgmma, the groups of four warps along M and N. Both operands are read where they lie in shared memory.
//     #placed.wgmma<groups = [2, 1]>
def Placed_Wgmma : AttrDef<Placed_Dialect, "Wgmma"> {
  let mnemonic = "wgmma";
  let summary = "A product by wgmma, four warps an instruction";
  let parameters = (ins ArrayRefParameter<"int64_t">:$groups);
  let assemblyFormat = "`<` `groups` `=` `[` $groups `]` `>`";
}

// How a tt.dot is done: tcgen05, which one thread begins for the block; the groups of four warps along M and N that take its sums. Both operands are read where
// they lie in shared memory.
//     #placed.tcgen05<groups = [1, 2]>
def Placed_Tcgen05 : AttrDef<Placed_Dialect, "Tcgen05"> {
  let mnemonic = "tcgen05";
  let summary = "A product by tcgen05, whose sums lie in tensor memory";
  let parameters = (ins ArrayRefParameter<"int64_t">:$groups);
  let assemblyFormat = "`<` `groups` `=` `[` $groups `]` `>`";
}

class Placed_LayoutOp<string mnemonic> : Op<Placed_Dialect, mnemonic, [Pure, SameOperandsAndResultShape, SameOperandsAndResultElementType]> {
  let arguments = (ins AnyRankedTensor:$src);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$src attr-dict `:` type($src) `->` type($result)";
  let hasVerifier = 1;
}
def Placed_ConvertLayoutOp : Placed_LayoutOp<"convert_layout"> { let summary = "A placed tensor in another layout"; }
def Placed_PlaceOp : Placed_LayoutOp<"place"> { let summary = "An expression without a place, computed in a layout"; }

// Every element once. What is stored is seen by local_load: the block waits between where it must.
def Placed_LocalStoreOp : Op<Placed_Dialect, "local_store", [MemoryEffects<[MemWrite<TileGpu_SharedMemory>]>]> {
  let summary = "Writes a placed tensor into a slot";
  let arguments = (ins AnyRankedTensor:$src, TileGpu_Ring:$ring, I32:$slot);
  let assemblyFormat = "$src `->` $ring `[` $slot `]` attr-dict `:` type($src) `->` type($ring)";
  let hasVerifier = 1;
}

// What the block's threads, or their copies, have written to shared memory is seen by instructions that read it by another way than loads.
def Placed_FenceAsyncOp : Op<Placed_Dialect, "fence_async", [MemoryEffects<[MemRead<TileGpu_SharedMemory>, MemWrite<TileGpu_SharedMemory>]>]> {
  let summary = "Orders writes to shared memory before what the tensor cores read of it themselves";
  let assemblyFormat = "attr-dict";
}

// Products that were begun and not waited for (placed.open) are complete, but for those of the last `pending` that were begun: what they
// read may be overwritten, behind the next wait of the block. Sums that it takes are complete in what it gives, where their product is; other
// values that it takes are used behind it alone, as those are that overwrite registers which a product still reads.
//     placed.wait_products {pending = 1 : i32}
//     %s:2 = placed.wait_products %sums, %p : tensor<…>, tensor<…> -> tensor<…>, tensor<…> {pending = 1 : i32}
def Placed_WaitProductsOp : Op<Placed_Dialect, "wait_products", [MemoryEffects<[MemRead<TileGpu_SharedMemory>, MemWrite<TileGpu_SharedMemory>]>]> {
  let summary = "Waits for products that are under way";
  let arguments = (ins Variadic<AnyRankedTensor>:$values, I32Attr:$pending);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = "($values^ `:` type($values) `->` type($results))? attr-dict";
  let hasVerifier = 1;
}
#endif
