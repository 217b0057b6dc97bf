// Types of `tt` and the groups of types that its ops take.
#ifndef NESO_TILE_TYPES
#define NESO_TILE_TYPES
include "ir/tile/TileDialect.td"
include "mlir/IR/BuiltinTypeInterfaces.td"
include "mlir/IR/CommonTypeConstraints.td"

// !tt.ptr<T> or !tt.ptr<T, N>: address of elements of type T in address space N (1, global memory, is not printed).
// !tt.ptr<tensor<…>> is a block pointer (Triton up to 3.6): base, shape, strides and offsets of a tile.
def Tile_Ptr : TypeDef<Tile_Dialect, "Pointer"> {
  let mnemonic = "ptr";
  let parameters = (ins "::mlir::Type":$pointeeType, "int":$addressSpace);
  let builders = [TypeBuilderWithInferredContext<(ins "::mlir::Type":$pointee, CArg<"int", "1">:$space), [{
    return $_get(pointee.getContext(), pointee, space);
  }]>];
  let skipDefaultBuilders = 1;
  let hasCustomAssemblyFormat = 1;
  let extraClassDeclaration = [{
    /// Whether this is a block pointer, !tt.ptr<tensor<…>>.
    bool isBlock() { return ::mlir::isa<::mlir::RankedTensorType>(getPointeeType()); }
  }];
  let genVerifyDecl = 1;
}

// !tt.tensordesc<128x64xf16>: a tensor in memory (base, shape, strides) that is read and written by blocks of this shape.
// Triton before 3.8 writes !tt.tensordesc<tensor<128x64xf16>>; both parse, the first is printed. Integer elements may carry a sign.
def Tile_TensorDesc : TypeDef<Tile_Dialect, "TensorDesc"> {
  let mnemonic = "tensordesc";
  let parameters = (ins ArrayRefParameter<"int64_t">:$shape, "::mlir::Type":$elementType);
  let hasCustomAssemblyFormat = 1;
  let extraClassDeclaration = [{
    /// The block as a signless tensor type: what a load through the descriptor gives.
    ::mlir::RankedTensorType getBlockType();
  }];
  let genVerifyDecl = 1;
}

def Tile_Float : AnyTypeOf<[F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F8E4M3B11FNUZ, F16, BF16, F32, F64], "floating point">;
def Tile_Int : AnyTypeOf<[I1, I<4>, I8, I16, I32, I64, I<128>], "integer">;
def Tile_FloatLike : AnyTypeOf<[Tile_Float, RankedTensorOf<[Tile_Float]>], "float or tensor of floats">;
def Tile_IntLike : AnyTypeOf<[Tile_Int, RankedTensorOf<[Tile_Int]>], "integer or tensor of integers">;
def Tile_BoolLike : AnyTypeOf<[I1, RankedTensorOf<[I1]>], "i1 or tensor of i1">;
def Tile_I64Like : AnyTypeOf<[I64, RankedTensorOf<[I64]>], "i64 or tensor of i64">;
def Tile_ScalarPtr : Type<And<[CPred<"::mlir::isa<::neso::tt::PointerType>($_self)">,
  CPred<"!::mlir::cast<::neso::tt::PointerType>($_self).isBlock()">]>, "pointer to an element", "::neso::tt::PointerType">;
def Tile_BlockPtr : Type<And<[CPred<"::mlir::isa<::neso::tt::PointerType>($_self)">,
  CPred<"::mlir::cast<::neso::tt::PointerType>($_self).isBlock()">]>, "block pointer", "::neso::tt::PointerType">;
def Tile_PtrLike : AnyTypeOf<[Tile_ScalarPtr, RankedTensorOf<[Tile_ScalarPtr]>], "pointer or tensor of pointers">;
def Tile_Tensor : RankedTensorOf<[Tile_Float, Tile_Int, Tile_ScalarPtr]>;
def Tile_FpIntTensor : RankedTensorOf<[Tile_Float, Tile_Int]>;
def Tile_Scalar : AnyTypeOf<[Tile_Float, Tile_Int, Tile_ScalarPtr], "scalar">;
def Tile_Any : AnyTypeOf<[Tile_Scalar, Tile_Tensor, Tile_BlockPtr, Tile_TensorDesc], "value of the tile dialect">;
#endif
