"""Indices and masks that leave the straight line: they wrap around in their type, repeat, turn over at a modulus, or are used both as a mask and
as a value. What holds at the first vector, or at the corners of a block, does not hold everywhere."""
import triton
import triton.language as tl


@triton.jit
def mask_and_value(o, S):
    r, i = tl.arange(0, 8), tl.arange(0, 64)
    m = ((r >= 0) & (r < 7) & (r + S < 11))[:, None] & ((i < 45) & (i + S < 60) & (i * 1 < 50))[None, :]
    p = r[:, None] * 64 + i[None, :]
    s = tl.sum(tl.load(o + p, mask=m, other=0), 1)
    tl.store(o + 512 + p, s[:, None] + p, mask=m)


@triton.jit
def part_of_mask(o, S):
    r, i = tl.arange(0, 8), tl.arange(0, 64)
    c = ((r >= 0) & (r < 7) & (r + S < 11))[:, None] & ((i < 45) & (i + S < 60) & (i * 1 < 50))[None, :]
    p = r[:, None] * 64 + i[None, :]
    v = tl.load(o + p, mask=c & (i < 40)[None, :], other=0)
    s = tl.sum(v, 1)
    tl.store(o + 512 + p, s[:, None] + p, mask=c)


@triton.jit
def index_in_mask(o, S):
    i = tl.arange(0, 256)
    d = ((i * 3 - i) * 2 - i * 3 + S) * 5 - (i + S) * 4
    s = tl.sum(tl.load(o + i, mask=(d < 240) & (i < 200), other=0))
    tl.store(o + 300 + i, s + d)


@triton.jit
def mask_carried(o, S):
    r, i = tl.arange(0, 8), tl.arange(0, 64)
    m = ((r >= 0) & (r < 7) & (r + S < 11))[:, None] & ((i < 45) & (i + S < 60) & (i * 1 < 50))[None, :]
    p = r[:, None] * 64 + i[None, :]
    acc = tl.load(o + p, mask=m, other=0)
    for k in range(0, S):
        acc += acc * k + 1
    tl.store(o + 512 + p, acc, mask=m)
    tl.atomic_add(o + p, acc, mask=m)


@triton.jit
def carried_never(o, S, n):
    i = tl.arange(0, 64)
    d = ((i * 3 - i) * 2 - i * 3 + S) * 5 - (i + S) * 4 + (i ^ 3) * 2 - (i | 5)
    at = d
    for k in range(0, n):
        s = tl.sum(at * at, 0)
        tl.store(o + k, s)
        at += 1
    tl.store(o + 64 + i, d + at)


@triton.jit
def rotary(x, c, s, y, n, TR: tl.constexpr, R: tl.constexpr, B: tl.constexpr):
    t = tl.program_id(0) * B + tl.arange(0, B)
    r = tl.arange(0, R)
    if n < 1:
        return
    m = (t < n) & (t + 5 < TR) & (t * 2 < 2 * n)
    mask = m[:, None] & (r < R)[None, :]
    cos = tl.load(c + (t + 5)[:, None] * R + r[None, :], mask=mask, other=1.0)
    sin = tl.load(s + (t + 5)[:, None] * R + r[None, :], mask=mask, other=0.0)
    p = x + t[:, None] * 2 * R + r[None, :]
    a = tl.load(p, mask=mask, other=0.0)
    b = tl.load(p + R, mask=mask, other=0.0)
    q = y + t[:, None] * 2 * R + r[None, :]
    tl.store(q, a * cos - b * sin, mask=mask)
    tl.store(q + R, a * sin + b * cos, mask=mask)


@triton.jit
def repeating_masks(o):
    i = tl.arange(0, 256)
    tl.store(o + i, i, mask=(i & 63) < 20)
    tl.store(o + 256 + i, i, mask=i.to(tl.uint32) % 64 < 20)
    tl.store(o + 512 + i, i, mask=i % 64 < 20)
    tl.store(o + 768 + i, i, mask=20 > (i & 63))
    r, c = tl.arange(0, 4), tl.arange(0, 64)
    tl.store(o + 1024 + r[:, None] * 64 + c[None, :], -1, mask=((c & 31) < 20)[None, :])


@triton.jit
def reshaped_mask(o):
    i = tl.arange(0, 256)
    j = tl.reshape(tl.broadcast_to(tl.arange(0, 64)[None, :], [4, 64]), [256])
    tl.store(o + i, i, mask=j < 20)


