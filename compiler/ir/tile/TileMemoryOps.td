// Ops of `tt` that touch memory or order it: loads, stores, atomics, descriptors, block pointers, print and assert.
// Included by TileOps.td.

def Tile_GlobalMemory : Resource<"::neso::tt::GlobalMemory">;
def Tile_Reads : MemoryEffects<[MemRead<Tile_GlobalMemory>]>;
def Tile_Writes : MemoryEffects<[MemWrite<Tile_GlobalMemory>]>;
def Tile_ReadsWrites : MemoryEffects<[MemRead<Tile_GlobalMemory>, MemWrite<Tile_GlobalMemory>]>;

// Element i is read if mask[i] (all are without a mask), else it is other[i]; without other such an element is 0 in Neso.
// ptr is an address, a tensor of addresses, or a block pointer, which takes boundaryCheck (axes) and padding in place of mask.
def Tile_LoadOp : Tile_Op<"load", [AttrSizedOperandSegments, DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
    TypesMatchWith<"result matches ptr", "ptr", "result", "pointeeOf($_self)">,
    TypesMatchWith<"mask has the shape of ptr", "ptr", "mask", "boolLike(pointeeOf($_self))", "!getMask() || std::equal_to<>()">,
    TypesMatchWith<"other matches ptr", "ptr", "other", "pointeeOf($_self)", "!getOther() || std::equal_to<>()">]> {
  let summary = "Reads memory";
  let arguments = (ins AnyTypeOf<[Tile_PtrLike, Tile_BlockPtr]>:$ptr, Optional<Tile_BoolLike>:$mask, Optional<Tile_Any>:$other,
                       DefaultValuedAttr<DenseI32ArrayAttr, "::llvm::ArrayRef<int32_t>{}">:$boundaryCheck,
                       OptionalAttr<Tile_PaddingOption>:$padding,
                       DefaultValuedAttr<Tile_CacheModifier, "CacheModifier::NONE">:$cache,
                       DefaultValuedAttr<Tile_EvictionPolicy, "EvictionPolicy::NORMAL">:$evict,
                       DefaultValuedAttr<BoolAttr, "false">:$isVolatile);
  let results = (outs Tile_Any:$result);
  let builders = [OpBuilder<(ins "::mlir::Value":$ptr, CArg<"::mlir::Value", "{}">:$mask, CArg<"::mlir::Value", "{}">:$other,
                                 CArg<"CacheModifier", "CacheModifier::NONE">:$cache,
                                 CArg<"EvictionPolicy", "EvictionPolicy::NORMAL">:$evict, CArg<"bool", "false">:$isVolatile)>];
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let hasCanonicalizeMethod = 1;
}
// Element i is written if mask[i]. Two elements at one address: either may win.
def Tile_StoreOp : Tile_Op<"store", [Tile_Writes,
    TypesMatchWith<"value matches ptr", "ptr", "value", "pointeeOf($_self)">,
    TypesMatchWith<"mask has the shape of ptr", "ptr", "mask", "boolLike(pointeeOf($_self))", "!getMask() || std::equal_to<>()">]> {
  let summary = "Writes memory";
  let arguments = (ins AnyTypeOf<[Tile_PtrLike, Tile_BlockPtr]>:$ptr, Tile_Any:$value, Optional<Tile_BoolLike>:$mask,
                       DefaultValuedAttr<DenseI32ArrayAttr, "::llvm::ArrayRef<int32_t>{}">:$boundaryCheck,
                       DefaultValuedAttr<Tile_CacheModifier, "CacheModifier::NONE">:$cache,
                       DefaultValuedAttr<Tile_EvictionPolicy, "EvictionPolicy::NORMAL">:$evict);
  let builders = [OpBuilder<(ins "::mlir::Value":$ptr, "::mlir::Value":$value, CArg<"::mlir::Value", "{}">:$mask,
                                 CArg<"CacheModifier", "CacheModifier::NONE">:$cache,
                                 CArg<"EvictionPolicy", "EvictionPolicy::NORMAL">:$evict)>];
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let hasCanonicalizeMethod = 1;
}

// ---- atomics ---------------------------------------------------------------------------------------------------------

