"""Operators, promotion, casts. Cases are read by tools/make_kernel_goldens.py."""
import triton
import triton.language as tl


@triton.jit
def add(x, y, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    tl.store(o + i, tl.load(x + i, mask=m) + tl.load(y + i, mask=m), mask=m)


@triton.jit
def float_ops(x, y, o, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i)
    b = tl.load(y + i)
    tl.store(o + i, (a - b) * a / (b + 3.0) - -a)


@triton.jit
def int_ops(x, y, o, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i)
    b = tl.load(y + i)
    tl.store(o + i, a // b + a % b * 3 - (a << 2) + (a >> 1) + (a & b) + (a | 5) + (a ^ b) + ~a)


@triton.jit
def uint_ops(x, y, o, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i).to(tl.uint32, bitcast=True)
    b = tl.load(y + i).to(tl.uint32, bitcast=True)
    r = a // b + a % b + (a >> 3)
    tl.store(o + i, tl.where(a > b, r, b).to(tl.int32, bitcast=True))


@triton.jit
def compare(x, y, o, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i)
    b = tl.load(y + i)
    r = (a < b).to(tl.int32) + 2 * (a <= b) + 4 * (a > b).to(tl.int32) + 8 * (a >= b) + 16 * (a == b) + 32 * (a != b)
    tl.store(o + i, r)


@triton.jit
def mixed_types(x, y, o, B: tl.constexpr):
    """half with int, with a Python float, with fp32."""
    i = tl.arange(0, B)
    h = tl.load(x + i)
    f = tl.load(y + i)
    a = h + 1
    b = a * 0.5
    c = b + f
    tl.store(o + i, c + i)


@triton.jit
def bf16_mixed(x, y, o, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, tl.load(x + i) * tl.load(y + i) + 1.5)


@triton.jit
def casts(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i) * 100
    r = v.to(tl.int8).to(tl.int32) + v.to(tl.int16) + v.to(tl.int64).to(tl.int32) + (v > 0).to(tl.int32)
    tl.store(o + i, r + v.to(tl.float16).to(tl.float32).to(tl.int32))


@triton.jit
def bitcasts(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    tl.store(o + i, (v.to(tl.int32, bitcast=True) & 0x7FFFFFFF).to(tl.float32, bitcast=True))


@triton.jit
def bools(x, y, o, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i) > 0
    b = tl.load(y + i) > 0
    c = (a & b) | ~a
    d = (a & b) | (a ^ b)
    tl.store(o + i, c.to(tl.int32) * 2 + d.to(tl.int32))


@triton.jit
def chained(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    tl.store(o + i, tl.where((-0.5 < v) & (v < 0.5), v, 0.0))


@triton.jit
def scalar_args(x, o, a, b, c, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, tl.load(x + i) * a + b - c)


@triton.jit
def python_numbers(o, B: tl.constexpr):
    """Compile-time arithmetic is Python's: floor division, modulo of negatives, powers."""
    i = tl.arange(0, B)
    a: tl.constexpr = -7 // 2
    b: tl.constexpr = -7 % 3
    c: tl.constexpr = 2**10 >> 3
    d: tl.constexpr = (B // 3) * 2 + 1
    tl.store(o + i, i * 0 + a * 1000 + b * 100 + c + d)


@triton.jit
def tensor_division(o, B: tl.constexpr):
    """On tensors // and % truncate as C does."""
    i = tl.arange(0, B) - B // 2
    tl.store(o + i + B // 2, i // 3 * 100 + i % 3)


@triton.jit
def int64_offsets(x, o, stride, B: tl.constexpr):
    i = tl.arange(0, B).to(tl.int64)
    tl.store(o + i, tl.load(x + i * stride))


@triton.jit
def int_division_true(x, y, o, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, tl.load(x + i) / tl.load(y + i))


@triton.jit
def minmax(x, y, o, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i)
    b = tl.load(y + i)
    tl.store(o + i, tl.minimum(a, b) * 2 + tl.maximum(a, 0.25) + tl.clamp(a, -0.3, 0.3))


@triton.jit
def unary_math(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    p = tl.abs(v) + 0.5
    r = tl.exp(v) + tl.exp2(v) + tl.log(p) + tl.log2(p) + tl.sin(v) + tl.cos(v) + tl.sqrt(p) + tl.rsqrt(p)
    tl.store(o + i, r + tl.floor(v * 5) + tl.ceil(v * 5) + tl.erf(v) + v.exp() + tl.sigmoid(v))


@triton.jit
def more_math(x, y, o, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i)
    b = tl.load(y + i)
    tl.store(o + i, tl.fma(a, b, 1.0) + tl.fdiv(a, b + 3.0) + tl.math.div_rn(a, b + 3.0) + tl.sqrt_rn(tl.abs(a)))


@triton.jit
def umulhi(x, y, o, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, tl.umulhi(tl.load(x + i), tl.load(y + i)))


@triton.jit
def where_scalars(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    tl.store(o + i, tl.where(v > 0, 1.0, -1.0) + tl.where(i % 2 == 0, v, 0))


@triton.jit
def negative_shift(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    tl.store(o + i, (v >> 2) + (v.to(tl.uint32) >> 28).to(tl.int32))


CASES = [
    dict(kernel="add", grid=(3, ), args=["f32[300]", "f32[300]", "out f32[300]", 300], const=dict(B=128)),
    dict(kernel="add", name="add_f16", grid=(3, ), args=["f16[300]", "f16[300]", "out f16[300]", 300], const=dict(B=128)),
    dict(kernel="add", name="add_i64", grid=(1, ), args=["i64[64]:-9,9", "i64[64]:-9,9", "out i64[64]", 50], const=dict(B=64)),
    dict(kernel="float_ops", args=["f32[64]", "f32[64]", "out f32[64]"], const=dict(B=64)),
    dict(kernel="float_ops", name="float_ops_f16", args=["f16[64]", "f16[64]", "out f16[64]"], const=dict(B=64), tol=2e-3),
    dict(kernel="float_ops", name="float_ops_f64", args=["f64[64]", "f64[64]", "out f64[64]"], const=dict(B=64)),
    dict(kernel="int_ops", args=["i32[64]:-99,99", "i32[64]:1,9", "out i32[64]"], const=dict(B=64)),
    dict(kernel="int_ops", name="int_ops_i16", args=["i16[64]:-99,99", "i16[64]:1,9", "out i16[64]"], const=dict(B=64)),
    dict(kernel="uint_ops", args=["i32[64]:1,999999", "i32[64]:1,999", "out i32[64]"], const=dict(B=64)),
    dict(kernel="compare", args=["f32[64]", "f32[64]", "out i32[64]"], const=dict(B=64)),
    dict(kernel="compare", name="compare_int", args=["i32[64]:-3,3", "i32[64]:-3,3", "out i32[64]"], const=dict(B=64)),
    dict(kernel="mixed_types", args=["f16[64]", "f32[64]", "out f32[64]"], const=dict(B=64)),
    dict(kernel="bf16_mixed", args=["bf16[64]", "f16[64]", "out f32[64]"], const=dict(B=64), tol=2e-3),
    dict(kernel="casts", args=["f32[64]", "out i32[64]"], const=dict(B=64)),
    dict(kernel="bitcasts", args=["f32[64]", "out f32[64]"], const=dict(B=64)),
    dict(kernel="bools", args=["f32[64]", "f32[64]", "out i32[64]"], const=dict(B=64)),
    dict(kernel="chained", args=["f32[64]", "out f32[64]"], const=dict(B=64)),
    dict(kernel="scalar_args", args=["f32[64]", "out f32[64]", 3, 0.5, 7], const=dict(B=64)),
    dict(kernel="scalar_args", name="scalar_args_f16", args=["f16[64]", "out f16[64]", 3, 0.5, 1], const=dict(B=64), tol=2e-3),
    dict(kernel="python_numbers", args=["out i32[32]"], const=dict(B=32)),
    dict(kernel="tensor_division", args=["out i32[32]"], const=dict(B=32)),
    dict(kernel="int64_offsets", args=["f32[128]", "out f32[32]", 3], const=dict(B=32)),
    dict(kernel="int_division_true", args=["i32[32]:-99,99", "i32[32]:1,9", "out f32[32]"], const=dict(B=32)),
    dict(kernel="minmax", args=["f32[64]", "f32[64]", "out f32[64]"], const=dict(B=64)),
    dict(kernel="unary_math", args=["f32[64]", "out f32[64]"], const=dict(B=64), tol=1e-4),
    dict(kernel="more_math", args=["f32[64]", "f32[64]", "out f32[64]"], const=dict(B=64), tol=1e-4),
    dict(kernel="umulhi", args=["i32[64]:0,2000000000", "i32[64]:0,2000000000", "out i32[64]"], const=dict(B=64)),
    dict(kernel="where_scalars", args=["f32[64]", "out f32[64]"], const=dict(B=64)),
    dict(kernel="negative_shift", args=["i32[64]:-99999,99999", "out i32[64]"], const=dict(B=64)),
]
