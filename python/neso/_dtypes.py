"""Element types, in the order of neso_dtype (neso.h): the rows of abi/dtypes.def, which says what the columns are. Written by
tools/check_dtypes --write."""

from typing import NamedTuple


class Row(NamedTuple):
    text: str
    torch: str
    numpy: str
    safetensors: str
    triton: str


ROWS = (
    Row("bool", "bool", "b1", "BOOL", "i1"),
    Row("u8", "uint8", "u1", "U8", "u8"),
    Row("u16", "uint16", "u2", "U16", "u16"),
    Row("u32", "uint32", "u4", "U32", "u32"),
    Row("u64", "uint64", "u8", "U64", "u64"),
    Row("i8", "int8", "i1", "I8", "i8"),
    Row("i16", "int16", "i2", "I16", "i16"),
    Row("i32", "int32", "i4", "I32", "i32"),
    Row("i64", "int64", "i8", "I64", "i64"),
    Row("f8e4m3fn", "float8_e4m3fn", "", "F8_E4M3", "fp8e4nv"),
    Row("f8e5m2", "float8_e5m2", "", "F8_E5M2", "fp8e5"),
    Row("f8e4m3fnuz", "float8_e4m3fnuz", "", "", "fp8e4b8"),
    Row("f8e5m2fnuz", "float8_e5m2fnuz", "", "", "fp8e5b16"),
    Row("f8e8m0fnu", "float8_e8m0fnu", "", "F8_E8M0", ""),
    Row("f16", "float16", "f2", "F16", "fp16"),
    Row("bf16", "bfloat16", "", "BF16", "bf16"),
    Row("f32", "float32", "f4", "F32", "fp32"),
    Row("f64", "float64", "f8", "F64", "fp64"),
    Row("c32", "complex32", "", "", ""),
    Row("c64", "complex64", "c8", "C64", ""),
    Row("c128", "complex128", "c16", "", ""),
)