// old = *ptr; *ptr = op(old, val); gives old. Masked-off elements do nothing (their result is 0).
def Tile_AtomicRMWOp : Tile_Op<"atomic_rmw", [Tile_ReadsWrites, SameOperandsAndResultShape,
    TypesMatchWith<"result matches val", "val", "result", "$_self">]> {
  let summary = "Atomic read-modify-write";
  let arguments = (ins Tile_RMWOp:$atomic_rmw_op, Tile_PtrLike:$ptr, Tile_Any:$val, Optional<Tile_BoolLike>:$mask,
                       Tile_MemSemantic:$sem, Tile_MemSyncScope:$scope);
  let results = (outs Tile_Any:$result);
  let assemblyFormat = [{
    $atomic_rmw_op `,` $sem `,` $scope `,` $ptr `,` $val (`,` $mask^)? attr-dict `:` functional-type(operands, $result)
  }];
  let hasVerifier = 1;
}
// old = *ptr; if (old == cmp) *ptr = val; gives old.
def Tile_AtomicCASOp : Tile_Op<"atomic_cas", [Tile_ReadsWrites, SameOperandsAndResultShape]> {
  let summary = "Atomic compare and swap";
  let arguments = (ins Tile_PtrLike:$ptr, Tile_Any:$cmp, Tile_Any:$val, Tile_MemSemantic:$sem, Tile_MemSyncScope:$scope);
  let results = (outs Tile_Any:$result);
  let assemblyFormat = "$sem `,` $scope `,` $ptr `,` $cmp `,` $val attr-dict `:` functional-type(operands, $result)";
  let hasVerifier = 1;
}
def Tile_AtomicLoadOp : Tile_Op<"atomic_load", [Tile_ReadsWrites, SameOperandsAndResultShape]> {
  let summary = "Atomic read";
  let arguments = (ins Tile_PtrLike:$ptr, Optional<Tile_BoolLike>:$mask, Tile_MemSemantic:$sem, Tile_MemSyncScope:$scope);
  let results = (outs Tile_Any:$result);
  let assemblyFormat = "$sem `,` $scope `,` $ptr (`,` $mask^)? attr-dict `:` functional-type(operands, $result)";
  let hasVerifier = 1;
}
def Tile_AtomicStoreOp : Tile_Op<"atomic_store", [Tile_ReadsWrites,
    TypesMatchWith<"value matches ptr", "ptr", "value", "pointeeOf($_self)">,
    TypesMatchWith<"mask has the shape of ptr", "ptr", "mask", "boolLike(pointeeOf($_self))", "!getMask() || std::equal_to<>()">]> {
  let summary = "Atomic write";
  let arguments = (ins Tile_PtrLike:$ptr, Tile_Any:$value, Optional<Tile_BoolLike>:$mask, Tile_MemSemantic:$sem,
                       Tile_MemSyncScope:$scope);
  let assemblyFormat = "$sem `,` $scope `,` $ptr `,` $value (`,` $mask^)? attr-dict `:` type($ptr)";
}
// Reads until every element equals `expected` (true) or `timeout` nanoseconds have passed (false).
def Tile_AtomicPollOp : Tile_Op<"atomic_poll", [Tile_ReadsWrites]> {
  let summary = "Waits for a value in memory";
  let arguments = (ins Tile_PtrLike:$ptr, Tile_Any:$expected, Optional<I64>:$timeout, Tile_MemSemantic:$sem, Tile_MemSyncScope:$scope);
  let results = (outs I1:$result);
  let assemblyFormat = [{
    $sem `,` $scope `,` $ptr `,` $expected (`timeout` $timeout^)? attr-dict `:` type($ptr) `,` type($expected) `->` type($result)
  }];
  let hasVerifier = 1;
}

// ---- descriptors -----------------------------------------------------------------------------------------------------

