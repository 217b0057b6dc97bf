"""Prints the TTIR of the kernels below with the installed Triton into goldens/. Run by hand when a kernel is added:

    python3 make_goldens.py [NAME ...]

No GPU is needed: only the front end and the TTIR passes run. The .ttir files are committed, so the tests need neither.
"""
import os
import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
import triton.compiler.compiler as compiler
from triton._C.libtriton import ir

CASES = {}


def case(signature, consts=None, aligned=(), debug=False, capability=90):
    def add(fn):
        CASES[fn.__name__] = (fn, signature, consts or {}, aligned, debug, capability)
        return fn

    return add


def ttir(fn, signature, consts, aligned, debug, capability):
    names = fn.arg_names
    sig = {n: ("constexpr" if n in consts else signature[n]) for n in names}
    source = ASTSource(fn=fn, signature=sig, constexprs={(names.index(n), ): v for n, v in consts.items()},
                       attrs={(names.index(n), ): [["tt.divisibility", 16]] for n in aligned})
    target = GPUTarget("cuda", capability, 32)
    backend = compiler.make_backend(target)
    options = backend.parse_options({"debug": debug})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    module = source.make_ir(target, options, backend.get_codegen_implementation(options), backend.get_module_map(), context)
    stages = {}
    backend.add_stages(stages, options, source.language)
    return str(stages["ttir"](module, {}))


P = "*fp32"