@triton.jit
def bent_mask(o, S):
    i = tl.arange(0, 256)
    tl.store(o + i, i + 1, mask=i + (i & 64) * S < 150)
    tl.store(o + 256 + i, i + 1, mask=i + (i >> 6) * S < 150)
    tl.store(o + 512 + i, i + 1, mask=(i ^ (i & 128)) < 50)


@triton.jit
def narrow_mask(o, n):
    i = tl.arange(0, 256)
    tl.store(o + i, i, mask=i.to(tl.int8) < 5)
    tl.store(o + 256 + i, i, mask=i.to(tl.int8) <= n.to(tl.int8))
    tl.store(o + 512 + i, i, mask=(i * 300).to(tl.int16) < 500)
    tl.store(o + 768 + i, i, mask=i.to(tl.int8).to(tl.int32) < 5)


@triton.jit
def wrapping_mask(o, n, m):
    i = tl.arange(0, 128)
    tl.store(o + i, i, mask=i + n < 5)
    tl.store(o + 128 + i, i, mask=i + n <= 2147483647)
    tl.store(o + 256 + i, i, mask=5 >= i + n)
    tl.store(o + 384 + i, i, mask=i + m.to(tl.int64) < 5)
    tl.store(o + 512 + i, i, mask=i.to(tl.int64) - 9223372036854775807 < m)
    tl.store(o + 640 + i, i, mask=m >= i.to(tl.int64) - 9223372036854775807 - 1)


@triton.jit
def shifted_narrow(o, S):
    i = tl.arange(0, 256)
    tl.store(o + i, (i + S).to(tl.uint8).to(tl.int32))
    tl.store(o + 256 + i, (i.to(tl.uint8) - S.to(tl.uint8)).to(tl.int32))
    tl.store(o + 512 + i, (i + S).to(tl.int8).to(tl.int32))
    tl.store(o + 768 + i, ((i - S).to(tl.uint32).to(tl.int64) >> 8).to(tl.int32))
    tl.store(o + 1024 + i, (i.to(tl.int16) * 300).to(tl.int32))
    tl.store(o + 1280 + i, (i.to(tl.int16) * S.to(tl.int16) * 250).to(tl.int32))


@triton.jit
def shifted_address(x, o, S):
    i = tl.arange(0, 256)
    tl.store(o + i, tl.load(x + (i + S).to(tl.uint8).to(tl.int32)))
    tl.store(o + 256 + i, tl.load(x + (i + S).to(tl.uint8)))
    tl.store(o + 512 + i, tl.load(x + (i - S).to(tl.uint32), mask=i >= S, other=-1))
    tl.store(o + 768 + 128 + (i + S).to(tl.int8), i)


@triton.jit
def rows_beyond_remainder(x, y, f, S, M, K):
    r, k = (S + tl.arange(0, 16)) % M, tl.arange(0, 16)
    a = tl.load(x + r[:, None] * 16 + k[None, :], mask=(r < 5)[:, None] & (k < K)[None, :], other=0)
    b = tl.load(y + k[:, None] * 16 + k[None, :])
    tl.store(f + tl.arange(0, 16)[:, None] * 16 + k[None, :], tl.dot(a, b, input_precision="ieee"))


@triton.jit
def rows_that_wrap(x, y, f, K, C: tl.constexpr):
    r, k = tl.arange(0, 16), tl.arange(0, 16)
    m = ((r + C) < C + 6)[:, None] & (k < K)[None, :]
    a = tl.load(x + r[:, None] * 16 + k[None, :], mask=m, other=0)
    b = tl.load(y + k[:, None] * 16 + k[None, :], mask=((k + C) < C + 6)[:, None] & (k < K)[None, :], other=0)
    tl.store(f + r[:, None] * 16 + k[None, :], tl.dot(a, b, input_precision="ieee"))


@triton.jit
def columns_that_wrap(x, y, f, S):
    r, k = tl.arange(0, 16), tl.arange(0, 16)
    c = (k + S).to(tl.uint8).to(tl.int32)
    a = tl.load(x + (r[:, None] * 16 + c[None, :]).to(tl.uint8))
    b = tl.load(y + c[:, None] + k[None, :] * 16 % 256)
    tl.store(f + r[:, None] * 16 + k[None, :], tl.dot(a, b, input_precision="ieee"))


@triton.jit
def remainder_that_wraps(o, S, M):
    i = tl.arange(0, 16)
    tl.store(o + i, (S + i) % M)


