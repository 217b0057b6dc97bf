"""One kernel for each thing that a mutation analysis must see through. cases.txt says what each writes and reads."""
import triton
import triton.language as tl
from triton.language import load, store


@triton.jit
def inner(ptr, scalar_offset):
    tl.store(ptr + scalar_offset, 1.0)


@triton.jit
def outer(out_ptr, n_elements):
    inner(out_ptr, n_elements)


@triton.jit
def optional(in_ptr0, optional_ptr, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = i < n_elements
    v = tl.load(in_ptr0 + i, mask=mask)
    if optional_ptr is not None:
        v += tl.load(optional_ptr + i, mask=mask)
    tl.store(out_ptr + i, v, mask=mask)


@triton.jit
def add(in_ptr0, in_ptr1, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = i < n_elements
    tl.store(out_ptr + i, tl.load(in_ptr0 + i, mask=mask) + tl.load(in_ptr1 + i, mask=mask), mask=mask)


@triton.jit
def out_of_order(in_ptr0, n_elements, in_ptr1, out_ptr, BLOCK_SIZE: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = i < n_elements
    tl.store(out_ptr + i, tl.load(in_ptr0 + i, mask=mask) + tl.load(in_ptr1 + i, mask=mask), mask=mask)


@triton.jit
def add_out_last(in_ptr0, in_ptr1, n_elements, out_ptr, BLOCK_SIZE: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = i < n_elements
    tl.store(out_ptr + i, tl.load(in_ptr0 + i, mask=mask) + tl.load(in_ptr1 + i, mask=mask), mask=mask)


@triton.jit
def out_of_order_call(in_ptr0, n_elements, in_ptr1, out_ptr, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(0)
    offsets = pid * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    add_out_last(in_ptr0, in_ptr1, n_elements, out_ptr, BLOCK_SIZE=BLOCK_SIZE)


@triton.jit
def reduce_sum(a_ptr, c_ptr, stride_am, stride_an):
    m = tl.arange(0, 4)
    n = tl.arange(0, 4)
    a = tl.load(a_ptr + m[:, None] * stride_am + n[None, :] * stride_an)
    tl.store(c_ptr + m, tl.sum(a, axis=1))


@triton.jit
def argmax(a_ptr, c_ptr, stride_am, stride_an):
    m = tl.arange(0, 4)
    n = tl.arange(0, 4)
    a = tl.load(a_ptr + m[:, None] * stride_am + n[None, :] * stride_an)
    tl.store(c_ptr + m, tl.argmax(a, axis=1))


@triton.jit
def cumsum(in_ptr, out_ptr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    r = tl.arange(0, RBLOCK)[None, :]
    x = tl.load(in_ptr + r)
    scan = tl.cumsum(x, 1)
    total = tl.sum(x, 1)[:, None]
    tl.device_assert(scan <= total)
    tl.store(out_ptr + r, scan)


@triton.jit
def helper_id(p):
    return p


@triton.jit
def one_return(in_ptr0, in_ptr1, n_elements, out_ptr, BLOCK_SIZE: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = i < n_elements
    x = tl.load(in_ptr0 + i, mask=mask)
    y = tl.load(in_ptr1 + i, mask=mask)
    out = helper_id(out_ptr)
    tl.store(out + i, x + y, mask=mask)


@triton.jit
def helper_add_and_out(x, y, out_ptr):
    return x + y, out_ptr


@triton.jit
def multi_return(in_ptr0, in_ptr1, n_elements, out_ptr, BLOCK_SIZE: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = i < n_elements
    output, out = helper_add_and_out(tl.load(in_ptr0 + i, mask=mask), tl.load(in_ptr1 + i, mask=mask), out_ptr)
    tl.store(out + i, output, mask=mask)


@triton.jit
def nested_cond(in_ptr0, in_ptr1, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    i = tl.arange(0, BLOCK_SIZE)
    mask = i < n_elements
    x = tl.load(in_ptr0 + i, mask=mask)
    y = tl.load(in_ptr1 + i, mask=mask)
    if tl.program_id(0) == 0:
        if tl.program_id(1) == 0:
            tl.store(out_ptr + i, x + y, mask=mask)
    else:
        pass


@triton.jit
def for_loop(in_ptr0, in_ptr1, out_ptr, n_elements: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = i < n_elements
    x = tl.load(in_ptr0 + i, mask=mask)
    y = tl.load(in_ptr1 + i, mask=mask)
    acc = tl.zeros((BLOCK_SIZE, ), dtype=tl.float32)
    for k in range(4):
        acc += x + y
    tl.store(out_ptr + i, acc, mask=mask)


@triton.jit
def for_loop2(in_ptr0, in_ptr1, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = i < n_elements
    x = tl.load(in_ptr0 + i, mask=mask)
    y = tl.load(in_ptr1 + i, mask=mask)
    for k in range(0, BLOCK_SIZE):
        k = tl.multiple_of(k, 1)
    tl.store(out_ptr + i, x + y, mask=mask)


@triton.jit
def nested_for(in_ptr0, in_ptr1, out_ptr, n_elements: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = i < n_elements
    x = tl.load(in_ptr0 + i, mask=mask)
    y = tl.load(in_ptr1 + i, mask=mask)
    acc = tl.zeros((BLOCK_SIZE, ), dtype=tl.float32)
    for k in range(2):
        for j in range(2):
            acc += x + y
    tl.store(out_ptr + i, acc, mask=mask)


@triton.jit
def nested_for_multi_return(in_ptr0, in_ptr1, out_ptr, n_elements: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = i < n_elements
    x = tl.load(in_ptr0 + i, mask=mask)
    y = tl.load(in_ptr1 + i, mask=mask)
    acc1 = tl.zeros((BLOCK_SIZE, ), dtype=tl.float32)
    acc2 = tl.zeros((BLOCK_SIZE, ), dtype=tl.float32)
    for k in range(2):
        for j in range(2):
            acc1 += y
            acc2 += x
    tl.store(out_ptr + i, acc1 + acc2, mask=mask)


@triton.jit
def labels(in_ptr0, in_ptr1, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(0)
    if pid > 1:
        return
    i = pid * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = i < n_elements
    tl.store(out_ptr + i, tl.load(in_ptr0 + i, mask=mask) + tl.load(in_ptr1 + i, mask=mask), mask=mask)


@triton.jit
def for_loop_arg(X_ptr, W1_ptr, b1_ptr, O_ptr, M: tl.constexpr, C1: tl.constexpr, C2: tl.constexpr, BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_C2: tl.constexpr):
    pid_m = tl.program_id(0)
    offs_c1 = tl.arange(0, C1)
    offs_m = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
    x = tl.load(X_ptr + offs_m[:, None] * C1 + offs_c1[None, :], mask=offs_m[:, None] < M, other=0.0)
    for c2 in range(0, tl.cdiv(C2, BLOCK_SIZE_C2)):
        offs_c2 = c2 * BLOCK_SIZE_C2 + tl.arange(0, BLOCK_SIZE_C2)
        o_ptrs = O_ptr + offs_m[:, None] * C2 + offs_c2[None, :]
        w1_ptrs = W1_ptr + offs_c1[:, None] * C2 + offs_c2[None, :]
        b1_ptrs = b1_ptr + offs_c2
        w = tl.load(w1_ptrs)
        bias = tl.load(b1_ptrs)
        o = tl.dot(x, w, allow_tf32=False) + bias[None, :]
        tl.store(o_ptrs, o, mask=offs_m[:, None] < M)


@triton.jit
def for_loop_arg_2(x_ptr, o_ptr, M, N, stride_m, stride_n, BLOCK_B: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    block_start = tl.program_id(0) * BLOCK_M
    x_block = tl.make_block_ptr(base=x_ptr, shape=(M, N), strides=(stride_m, stride_n), offsets=(block_start, 0), block_shape=(BLOCK_M, BLOCK_N), order=(1, 0))
    o_block = tl.make_block_ptr(base=o_ptr, shape=(M, N), strides=(stride_m, stride_n), offsets=(block_start, 0), block_shape=(BLOCK_M, BLOCK_N), order=(1, 0))
    for _ in range(BLOCK_B):
        x = tl.load(x_block)
        tl.store(o_block, x)
        x_block = tl.advance(x_block, (BLOCK_M, 0))
        o_block = tl.advance(o_block, (BLOCK_M, 0))


@triton.jit
def while_loop(x_ptr, o_ptr, M, N, stride_m, stride_n, BLOCK_B: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    block_start = tl.program_id(0) * BLOCK_M
    x_block = tl.make_block_ptr(base=x_ptr, shape=(M, N), strides=(stride_m, stride_n), offsets=(block_start, 0), block_shape=(BLOCK_M, BLOCK_N), order=(1, 0))
    o_block = tl.make_block_ptr(base=o_ptr, shape=(M, N), strides=(stride_m, stride_n), offsets=(block_start, 0), block_shape=(BLOCK_M, BLOCK_N), order=(1, 0))
    i = 0
    while i < BLOCK_B:
        x = tl.load(x_block)
        tl.store(o_block, x)
        x_block = tl.advance(x_block, (BLOCK_M, 0))
        o_block = tl.advance(o_block, (BLOCK_M, 0))
        i += 1


@triton.jit
def branch_yields(in_ptr0, in_ptr1, out_ptr, conditional_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = i < n_elements
    if tl.load(conditional_ptr):
        in0 = in_ptr0 + 1
        in1 = in_ptr1 + 1
        out = out_ptr + 1
    else:
        in0 = in_ptr0
        in1 = in_ptr1
        out = out_ptr
    x = tl.load(in0 + i, mask=mask)
    y = tl.load(in1 + i, mask=mask)
    tl.store(out + i, x + y, mask=mask)


@triton.jit
def device_descriptors(a_ptr, b_ptr, c_ptr, m, n, workspace, BLOCK_SIZE: tl.constexpr):
    a = tl.make_tensor_descriptor(a_ptr, shape=[m, n], strides=[n, 1], block_shape=[BLOCK_SIZE, BLOCK_SIZE])
    b = tl.make_tensor_descriptor(b_ptr, shape=[m, n], strides=[n, 1], block_shape=[BLOCK_SIZE, BLOCK_SIZE])
    c = tl.make_tensor_descriptor(c_ptr, shape=[m, n], strides=[n, 1], block_shape=[BLOCK_SIZE, BLOCK_SIZE])
    offset_x = tl.program_id(0) * BLOCK_SIZE
    offset_y = tl.program_id(1) * BLOCK_SIZE
    x = tl.load_tensor_descriptor(a, [offset_x, offset_y])
    y = tl.load_tensor_descriptor(b, [offset_x, offset_y])
    tl.store_tensor_descriptor(c, [offset_x, offset_y], x + y)


@triton.jit
def descriptor_methods(in_ptr0, in_ptr1, out_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    a = tl.make_tensor_descriptor(in_ptr0, shape=[M, N], strides=[N, 1], block_shape=[BLOCK_M, BLOCK_N])
    b = tl.make_tensor_descriptor(in_ptr1, shape=[M, N], strides=[N, 1], block_shape=[BLOCK_M, BLOCK_N])
    c = tl.make_tensor_descriptor(out_ptr, shape=[M, N], strides=[N, 1], block_shape=[BLOCK_M, BLOCK_N])
    off_m = tl.program_id(0) * BLOCK_M
    off_n = tl.program_id(1) * BLOCK_N
    c.store([off_m, off_n], a.load([off_m, off_n]) + b.load([off_m, off_n]))


@triton.autotune(configs=[triton.Config({"BLOCK_SIZE_X": 8, "BLOCK_SIZE_Y": 4}), triton.Config({"BLOCK_SIZE_X": 16, "BLOCK_SIZE_Y": 8})], key=[])
@triton.jit
def autotuned_2d(in_ptr0, in_ptr1, out_ptr, x_elements, y_elements, BLOCK_SIZE_X: tl.constexpr, BLOCK_SIZE_Y: tl.constexpr):
    x = tl.program_id(0) * BLOCK_SIZE_X + tl.arange(0, BLOCK_SIZE_X)[:, None]
    y = tl.program_id(1) * BLOCK_SIZE_Y + tl.arange(0, BLOCK_SIZE_Y)[None, :]
    mask = (x < x_elements) & (y < y_elements)
    a = tl.load(in_ptr0 + (x + y * x_elements), mask)
    b = tl.load(in_ptr0 + (x + y * x_elements), mask)
    tl.store(out_ptr + (x + y * x_elements), a + b, mask)


@triton.jit
def mul2_inplace(ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = i < n_elements
    tl.store(ptr + i, 2 * tl.load(ptr + i, mask=mask), mask=mask)


@triton.jit
def indirection(in_ptr0, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr, ACTIVATION: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = i < n_elements
    if ACTIVATION == "mul2_inplace_kernel":
        mul2_inplace(in_ptr0, n_elements, BLOCK_SIZE=BLOCK_SIZE)
    elif ACTIVATION == "add_kernel":
        add(in_ptr0, in_ptr0, out_ptr, n_elements, BLOCK_SIZE=BLOCK_SIZE)
    tl.store(out_ptr + i, tl.load(in_ptr0 + i, mask=mask), mask=mask)


@triton.jit
def assembly(X, Y, Z, n: tl.constexpr, BLOCK: tl.constexpr, PURE: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(X + i)
    y = tl.load(Y + i)
    s = tl.full([BLOCK], n, tl.int32)
    z = tl.inline_asm_elementwise("shf.l.wrap.b32 $0, $1, $2, $3;", "=r,r, r, r", [x, y, s], dtype=tl.int32, is_pure=PURE, pack=1)
    tl.store(Z + i, z)


@triton.jit
def block_pointers(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    start = tl.program_id(0) * BLOCK_SIZE
    x = tl.load(tl.make_block_ptr(base=x_ptr, shape=[n_elements], strides=[1], offsets=[start], block_shape=[BLOCK_SIZE], order=[0]), boundary_check=[0])
    y = tl.load(tl.make_block_ptr(base=y_ptr, shape=[n_elements], strides=[1], offsets=[start], block_shape=[BLOCK_SIZE], order=[0]), boundary_check=[0])
    tl.store(tl.make_block_ptr(base=output_ptr, shape=[n_elements], strides=[1], offsets=[start], block_shape=[BLOCK_SIZE], order=[0]), x + y, boundary_check=[0])


@triton.jit
def block_pointers_2d(x_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    start = tl.program_id(0) * BLOCK_SIZE
    x = tl.load(tl.make_block_ptr(base=x_ptr, shape=[n_elements, 1], strides=[1, 1], offsets=[start, 0], block_shape=[BLOCK_SIZE, 1], order=[1, 0]), boundary_check=[0])
    tl.store(tl.make_block_ptr(base=output_ptr, shape=[n_elements, 1], strides=[1, 1], offsets=[start, 0], block_shape=[BLOCK_SIZE, 1], order=[1, 0]), x, boundary_check=[0])


@triton.jit
def add_with_import(in_ptr0, in_ptr1, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = i < n_elements
    store(out_ptr + i, load(in_ptr0 + i, mask=mask) + load(in_ptr1 + i, mask=mask), mask=mask)


@triton.jit
def atomic_add(in_ptr0, in_ptr1, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = i < n_elements
    tl.atomic_add(out_ptr + i, tl.load(in_ptr0 + i, mask=mask) + tl.load(in_ptr1 + i, mask=mask), mask=mask)


@triton.jit
def add_4_times(in_ptr0, in_ptr1, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = i < n_elements
    output = tl.load(in_ptr0 + i, mask=mask) + tl.load(in_ptr1 + i, mask=mask)
    for k in range(2):
        tl.store(out_ptr + i, output, mask=mask)
    k = 2
    while k > 0:
        k -= 1
        tl.store(out_ptr + i, output, mask=mask)


@triton.jit
def cond_op(in_ptr0, in_ptr1, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(0)
    i = pid * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = i < n_elements
    x = tl.load(in_ptr0 + i, mask=mask)
    y = tl.load(in_ptr1 + i, mask=mask)
    if pid == 0:
        output = x + y
    else:
        output = x * y
    tl.store(out_ptr + i, output, mask=mask)