// A tensor in memory: base address, shape (i32) and strides (i64), in elements, outermost first; the last stride is 1.
def Tile_MakeTensorDescOp : Tile_Op<"make_tensor_descriptor", [Pure, SameVariadicOperandSize]> {
  let summary = "Describes a tensor in memory";
  let arguments = (ins Tile_ScalarPtr:$base, Variadic<I32>:$shape, Variadic<I64>:$strides,
                       DefaultValuedAttr<Tile_PaddingOption, "PaddingOption::PAD_ZERO">:$padding);
  let results = (outs Tile_TensorDesc:$result);
  let assemblyFormat = "$base `,` `[` $shape `]` `,` `[` $strides `]` attr-dict `:` type($base) `,` type($result)";
  let hasVerifier = 1;
}
// The block whose first element is at `indices`. Elements outside the tensor read as padding and are not written.
def Tile_DescriptorLoadOp : Tile_Op<"descriptor_load", [Tile_Reads]> {
  let summary = "Reads a block";
  let arguments = (ins Tile_TensorDesc:$desc, Variadic<I32>:$indices,
                       DefaultValuedAttr<Tile_CacheModifier, "CacheModifier::NONE">:$cache,
                       DefaultValuedAttr<Tile_EvictionPolicy, "EvictionPolicy::NORMAL">:$evict);
  let results = (outs RankedTensorOf<[Tile_Float, Tile_Int]>:$result);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
}
def Tile_DescriptorStoreOp : Tile_Op<"descriptor_store", [Tile_Writes]> {
  let summary = "Writes a block";
  let arguments = (ins Tile_TensorDesc:$desc, Tile_FpIntTensor:$src, Variadic<I32>:$indices);
  let assemblyFormat = "$desc `[` $indices `]` `,` $src attr-dict `:` qualified(type($desc)) `,` type($src)";
  let hasVerifier = 1;
}
def Tile_DescriptorReduceOp : Tile_Op<"descriptor_reduce", [Tile_ReadsWrites]> {
  let summary = "Combines a block into memory, element by element, atomically";
  let arguments = (ins Tile_DescriptorReduceKind:$kind, Tile_TensorDesc:$desc, Tile_FpIntTensor:$src, Variadic<I32>:$indices);
  let assemblyFormat = "$kind `,` $desc `[` $indices `]` `,` $src attr-dict `:` qualified(type($desc)) `,` type($src)";
  let hasVerifier = 1;
}
// Row i of the result is row x_offsets[i] of the tensor, from column y_offset. The descriptor's block has one row.
def Tile_DescriptorGatherOp : Tile_Op<"descriptor_gather", [Tile_Reads]> {
  let summary = "Reads picked rows";
  let arguments = (ins Tile_TensorDesc:$desc, RankedTensorOf<[I32]>:$x_offsets, I32:$y_offset);
  let results = (outs Tile_FpIntTensor:$result);
  let assemblyFormat = "$desc `[` $x_offsets `,` $y_offset `]` attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}
def Tile_DescriptorScatterOp : Tile_Op<"descriptor_scatter", [Tile_Writes]> {
  let summary = "Writes picked rows";
  let arguments = (ins Tile_TensorDesc:$desc, RankedTensorOf<[I32]>:$x_offsets, I32:$y_offset, Tile_FpIntTensor:$src);
  let assemblyFormat = "$desc `[` $x_offsets `,` $y_offset `]` `,` $src attr-dict `:` type(operands)";
  let hasVerifier = 1;
}

// ---- block pointers (Triton up to 3.6) -------------------------------------------------------------------------------

// shape, strides (i64) and offsets (i32) in elements, outermost first; order lists the axes from fastest to slowest.
def Tile_MakeTensorPtrOp : Tile_Op<"make_tensor_ptr", [Pure, SameVariadicOperandSize,
    TypesMatchWith<"base points to the block's elements", "result", "base", "elementPointer($_self)">]> {
  let summary = "Makes a block pointer";
  let arguments = (ins Tile_ScalarPtr:$base, Variadic<I64>:$shape, Variadic<I64>:$strides, Variadic<I32>:$offsets,
                       DenseI32ArrayAttr:$order);
  let results = (outs Tile_BlockPtr:$result);
  let assemblyFormat = "$base `,` `[` $shape `]` `,` `[` $strides `]` `,` `[` $offsets `]` attr-dict `:` type($result)";
  let hasVerifier = 1;
}
def Tile_AdvanceOp : Tile_Op<"advance", [Pure, TypesMatchWith<"result matches ptr", "result", "ptr", "$_self">]> {
  let summary = "Moves a block pointer by offsets";
  let arguments = (ins Tile_BlockPtr:$ptr, Variadic<I32>:$offsets);
  let results = (outs Tile_BlockPtr:$result);
  let assemblyFormat = "$ptr `,` `[` $offsets `]` attr-dict `:` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

// ---- for the user's eyes, and order ----------------------------------------------------------------------------------

def Tile_PrintOp : Tile_Op<"print", [MemoryEffects<[MemWrite]>, SameVariadicOperandSize]> {
  let summary = "Prints values from the device";
  let arguments = (ins StrAttr:$prefix, BoolAttr:$hex, Variadic<Tile_Any>:$args, DenseI32ArrayAttr:$isSigned);
  let assemblyFormat = "$prefix attr-dict (`:` $args^ `:` type($args))?";
}
def Tile_AssertOp : Tile_Op<"assert", [MemoryEffects<[MemWrite]>]> {
  let summary = "Stops with a message where the condition is false";
  let arguments = (ins Tile_BoolLike:$condition, StrAttr:$message);
  let assemblyFormat = "$condition `,` $message attr-dict `:` type($condition)";
  let hasCanonicalizeMethod = 1;
}
// Programmatic dependent launch: order against the kernel before and after this one in the stream.
def Tile_GridDependencyWaitOp : Tile_Op<"grid_dependency_wait", [Tile_ReadsWrites]> {
  let summary = "Waits for the kernels this one depends on";
  let assemblyFormat = "attr-dict";
}
def Tile_GridDependencyLaunchOp : Tile_Op<"grid_dependency_launch_dependents", [Tile_ReadsWrites]> {
  let summary = "Lets dependent kernels start";
  let assemblyFormat = "attr-dict";
}
