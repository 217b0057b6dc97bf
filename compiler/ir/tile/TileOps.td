// Ops of `tt`: functions, values, shapes, arithmetic, products, reductions. Memory is in TileMemoryOps.td.
// Forms and attribute names are Triton's; Neso adds verifiers, folders and effects.
#ifndef NESO_TILE_OPS
#define NESO_TILE_OPS
include "ir/tile/TileAttrs.td"
include "ir/tile/TileTypes.td"
include "mlir/Interfaces/CallInterfaces.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/FunctionInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/IR/OpAsmInterface.td"

class Tile_Op<string mnemonic, list<Trait> traits = []> : Op<Tile_Dialect, mnemonic, traits>;

// Element by element: operands and result have one shape; scalars count as a shape of their own.
class Tile_ElementwiseOp<string mnemonic, list<Trait> traits = []> :
  Tile_Op<mnemonic, !listconcat(traits, [Pure, Elementwise, SameOperandsAndResultShape])>;
class Tile_CastOp<string mnemonic, Type from, Type to> : Tile_ElementwiseOp<mnemonic> {
  let arguments = (ins from:$src);
  let results = (outs to:$result);
  let assemblyFormat = "$src attr-dict `:` type($src) `->` type($result)";
}

// ---- functions -------------------------------------------------------------------------------------------------------

// tt.func public @k(%p: !tt.ptr<f32> {tt.divisibility = 16 : i32}, …) attributes {noinline = false}. A public function is a kernel.
def Tile_FuncOp : Tile_Op<"func", [AffineScope, AutomaticAllocationScope, CallableOpInterface, FunctionOpInterface, IsolatedFromAbove,
                                   OpAsmOpInterface]> {
  let summary = "A kernel (public) or a helper function (private)";
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttrOf<FunctionType>:$function_type, OptionalAttr<StrAttr>:$sym_visibility,
                       OptionalAttr<DictArrayAttr>:$arg_attrs, OptionalAttr<DictArrayAttr>:$res_attrs);
  let regions = (region AnyRegion:$body);
  let builders = [OpBuilder<(ins "::llvm::StringRef":$name, "::mlir::FunctionType":$type,
                                 CArg<"::llvm::ArrayRef<::mlir::NamedAttribute>", "{}">:$attrs,
                                 CArg<"::llvm::ArrayRef<::mlir::DictionaryAttr>", "{}">:$argAttrs)>];
  let extraClassDeclaration = [{
    ::mlir::Region *getCallableRegion() { return isExternal() ? nullptr : &getBody(); }
    ::llvm::ArrayRef<::mlir::Type> getArgumentTypes() { return getFunctionType().getInputs(); }
    ::llvm::ArrayRef<::mlir::Type> getResultTypes() { return getFunctionType().getResults(); }
    ::mlir::LogicalResult verifyType() { return ::mlir::success(); }
  }];
  let hasCustomAssemblyFormat = 1;
  let skipDefaultBuilders = 1;
}

def Tile_CallOp : Tile_Op<"call", [CallOpInterface, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Call of a function of this module";
  let arguments = (ins FlatSymbolRefAttr:$callee, Variadic<AnyType>:$operands, OptionalAttr<DictArrayAttr>:$arg_attrs,
                       OptionalAttr<DictArrayAttr>:$res_attrs);
  let results = (outs Variadic<AnyType>);
  let builders = [OpBuilder<(ins "FuncOp":$callee, CArg<"::mlir::ValueRange", "{}">:$operands), [{
    $_state.addOperands(operands);
    $_state.addAttribute("callee", ::mlir::SymbolRefAttr::get(callee));
    $_state.addTypes(callee.getFunctionType().getResults());
  }]>];
  let extraClassDeclaration = [{
    operand_range getArgOperands() { return getOperands(); }
    ::mlir::MutableOperandRange getArgOperandsMutable() { return getOperandsMutable(); }
    ::mlir::CallInterfaceCallable getCallableForCallee() { return (*this)->getAttrOfType<::mlir::SymbolRefAttr>("callee"); }
    void setCalleeFromCallable(::mlir::CallInterfaceCallable callee) {
      (*this)->setAttr("callee", ::mlir::cast<::mlir::SymbolRefAttr>(callee));
    }
  }];
  let assemblyFormat = "$callee `(` $operands `)` attr-dict `:` functional-type($operands, results)";
}