@triton.jit
def short_tiles(n, x, y, z):
    p = tl.program_id(0)
    a = tl.arange(0, 4)
    for k in range(0, 3):
        m = (a < 1) & (p < 2)
        v = tl.load(x + a * n + tl.zeros([4], tl.int32), mask=m, other=0)
        tl.store(y + k * 4 + a, v, mask=m)
        tl.store(z + k * 4 + a, (v * 10).to(tl.int8), mask=m)


@triton.jit
def one_address(x, o, S, n):
    i = tl.arange(0, 16)
    at = tl.zeros([16], tl.int32) + S
    tl.store(o + i, tl.load(x + at, mask=at < n, other=-7))


@triton.jit
def panels_kept(x, w, o, sw):
    # What one program packs for the next must not lie where that one's large sum does.
    p = tl.program_id(0)
    r, c, k = tl.arange(0, 256), tl.arange(0, 128), tl.arange(0, 16)
    q = tl.arange(0, 64)
    large = tl.cumsum(tl.load(x + (r[:, None] + c[None, :] + p) % 64), 1)
    small = tl.cumsum(tl.load(x + (q[:, None] + k[None, :] + p) % 64), 1)
    s = tl.max(tl.max(large, 1), 0) + tl.max(tl.max(small, 1), 0)
    m = tl.arange(0, 32)
    a = tl.load(x + m[:, None] + k[None, :])
    b = tl.load(w + k[:, None] * sw + k[None, :])
    tl.store(o + p * 512 + m[:, None] * 16 + k[None, :], tl.dot(a, b, input_precision="ieee") + s)


def short_tiles_expected(x, y, z):
    # Triton's interpreter does not take a mask that a scalar condition is part of.
    y[[0, 4, 8]] = x[0].to(y.dtype)
    z[[0, 4, 8]] = (x[0] * 10).to(z.dtype)


O = "i32[%d]:-9,9"
CASES = [
    dict(kernel="mask_and_value", args=[O % 1024, 4]),
    dict(kernel="part_of_mask", args=[O % 1024, 4]),
    dict(kernel="index_in_mask", args=[O % 600, 4]),
    dict(kernel="mask_carried", args=[O % 1024, 4]),
    dict(kernel="carried_never", args=[O % 128, 4, 0]),
    dict(kernel="carried_never", name="carried_thrice", args=[O % 128, 4, 3]),
    dict(kernel="rotary", grid=(2, ), args=["f32[384]", "f32[640]", "f32[640]", "f32[384]", 12], const=dict(TR=30, R=16, B=8)),
    dict(kernel="repeating_masks", args=[O % 1280]),
    dict(kernel="reshaped_mask", args=[O % 256]),
    dict(kernel="bent_mask", args=[O % 768, 4]),
    dict(kernel="narrow_mask", args=[O % 1024, -3]),
    dict(kernel="wrapping_mask", args=[O % 768, 2147483594, 2147483594]),
    dict(kernel="wrapping_mask", name="wrapping_mask_low", args=[O % 768, 3, -9223372036854775807]),
    dict(kernel="shifted_narrow", args=[O % 1536, 4]),
    dict(kernel="shifted_narrow", name="shifted_narrow_back", args=[O % 1536, -7]),
    dict(kernel="shifted_address", args=[O % 512, O % 1024, 4]),
    dict(kernel="rows_beyond_remainder", args=["f32[256]", "f32[256]", "f32[256]", 3, 8, 16]),
    dict(kernel="rows_beyond_remainder", name="rows_within_remainder", args=["f32[512]", "f32[256]", "f32[256]", 3, 24, 16]),
    dict(kernel="rows_that_wrap", args=["f32[256]", "f32[256]", "f32[256]", 16], const=dict(C=2147483640)),
    dict(kernel="columns_that_wrap", args=["f32[256]", "f32[512]", "f32[256]", 250]),
    dict(kernel="remainder_that_wraps", args=[O % 16, 2147483640, 48]),
    dict(kernel="one_address", args=[O % 16, O % 16, 2147483640, 16]),
    dict(kernel="one_address", name="one_address_within", args=[O % 16, O % 16, 3, 16]),
    dict(kernel="panels_kept", grid=(4, ), args=["f32[64]", "f32[400]", "f32[2048]", 25], tol=1e-4),
    dict(kernel="short_tiles", args=[2, "f32[16]", "bf16[16]", "i8[16]:-9,9"], expect=short_tiles_expected),
]