@case(dict(x=P, y=P, o=P, n="i32"), dict(N=128), aligned=("x", "y", "o"))
@triton.jit
def add(x, y, o, n, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    m = i < n
    tl.store(o + i, tl.load(x + i, mask=m) + tl.load(y + i, mask=m), mask=m)


@case(dict(x=P, o=P, cols="i32"), dict(N=64))
@triton.jit
def softmax(x, o, cols, N: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, N)
    v = tl.load(x + r * cols + i, mask=i < cols, other=-float("inf"))
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(o + r * cols + i, e / tl.sum(e, axis=0), mask=i < cols)


@case(dict(a="*fp16", b="*fp16", c=P, M="i32", N="i32", K="i32"), dict(BM=16, BN=32, BK=16), aligned=("a", "b", "c"))
@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + rm[:, None] * K + (k + rk)[None, :], mask=(rm[:, None] < M) & ((k + rk)[None, :] < K), other=0.0)
        y = tl.load(b + (k + rk)[:, None] * N + rn[None, :], mask=((k + rk)[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc += tl.dot(x, y)
    tl.store(c + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


@case(dict(x=P, v=P, i="*i32"), dict(M=4, N=16))
@triton.jit
def argmax(x, v, i, M: tl.constexpr, N: tl.constexpr):
    r = tl.arange(0, M)
    t = tl.load(x + r[:, None] * N + tl.arange(0, N)[None, :])
    m, at = tl.max(t, axis=1, return_indices=True)
    tl.store(v + r, m)
    tl.store(i + r, at)


@case(dict(x=P, o=P), dict(M=4, N=8, R=False))
@triton.jit
def cumsum(x, o, M: tl.constexpr, N: tl.constexpr, R: tl.constexpr):
    i = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(o + i, tl.cumsum(tl.load(x + i), axis=1, reverse=R))


@triton.jit
def _mul(a, b):
    return a * b


@case(dict(x=P, o=P), dict(N=16))
@triton.jit
def scan_reverse(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, tl.associative_scan(tl.load(x + i), 0, _mul, reverse=True))


@case(dict(x="*i32", o="*i32", n="i32"), dict(N=32))
@triton.jit
def histogram(x, o, n, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + tl.arange(0, 8), tl.histogram(tl.load(x + i, mask=i < n, other=0), 8, mask=i < n))


@case(dict(x=P, i="*i32", o=P), dict(N=16))
@triton.jit
def gather(x, i, o, N: tl.constexpr):
    r = tl.arange(0, N)
    tl.store(o + r, tl.gather(tl.load(x + r), tl.load(i + r), 0))


@case(dict(o=P, c="*i32", n="i32"), dict(N=16))
@triton.jit
def atomics(o, c, n, N: tl.constexpr):
    i = tl.arange(0, N)
    p = tl.program_id(0)
    tl.atomic_add(o + i, i.to(tl.float32), mask=i < n)
    tl.atomic_max(c, p)
    tl.atomic_min(c + 1, -p)
    tl.atomic_or(c + 2, 1 << p)
    tl.atomic_cas(c + 3, p, p + 1)
    tl.atomic_xchg(c + 4, p, sem="relaxed", scope="sys")
    tl.atomic_max(o + N, p.to(tl.float32))


@case(dict(f="*i32"))
@triton.jit
def atomic_sync(f):
    tl.atomic_store(f, tl.atomic_load(f) + 1)
    tl.atomic_poll(f, 1)
    tl.atomic_poll(f, 3, timeout_ns=1000)


@case(dict(x=P, n="i32"))
@triton.jit
def early_return(x, n):
    p = tl.program_id(0)
    if p >= n:
        return
    tl.store(x + p, p.to(tl.float32))


@case(dict(x="*i32", n="i32"))
@triton.jit
def while_loop(x, n):
    steps = 0
    while n > 1:
        n = tl.where(n % 2 == 0, n // 2, 3 * n + 1)
        steps += 1
    tl.store(x, steps)


@triton.jit(noinline=True)
def _helper(a, b):
    return a * b, a + b


@case(dict(x="*i32", a="i32", b="i32"))
@triton.jit
def call(x, a, b):
    p, s = _helper(a, b)
    tl.store(x, p)
    tl.store(x + 1, s)


@case(dict(x=P, o="*fp8e4nv", q="*fp8e5", h="*fp16", b="*bf16"), dict(N=16))
@triton.jit
def casts(x, o, q, h, b, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    tl.store(o + i, v.to(tl.float8e4nv))
    tl.store(q + i, v.to(tl.float8e5))
    tl.store(h + i, v.to(tl.float16, fp_downcast_rounding="rtz"))
    tl.store(b + i, v.to(tl.bfloat16))


@case(dict(x=P, o=P), dict(N=16))
@triton.jit
def math(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    tl.store(o + i, tl.exp(v) + tl.log2(tl.abs(v) + 1) + tl.sqrt(tl.abs(v)) + tl.sin(v) * tl.cos(v) + tl.erf(v))
    tl.store(o + N + i, tl.floor(v) + tl.ceil(v) + tl.fma(v, v, v) + tl.clamp(v, -1.0, 1.0) + tl.sqrt_rn(tl.abs(v)))
    tl.store(o + 2 * N + i, tl.div_rn(v, 3.0) + tl.rsqrt(tl.abs(v) + 1) + tl.exp2(v) + tl.minimum(v, 0.5) + tl.maximum(v, 0.5, tl.PropagateNan.ALL))


@case(dict(x="*i32", o="*i32"), dict(N=16))
@triton.jit
def integers(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    tl.store(o + i, v // 3 + v % 5 + (v << 2) + (v >> 1) + (v & 7) + (v ^ i) + (v | 1) + tl.umulhi(v, v))
    u = v.to(tl.uint32, bitcast=True)
    tl.store(o + N + i, (u // 3 + u % 7 + (u >> 3)).to(tl.int32, bitcast=True) + (-v) + tl.abs(v) + (v > u.to(tl.int32)).to(tl.int32))


@case(dict(x=P, o=P), dict(N=8))
@triton.jit
def shapes(x, o, N: tl.constexpr):
    i = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    v = tl.load(x + i)
    t = tl.trans(v)
    j = tl.join(v, t)
    a, b = tl.split(tl.permute(j, (1, 0, 2)))
    r = tl.reshape(a + 2 * b, (N * N, ))
    tl.store(o + tl.arange(0, N * N), r)
    tl.store(o + N * N + tl.arange(0, 2 * N * N), tl.cat(r, r, can_reorder=True))


@case(dict(x="*fp16", o="*fp16", m="i32", n="i32"), dict(N=16))
@triton.jit
def descriptor(x, o, m, n, N: tl.constexpr):
    a = tl.make_tensor_descriptor(x, [m, n], [n, 1], [N, N])
    b = tl.make_tensor_descriptor(o, [m, n], [n, 1], [N, N])
    b.store([tl.program_id(0) * N, tl.program_id(1) * N], a.load([tl.program_id(0) * N, tl.program_id(1) * N]) + 1)
    b.atomic_add([0, 0], a.load([0, 0]))


@case(dict(d="tensordesc<fp16[16,32]>", o=P))
@triton.jit
def host_descriptor(d, o):
    i = tl.arange(0, 16)[:, None] * 32 + tl.arange(0, 32)[None, :]
    tl.store(o + i, d.load([0, 16]))


@case(dict(x="*fp16", n="i32"), dict(N=32), capability=100)
@triton.jit
def gather_rows(x, n, N: tl.constexpr):
    d = tl.make_tensor_descriptor(x, [n, 64], [64, 1], [1, 32], padding_option="nan")
    g = d.gather(tl.arange(0, 32) * 2, 0)
    d.scatter(g, tl.arange(0, 32), 32)


@triton.jit
def _pick(a, b):
    if a > b:
        return a
    else:
        return b * 2


@case(dict(x=P, y=P, o=P), dict(N=16))
@triton.jit
def map_elementwise(x, y, o, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, tl.map_elementwise(_pick, tl.load(x + i), tl.load(y + i)))


@case(dict(x="*i32", o="*i32"), dict(N=16))
@triton.jit
def inline_asm(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    tl.store(o + i, tl.inline_asm_elementwise("shf.l.wrap.b32 $0, $1, $2, 7;", "=r,r,r", [v, v], tl.int32, is_pure=False, pack=1))


@case(dict(x=P, n="i32"), dict(N=16), debug=True)
@triton.jit
def asserts(x, n, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    tl.device_assert(v >= 0, "negative value")
    tl.device_print("v", v)
    tl.device_print("n", n, hex=True)
    tl.assume(n > 0)
    tl.debug_barrier()
    tl.store(x + i, v * n)


@case(dict(x=P, o=P, n="i32"), dict(N=16))
@triton.jit
def libdevice(x, o, n, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i, mask=i < n, other=1.0, cache_modifier=".cg", eviction_policy="evict_last")
    w = tl.load(x + i, mask=i < n, volatile=True)
    tl.store(o + i, tl.extra.cuda.libdevice.tanh(v) + tl.extra.cuda.libdevice.pow(v, w), mask=i < n, cache_modifier=".cs", eviction_policy="evict_first")


@case(dict(x=P, o=P, n="i32"), dict(N=16))
@triton.jit
def pipelined(x, o, n, N: tl.constexpr):
    i = tl.arange(0, N)
    acc = tl.zeros((N, ), tl.float32)
    for k in tl.range(0, n, 2, num_stages=3, loop_unroll_factor=2):
        acc += tl.load(x + k * N + i)
    for k in tl.static_range(2):
        acc = acc * 2 + k
    tl.store(o + i, tl.multiple_of(tl.max_contiguous(acc, 4), 4))


@case(dict(a="*u8", sa="*u8", b="*u8", sb="*u8", c=P), dict(BM=128, BN=128, BK=64))
@triton.jit
def dot_scaled(a, sa, b, sb, c, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.arange(0, BM)
    n = tl.arange(0, BN)
    k = tl.arange(0, BK)
    s = tl.arange(0, BK // 32)
    x = tl.load(a + m[:, None] * BK + k[None, :])
    y = tl.load(b + k[:, None] * BN + n[None, :])
    xs = tl.load(sa + m[:, None] * (BK // 32) + s[None, :])
    ys = tl.load(sb + n[:, None] * (BK // 32) + s[None, :])
    tl.store(c + m[:, None] * BN + n[None, :], tl.dot_scaled(x, xs, "e4m3", y, ys, "e4m3"))


@case(dict(a=P, b=P, c=P), dict(N=32))
@triton.jit
def dot_precisions(a, b, c, N: tl.constexpr):
    i = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(a + i)
    y = tl.load(b + i)
    d = tl.dot(x, y) + tl.dot(x, y, input_precision="ieee") + tl.dot(x, y, input_precision="tf32x3")
    e = tl.dot(x.to(tl.float8e5), y.to(tl.float8e5), max_num_imprecise_acc=32)
    f = tl.dot(x.to(tl.int8), y.to(tl.int8), out_dtype=tl.int32)
    tl.store(c + i, d + e + f)


@case(dict(x="*i32"), dict(N=16))
@triton.jit
def random(x, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(x + i, tl.randint(42, i))


@case(dict(x="*i32", o="*i32"), dict(N=16))
@triton.jit
def sort(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(o + i, tl.sort(tl.load(x + i)))


@case(dict(q="*fp16", k="*fp16", v="*fp16", o="*fp16", n="i32", scale="fp32"), dict(B=32, D=16), aligned=("q", "k", "v", "o"))
@triton.jit
def attention(q, k, v, o, n, scale, B: tl.constexpr, D: tl.constexpr):
    r = tl.program_id(0) * B + tl.arange(0, B)
    d = tl.arange(0, D)
    x = tl.load(q + r[:, None] * D + d[None, :], mask=r[:, None] < n, other=0.0)
    top = tl.full((B, ), -float("inf"), tl.float32)
    total = tl.zeros((B, ), tl.float32)
    acc = tl.zeros((B, D), tl.float32)
    for j in range(0, n, B):
        c = j + tl.arange(0, B)
        kt = tl.load(k + c[None, :] * D + d[:, None], mask=c[None, :] < n, other=0.0)
        s = tl.dot(x, kt) * scale
        s = tl.where(c[None, :] < n, s, -float("inf"))
        now = tl.maximum(top, tl.max(s, 1))
        p = tl.exp(s - now[:, None])
        f = tl.exp(top - now)
        y = tl.load(v + c[:, None] * D + d[None, :], mask=c[:, None] < n, other=0.0)
        acc = acc * f[:, None] + tl.dot(p.to(tl.float16), y)
        total = total * f + tl.sum(p, 1)
        top = now
    tl.store(o + r[:, None] * D + d[None, :], (acc / total[:, None]).to(tl.float16), mask=r[:, None] < n)


@case(dict(x=P, mean=P, var=P, n="i32"), dict(N=32))
@triton.jit
def welford(x, mean, var, n, N: tl.constexpr):
    i = tl.arange(0, N)
    m = i < n
    v = tl.load(x + i, mask=m, other=0.0)
    mu = tl.sum(v) / n
    tl.store(mean, mu)
    tl.store(var, tl.sum(tl.where(m, (v - mu) * (v - mu), 0.0)) / n)


@case(dict(in0=P, in1=P, out=P, cond="*i1", n="i32"), dict(N=16))
@triton.jit
def branch_pointers(in0, in1, out, cond, n, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    m = i < n
    if tl.load(cond):
        a = in0
        b = in1
        c = out
    else:
        a = in0 + 1
        b = in1 + 1
        c = out + 1
    tl.store(c + i, tl.load(a + i, mask=m) + tl.load(b + i, mask=m), mask=m)


def main():
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "goldens")
    os.makedirs(folder, exist_ok=True)
    for name in sys.argv[1:] or CASES:
        text = ttir(*CASES[name]).replace(os.path.abspath(__file__), "make_goldens.py")
        # Locations inside Triton's own library would name the machine it is installed on.
        text = text.replace(os.path.dirname(os.path.abspath(triton.__file__)), "triton")
        with open(os.path.join(folder, name + ".ttir"), "w") as out:
            out.write(text)


if __name__ == "__main__":
    main()