def Tile_ReturnOp : Tile_Op<"return", [Pure, HasParent<"FuncOp">, ReturnLike, Terminator]> {
  let summary = "End of a function";
  let arguments = (ins Variadic<AnyType>:$srcs);
  let builders = [OpBuilder<(ins), [{ build($_builder, $_state, ::mlir::ValueRange()); }]>];
  let assemblyFormat = "attr-dict ($srcs^ `:` type($srcs))?";
  let hasVerifier = 1;
}

// ---- sources of values -----------------------------------------------------------------------------------------------

def Tile_GetProgramIdOp : Tile_Op<"get_program_id", [Pure]> {
  let summary = "This program's index on an axis of the grid";
  let arguments = (ins Tile_ProgramIDDim:$axis);
  let results = (outs I32:$result);
  let assemblyFormat = "$axis attr-dict `:` type($result)";
  let builders = [OpBuilder<(ins "int":$axis), [{ build($_builder, $_state, $_builder.getI32Type(), static_cast<ProgramIDDim>(axis)); }]>];
}
def Tile_GetNumProgramsOp : Tile_Op<"get_num_programs", [Pure]> {
  let summary = "Length of an axis of the grid";
  let arguments = (ins Tile_ProgramIDDim:$axis);
  let results = (outs I32:$result);
  let assemblyFormat = "$axis attr-dict `:` type($result)";
  let builders = [OpBuilder<(ins "int":$axis), [{ build($_builder, $_state, $_builder.getI32Type(), static_cast<ProgramIDDim>(axis)); }]>];
}
// [start, end): start, start + 1, …, end - 1 as i32.
def Tile_MakeRangeOp : Tile_Op<"make_range", [Pure]> {
  let summary = "Consecutive integers";
  let arguments = (ins I32Attr:$start, I32Attr:$end);
  let results = (outs RankedTensorOf<[I32]>:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

// ---- casts -----------------------------------------------------------------------------------------------------------

def Tile_IntToPtrOp : Tile_CastOp<"int_to_ptr", Tile_I64Like, Tile_PtrLike> { let summary = "Integer to address"; }
def Tile_PtrToIntOp : Tile_CastOp<"ptr_to_int", Tile_PtrLike, Tile_I64Like> { let summary = "Address to integer"; }
def Tile_BitcastOp : Tile_CastOp<"bitcast", Tile_Any, Tile_Any> {
  let summary = "Same bits, another type of that width; a pointer to another pointee";
  let hasVerifier = 1;
  let hasFolder = 1;
}
// Float to float where arith's casts do not reach: f8 types, and rounding other than to nearest even.
def Tile_FpToFpOp : Tile_ElementwiseOp<"fp_to_fp"> {
  let summary = "Cast between float types";
  let arguments = (ins Tile_FloatLike:$src, OptionalAttr<Tile_RoundingMode>:$rounding);
  let results = (outs Tile_FloatLike:$result);
  let assemblyFormat = "$src attr-dict (`,` `rounding` `=` $rounding^)? `:` type($src) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

// ---- arithmetic ------------------------------------------------------------------------------------------------------

def Tile_ClampFOp : Tile_ElementwiseOp<"clampf", [SameOperandsAndResultType]> {
  let summary = "min(max(x, lo), hi)";
  let arguments = (ins Tile_FloatLike:$x, Tile_FloatLike:$min, Tile_FloatLike:$max, Tile_PropagateNan:$propagateNan);
  let results = (outs Tile_FloatLike:$result);
  let assemblyFormat = "$x `,` $min `,` $max `,` `propagateNan` `=` $propagateNan attr-dict `:` type($result)";
}
def Tile_PreciseSqrtOp : Tile_ElementwiseOp<"precise_sqrt", [SameOperandsAndResultType]> {
  let summary = "Correctly rounded square root";
  let arguments = (ins Tile_FloatLike:$x);
  let results = (outs Tile_FloatLike:$result);
  let assemblyFormat = "$x attr-dict `:` type($x)";
}
class Tile_BinaryFloatOp<string mnemonic> : Tile_ElementwiseOp<mnemonic, [SameOperandsAndResultType]> {
  let arguments = (ins Tile_FloatLike:$x, Tile_FloatLike:$y);
  let results = (outs Tile_FloatLike:$result);
  let assemblyFormat = "$x `,` $y attr-dict `:` type($x)";
}
def Tile_PreciseDivFOp : Tile_BinaryFloatOp<"precise_divf"> { let summary = "Correctly rounded quotient"; }
def Tile_ApproxDivFOp : Tile_BinaryFloatOp<"approx_divf"> { let summary = "Quotient to 2 units in the last place"; }
def Tile_MulhiUIOp : Tile_ElementwiseOp<"mulhiui", [SameOperandsAndResultType, Commutative]> {
  let summary = "High half of an unsigned product";
  let arguments = (ins Tile_IntLike:$x, Tile_IntLike:$y);
  let results = (outs Tile_IntLike:$result);
  let assemblyFormat = "$x `,` $y attr-dict `:` type($x)";
}
// Address plus offset counted in elements of the pointee.
def Tile_AddPtrOp : Tile_ElementwiseOp<"addptr", [TypesMatchWith<"result type matches ptr type", "result", "ptr", "$_self">]> {
  let summary = "Pointer arithmetic";
  let arguments = (ins Tile_PtrLike:$ptr, Tile_IntLike:$offset);
  let results = (outs Tile_PtrLike:$result);
  let assemblyFormat = "$ptr `,` $offset attr-dict `:` type($result) `,` type($offset)";
  let hasFolder = 1;
}

// A function of a device library by its symbol ("__nv_expf"), element by element.
def Tile_ExternElementwiseOp : Tile_Op<"extern_elementwise", [Elementwise, SameOperandsAndResultShape, SameVariadicOperandSize,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>, ConditionallySpeculatable]> {
  let summary = "Library function on each element";
  let arguments = (ins Variadic<Tile_Any>:$srcs, StrAttr:$libname, StrAttr:$libpath, StrAttr:$symbol, BoolAttr:$pure);
  let results = (outs Tile_Any:$result);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, $result)";
  let extraClassDeclaration = [{
    ::mlir::Speculation::Speculatability getSpeculatability() {
      return getPure() ? ::mlir::Speculation::Speculatable : ::mlir::Speculation::NotSpeculatable;
    }
  }];
}
// Assembly text that computes packed_element elements at a time. Operands and results have one shape; without operands (a clock, a
// register of the machine) results are scalars.
def Tile_ElementwiseInlineAsmOp : Tile_Op<"elementwise_inline_asm", [Elementwise,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>, ConditionallySpeculatable]> {
  let summary = "Inline assembly on each element or pack of elements";
  let arguments = (ins StrAttr:$asm_string, StrAttr:$constraints, BoolAttr:$pure, I32Attr:$packed_element, Variadic<Tile_Any>:$args);
  let results = (outs Variadic<Tile_Any>:$result);
  let assemblyFormat = "$asm_string attr-dict ($args^ `:` type($args))? `->` type($result)";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::Speculation::Speculatability getSpeculatability() {
      return getPure() ? ::mlir::Speculation::Speculatable : ::mlir::Speculation::NotSpeculatable;
    }
    /// Whether it only says when the next launch on a GPU may begin (griddepcontrol), or makes the threads of a program wait for each other
    /// (bar.sync). Where launches follow one another and a program is one thread that is nothing,
    /// and its result, which the assembly never writes, is any number.
    bool onlyOrders();
  }];
}
// A region of scalar ops applied to `pack` elements of each operand at a time: the block has pack arguments an operand
// (all of operand 0 first) and returns pack values a result.
def Tile_MapElementwiseOp : Tile_Op<"map_elementwise", [Elementwise, SameOperandsAndResultShape, RecursiveMemoryEffects]> {
  let summary = "Scalar code on each element or pack of elements";
  let arguments = (ins Variadic<Tile_Tensor>:$srcs, I32Attr:$pack);
  let results = (outs Variadic<Tile_Tensor>:$result);
  let regions = (region AnyRegion:$scalarOp);
  let hasVerifier = 1;
}
def Tile_MapElementwiseReturnOp : Tile_Op<"map_elementwise.return", [HasParent<"MapElementwiseOp">, Pure, Terminator, ReturnLike]> {
  let summary = "Results of a map";
  let arguments = (ins Variadic<AnyType>:$result);
  let assemblyFormat = "attr-dict ($result^ `:` type($result))?";
}

// ---- shapes ----------------------------------------------------------------------------------------------------------

def Tile_SplatOp : Tile_Op<"splat", [Pure]> {
  let summary = "A tensor whose elements are all one scalar";
  let arguments = (ins Tile_Scalar:$src);
  let results = (outs Tile_Tensor:$result);
  let assemblyFormat = "$src attr-dict `:` type($src) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}
def Tile_UnsplatOp : Tile_Op<"unsplat", [Pure, DeclareOpInterfaceMethods<InferTypeOpInterface>]> {
  let summary = "The element of a tensor of one element";
  let arguments = (ins Tile_Tensor:$src);
  let results = (outs Tile_Scalar:$result);
  let assemblyFormat = "$src attr-dict `:` type($src)";
  let hasVerifier = 1;
  let hasFolder = 1;
}
// [M, N] at axis 1 -> [M, 1, N].
def Tile_ExpandDimsOp : Tile_Op<"expand_dims", [Pure, DeclareOpInterfaceMethods<InferTypeOpInterface>]> {
  let summary = "A new axis of length 1";
  let arguments = (ins Tile_Tensor:$src, I32Attr:$axis);
  let results = (outs Tile_Tensor:$result);
  let assemblyFormat = "$src attr-dict `:` type($src) `->` type($result)";
  let hasCanonicalizeMethod = 1;
  let hasFolder = 1;
}
// Axes of length 1 are repeated; the rank stays.
def Tile_BroadcastOp : Tile_Op<"broadcast", [Pure]> {
  let summary = "Repeats axes of length 1";
  let arguments = (ins Tile_Tensor:$src);
  let results = (outs Tile_Tensor:$result);
  let assemblyFormat = "$src attr-dict `:` type($src) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
  let hasCanonicalizeMethod = 1;
}
// Row-major reshape; allow_reorder lets the compiler permute elements.
def Tile_ReshapeOp : Tile_Op<"reshape", [Pure]> {
  let summary = "The same elements in another shape";
  let arguments = (ins Tile_Tensor:$src, UnitAttr:$allow_reorder, UnitAttr:$efficient_layout);
  let results = (outs Tile_Tensor:$result);
  let assemblyFormat = [{
    $src (`allow_reorder` $allow_reorder^)? (`efficient_layout` $efficient_layout^)? attr-dict `:` type($src) `->` type($result)
  }];
  let builders = [OpBuilder<(ins "::llvm::ArrayRef<int64_t>":$shape, "::mlir::Value":$src, CArg<"bool", "false">:$allowReorder)>];
  let hasVerifier = 1;
  let hasFolder = 1;
  let hasCanonicalizeMethod = 1;
}
// Result axis i is source axis order[i].
def Tile_TransOp : Tile_Op<"trans", [Pure, DeclareOpInterfaceMethods<InferTypeOpInterface>]> {
  let summary = "Permutes axes";
  let arguments = (ins Tile_Tensor:$src, DenseI32ArrayAttr:$order);
  let results = (outs Tile_Tensor:$result);
  let assemblyFormat = "$src attr-dict `:` type($src) `->` type($result)";
  let hasFolder = 1;
}
// result[..., 0] = lhs, result[..., 1] = rhs.
def Tile_JoinOp : Tile_Op<"join", [Pure, AllTypesMatch<["lhs", "rhs"]>, DeclareOpInterfaceMethods<InferTypeOpInterface>]> {
  let summary = "Two tensors along a new last axis of length 2";
  let arguments = (ins Tile_Tensor:$lhs, Tile_Tensor:$rhs);
  let results = (outs Tile_Tensor:$result);
  let assemblyFormat = "$lhs `,` $rhs attr-dict `:` type($lhs) `->` type($result)";
}
def Tile_SplitOp : Tile_Op<"split", [Pure, AllTypesMatch<["outLHS", "outRHS"]>, DeclareOpInterfaceMethods<InferTypeOpInterface>]> {
  let summary = "The two halves of a last axis of length 2";
  let arguments = (ins Tile_Tensor:$src);
  let results = (outs Tile_Tensor:$outLHS, Tile_Tensor:$outRHS);
  let assemblyFormat = "$src attr-dict `:` type($src) `->` type($outLHS)";
  let hasFolder = 1;
}
// One after the other; Triton allows any order of elements, Neso keeps this one.
def Tile_CatOp : Tile_Op<"cat", [Pure, AllTypesMatch<["lhs", "rhs"]>]> {
  let summary = "Two one-dimensional tensors in a row";
  let arguments = (ins Tile_Tensor:$lhs, Tile_Tensor:$rhs);
  let results = (outs Tile_Tensor:$result);
  let assemblyFormat = "$lhs `,` $rhs attr-dict `:` type($lhs) `->` type($result)";
  let hasVerifier = 1;
}
// result[i0, …, iaxis, …] = src[i0, …, indices[i0, …, iaxis, …], …].
def Tile_GatherOp : Tile_Op<"gather", [Pure, DeclareOpInterfaceMethods<InferTypeOpInterface>]> {
  let summary = "Elements picked along an axis";
  let arguments = (ins Tile_Tensor:$src, RankedTensorOf<[Tile_Int]>:$indices, I32Attr:$axis, UnitAttr:$efficient_layout);
  let results = (outs Tile_Tensor:$result);
  let assemblyFormat = "$src `[` $indices `]` attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}
// result[b] = how many unmasked elements equal b; elements outside [0, bins) are the user's mistake and count nowhere.
def Tile_HistogramOp : Tile_Op<"histogram", [Pure,
    TypesMatchWith<"mask has the shape of src", "src", "mask", "boolLike($_self)", "!getMask() || std::equal_to<>()">]> {
  let summary = "Counts of integers";
  let arguments = (ins RankedTensorOf<[Tile_Int]>:$src, Optional<RankedTensorOf<[I1]>>:$mask);
  let results = (outs RankedTensorOf<[Tile_Int]>:$result);
  let assemblyFormat = "$src (`,` $mask^)? attr-dict `:` type($src) `->` type($result)";
}

// ---- products --------------------------------------------------------------------------------------------------------

// d[.., i, j] = c[.., i, j] + sum over k of a[.., i, k] * b[.., k, j]; f32 operands enter as inputPrecision says.
def Tile_DotOp : Tile_Op<"dot", [Pure, TypesMatchWith<"result's type matches accumulator's type", "d", "c", "$_self">]> {
  let summary = "Matrix product plus accumulator";
  let arguments = (ins Tile_FpIntTensor:$a, Tile_FpIntTensor:$b, Tile_FpIntTensor:$c,
                       DefaultValuedAttr<Tile_InputPrecision, "InputPrecision::IEEE">:$inputPrecision,
                       DefaultValuedAttr<I32Attr, "0">:$maxNumImpreciseAcc);
  let results = (outs Tile_FpIntTensor:$d);
  let assemblyFormat = [{
    $a `,` $b `,` $c (`,` `inputPrecision` `=` $inputPrecision^)? attr-dict `:` type($a) `*` type($b) `->` type($d)
  }];
  let hasVerifier = 1;
}
// As dot, with operands in small formats (packed in i8 where narrower than a byte) and one power-of-two scale (e8m0, in i8) for
// every 32 elements of k.
def Tile_DotScaledOp : Tile_Op<"dot_scaled", [Pure, AttrSizedOperandSegments,
    TypesMatchWith<"result's type matches accumulator's type", "d", "c", "$_self">]> {
  let summary = "Matrix product of block-scaled operands";
  let arguments = (ins Tile_FpIntTensor:$a, Tile_FpIntTensor:$b, Tile_FpIntTensor:$c,
                       Optional<RankedTensorOf<[I8, F8E4M3FN]>>:$a_scale, Optional<RankedTensorOf<[I8, F8E4M3FN]>>:$b_scale,
                       Tile_ScaleDotElemType:$a_elem_type, Tile_ScaleDotElemType:$b_elem_type, BoolAttr:$fastMath,
                       DefaultValuedAttr<BoolAttr, "true">:$lhs_k_pack, DefaultValuedAttr<BoolAttr, "true">:$rhs_k_pack);
  let results = (outs Tile_FpIntTensor:$d);
  let assemblyFormat = [{
    $a (`scale` $a_scale^)? `,` $b (`scale` $b_scale^)? `,` $c `lhs` `=` $a_elem_type `rhs` `=` $b_elem_type attr-dict
    `:` type($a) (`,` type($a_scale)^)? `*` type($b) (`,` type($b_scale)^)? `->` type($d)
  }];
}

// ---- reductions ------------------------------------------------------------------------------------------------------

// n operands of one shape are reduced together along `axis` by a region with 2n scalar arguments (n of the left part, n of the
// right) that returns n scalars. The order of combination is free. The last axis gone, the results are scalars.
def Tile_ReduceOp : Tile_Op<"reduce", [SingleBlock, RecursiveMemoryEffects, DeclareOpInterfaceMethods<InferTypeOpInterface>]> {
  let summary = "Combines the elements along an axis";
  let arguments = (ins Variadic<Tile_Tensor>:$srcs, I32Attr:$axis, OptionalAttr<StrAttr>:$reduction_ordering);
  let results = (outs Variadic<Tile_Any>:$result);
  let regions = (region SizedRegion<1>:$combineOp);
  let builders = [OpBuilder<(ins "::mlir::ValueRange":$srcs, "int":$axis)>];
  let hasVerifier = 1;
}
def Tile_ReduceReturnOp : Tile_Op<"reduce.return", [HasParent<"ReduceOp">, Pure, Terminator, ReturnLike]> {
  let summary = "Results of a combination";
  let arguments = (ins Variadic<AnyType>:$result);
  let assemblyFormat = "$result attr-dict `:` type($result)";
}
// Inclusive scan; as reduce, but every prefix (or suffix, if reverse) is kept.
def Tile_ScanOp : Tile_Op<"scan", [SingleBlock, RecursiveMemoryEffects, DeclareOpInterfaceMethods<InferTypeOpInterface>]> {
  let summary = "Combines the prefixes along an axis";
  let arguments = (ins Variadic<Tile_Tensor>:$srcs, I32Attr:$axis, BoolAttr:$reverse);
  let results = (outs Variadic<Tile_Tensor>:$result);
  let regions = (region SizedRegion<1>:$combineOp);
  let builders = [OpBuilder<(ins "::mlir::ValueRange":$srcs, "int":$axis, "bool":$reverse)>];
  let hasVerifier = 1;
}
def Tile_ScanReturnOp : Tile_Op<"scan.return", [HasParent<"ScanOp">, Pure, Terminator, ReturnLike]> {
  let summary = "Results of a combination";
  let arguments = (ins Variadic<AnyType>:$result);
  let assemblyFormat = "$result attr-dict `:` type($result)";
}

include "ir/tile/TileMemoryOps.td"
#endif
