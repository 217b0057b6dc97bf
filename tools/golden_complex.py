"""Single-operator cases of complex numbers: functions, also at infinity and on branch cuts, reductions, places, products, factorisations."""
import math

import torch

from golden_ops import Case, c

L = torch.linalg
FUNCTIONS = ["exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
             "asinh", "acosh", "atanh", "sigmoid", "reciprocal", "sgn", "abs", "angle", "square", "sinc"]
# Those that agree with C at infinity and on branch cuts; the others are what PyTorch's own loops make of them.
OF_C = ["log", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "reciprocal", "sgn", "abs", "angle"]


def grid(dtype, *parts):
    return torch.tensor([complex(x, y) for x in parts for y in parts], dtype=dtype)


def wide(f, *more):
    """f of complex128, of which inputs come as two parts."""
    return lambda re, im, *rest: f(torch.complex(re, im), *rest)


def all_of(names):
    return lambda z: tuple(getattr(torch, name)(z) for name in names)


def functions():
    cuts = grid(torch.complex64, 0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0)
    result = [c(f"{name}_{k}", all_of(FUNCTIONS[k::4]), "c64 3x5") for k, name in enumerate(["first", "second", "third", "fourth"])]
    result += [c(f"wide_{k}", wide(all_of(FUNCTIONS[k::4])), "f64 3x5", "f64 3x5") for k in range(4)]
    result += [c(f"cuts_{k}", all_of([n for n in OF_C if n != "sgn"][k::3]), cuts) for k in range(3)]
    infinite = grid(torch.complex64, 0.0, -0.0, 1.5, -2.0, math.inf, -math.inf)
    result += [c(f"infinite_{k}", all_of(names), infinite) for k, names in enumerate([["sqrt", "log", "angle"], ["sinh", "cosh", "tanh"], ["asinh", "acosh"], ["acos", "asin"], ["reciprocal", "abs"]])]
    # One of both parts is far from one, where squares and exponentials overflow.
    far = torch.tensor([1e30 + 1e30j, 1e-30 + 1e-30j, 3e38 + 1e-3j, 1e-42 + 0j, 88.9 + 1j, -88.9 - 2j, 40 + 3j, 1e20j, -1e20 + 1j, 1e-20 + 1j], dtype=torch.complex64)
    result += [c("far_roots", all_of(["sqrt", "log", "abs", "asinh", "acosh", "acos", "atanh"]), far), c("far_hyperbolic", lambda z: (z.sinh(), z.cosh(), z.tanh(), (z * 1j).tan()), torch.tensor([88.9 + 1j, -88.9 - 2j, 40 + 3j, -20 + 0.5j, 60j + 1e-20], dtype=torch.complex64))]
    result += [c("near_one", lambda z: (z.log(), (z - 1).log1p()), torch.polar(1 + 1e-4 * torch.arange(-4., 5.), torch.arange(9.)))]
    result += [c("activations", lambda z: (torch.nn.functional.silu(z), torch.nn.functional.softsign(z), torch.nn.functional.tanhshrink(z)), "c64 7"), c("logaddexp", torch.logaddexp, "c64 9", "c64 9")]
    return result


def powers():
    zeros = torch.tensor([0, 0, 1 + 1j, -2], dtype=torch.complex64)
    numbers = [0, 1, 2, 3, 0.5, -0.5, -1, -2, 2.5, 1 + 2j]
    return [c("tensors", torch.pow, "c64 12", "c64 12"), c("tensors_c128", lambda a, b, x: torch.complex(a, b) ** x, "f64 5", "f64 5", "f64 5"), c("real_base", lambda x, z: x ** z, "f32 6 >0", "c64 6"),
            c("numbers", lambda z: tuple(z ** n for n in numbers), "c64 7"), c("bases", lambda z: (torch.pow(1, z), torch.pow(2.5, z), torch.pow(1 - 1j, z)), "c64 7"),
            c("of_zero", lambda z: (z ** 2.5, z ** (2 + 1j), z ** 0, torch.pow(0, z)), zeros), c("by_number", lambda x: x ** (1 + 2j), "f32 5 >0"),
            c("float_power", lambda z: (torch.float_power(z, 2), torch.float_power(z, z), torch.float_power(2, z)), "c64 5"), c("ldexp", torch.ldexp, "c64 5", "c64 5")]


def arithmetic():
    b = torch.tensor([1 + 1j, 0, 2j, -3, 1e30 + 1e30j], dtype=torch.complex64)
    return [c("quotients", lambda a, b: (a / b, 1 / b, a / 2, a / 1j), "c64 5", b), c("numbers", lambda x, z: (x * 1j, x + (1 + 2j), z * (0.5 - 1j), z - 2j, 3 / z, torch.add(z, x, alpha=1j), torch.rsub(z, 1j)), "f32 5", "c64 5"),
            c("numbers_c128", lambda x: (x * 1j, x + 1j, (x * 1j).to(torch.complex64)), "f64 4"), c("comparisons", lambda z, w: (z == w, z != w, z == 0.1 + 0.2j, torch.isclose(z, w), z.isnan(), torch.logical_and(z, w)), "c64 6", "c64 6"),
            c("choices", lambda m, z, x: (torch.where(m, z, x), torch.where(m, z, 1j), z.masked_fill(m, 2 - 1j), x.masked_fill(m, 3)), "bool 6", "c64 6", "f32 6"),
            c("blends", lambda z, w: (torch.addcmul(z, z, w, value=1j), torch.addcdiv(z, z, w, value=2), torch.lerp(z, w, 0.25), torch.nan_to_num(z / 0, 1, 2, 3).abs()), "c64 5", "c64 5"),
            c("polar", lambda r, a: (torch.polar(r, a), torch.complex(r, a).conj() * 2, torch.view_as_real(torch.complex(r, a).conj().resolve_conj())), "f32 5 >0", "f32 5"),
            Case("constant", lambda z: z * torch.tensor(1 + 2j) + torch.tensor([1j, 2, 3 - 1j]), lambda: (torch.randn(3, dtype=torch.complex64),))]


def reductions():
    return [c("sums", lambda z: (z.sum(0), z.mean(1), z.prod(1), z.prod(), z.cumsum(0), z.cumprod(1), z.logcumsumexp(1), torch.logsumexp(z, 1), z.trace()), "c64 3x5"),
            c("sums_c128", wide(lambda z: (z.sum(0), z.mean(1), z.prod(0), z.cumprod(0), z.cumprod(1))), "f64 6x4", "f64 6x4"), c("spread", lambda z: (z.var(0), z.std(1, correction=0), *torch.var_mean(z, 1), *torch.std_mean(z)), "c64 4x5"),
            c("spread_of_none", lambda z: (*torch.std_mean(z, 1), z.prod(1)), "c64 3x0"), c("root_mean_square", lambda z, w: (torch.nn.functional.rms_norm(z, (5,), w), torch.nn.functional.rms_norm(z, (4, 5), eps=0.1)), "c64 3x4x5", "c64 5"),
c("norms", lambda z: (L.vector_norm(z), L.vector_norm(z, 1, 0), L.vector_norm(z, math.inf, 1), L.vector_norm(z, 0), torch.dist(z, z.conj() * 2), torch.renorm(z, 2, 0, 1.0)), "c64 4x5"),
            c("logic", lambda z: (z.any(0), z.all(1), z.count_nonzero(1), z.nonzero_static(size=3)), torch.tensor([[0, 1j, 2], [0, 0, 1]], dtype=torch.complex64)),
            c("differences", lambda z: (torch.gradient(z)[0], torch.diff(z), torch.trapezoid(z), torch.cumulative_trapezoid(z)), "c64 9"),
            Case("running_product_of_any_size", lambda z: z.cumprod(0), lambda: (torch.randn(5, dtype=torch.complex64),), dynamic=({0: torch.export.Dim("n", min=2, max=64)},), more=[lambda: (torch.randn(33, dtype=torch.complex64),), lambda: (torch.randn(2, dtype=torch.complex64),)])]


def places():
    i = torch.tensor([2, 0, 2])
    # Where scatter meets an element twice, any of the values may stay.
    rows, once = torch.tensor([[0, 1, 0], [3, 1, 2]]), torch.tensor([[0, 1], [3, 2]])
    return [c("put", lambda z, v: (z.index_put((i[:2],), v[:2]), z.index_put((i,), v, accumulate=True), z.index_put((i[:2],), torch.tensor(1j)), z.index_fill(0, i[:2], 2 - 1j)), "c64 4x3", "c64 3x3"),
            c("add", lambda z, v: (z.index_add(0, i, v), z.index_add(0, i, v, alpha=2), z.index_copy(0, i[:2], v[:2]), z.index_select(0, i), z[i]), "c64 4x3", "c64 3x3"),
            c("scatter", lambda z, v: (z.scatter(0, once, v), z.scatter_add(0, rows, v), z.scatter(0, rows, 3 + 1j), z.gather(0, rows), z.put(rows, v, accumulate=True)), "c64 4x3", "c64 2x3"),
            c("collected", lambda z, v: (z.index_reduce(0, i, v, "prod"), z.index_reduce(1, i, z.flip(0), "mean"), z.scatter_reduce(0, rows, v[:2], "prod"),
                                         z.scatter_reduce(0, rows, v[:2], "mean", include_self=False), z.scatter(1, rows[:, :2] % 3, v[:2, :2], reduce="multiply")), "c64 4x3", "c64 3x3"),
            c("masked", lambda z, m, v: (z.masked_scatter(m, v), torch.where(m, z, 0), z.take(rows)), "c64 4x3", "bool 4x3", "c64 12"),
            c("diagonals", lambda z: (torch.diag_embed(z), torch.diag(z[0]), torch.diagonal_scatter(z, z[0, :3] * 2), z.diagflat()), "c64 3x4"),
            c("made", lambda z: (torch.eye(3, 2, dtype=z.dtype) + 0 * z.sum(), torch.full((2, 2), 1 + 2j) * z.sum(), z.new_full((2,), 1j), torch.zeros_like(z), torch.linspace(0, 1 + 1j, 5) * z[0, 0], L.vander(z[0], N=4)), "c64 3x4"),
            c("logspace", lambda z: (torch.logspace(0, 1 + 1j, 6, base=2) * z[0, 0], torch.logspace(z[0, 0], z[0, 1], 5, dtype=z.dtype), torch.logspace(z[0, 0], 2, 1, dtype=z.dtype)), "c64 3x4",
              raw_only="its decomposition drops the imaginary parts of tensors"),
            c("joined", lambda z, x: (torch.cat([z, x]), torch.stack([z, z.conj()]), z.roll(1, 1), z.flip(0), torch.nn.functional.pad(z, (1, 2)), z.tril(), z.T[1:], z.as_strided((2, 2), (1, 2))), "c64 3x4", "f32 3x4"),
            c("put_c128", wide(lambda z: (z.index_put((i,), z[:3], accumulate=True), torch.diag_embed(z))), "f64 4x3", "f64 4x3")]


def products():
    return [c("matrices", lambda a, b: (a @ b, torch.addmm(a[:, :2], a, b[:, :2], alpha=1j, beta=2 - 1j), torch.addmm(a[:, :2] * math.nan, a, b[:, :2], beta=0), torch.einsum("ij,jk->k", a, b)), "c64 3x4", "c64 4x5"),
            c("vectors", lambda a, v: (torch.mv(a, v), torch.addmv(a[:, 0], a, v, alpha=2j), torch.dot(v, v), torch.vdot(v, v.conj() * 1j), torch.outer(v, v), torch.addr(a[:3, :3], a[:, 0], a[:, 1], beta=1j), torch.kron(v, v)), "c64 3x4", "c64 4"),
            c("batches", lambda a, b: (torch.bmm(a, b), torch.baddbmm(a[..., :3], a, b, alpha=0.5j), torch.addbmm(a[0, :, :3], a, b, beta=1j)), "c64 2x3x4", "c64 2x4x3"),
            c("products_c128", wide(lambda z: (z @ z, L.matrix_power(z, 3), torch.matrix_exp(z))), "f64 4x4 u", "f64 4x4 u")]


def factorisations():
    def square(z):
        return z + 4 * torch.eye(z.shape[-1], dtype=z.dtype)

    def positive(z):
        return z @ z.mH + torch.eye(z.shape[-1], dtype=z.dtype)

    def solved(z):
        a = square(z)
        return L.solve(a, z), L.inv(a), L.det(a), *L.slogdet(a), torch.logdet(a), L.solve(a, z, left=False), L.tensorinv(a.reshape(4, 2, 2), ind=1)

    def lu(z):
        f, p = L.lu_factor(z)
        return f, p, *L.lu(z), L.lu_solve(f, p, z), L.lu_solve(f, p, z, adjoint=True), L.lu_solve(f, p, z, left=False), L.lu_solve(f, p, z, left=False, adjoint=True)

    def triangular(z):
        a, u = square(z).tril(), square(z).triu()
        return L.solve_triangular(a, z, upper=False), L.solve_triangular(u, z, upper=True, left=False), torch.triangular_solve(z, u, transpose=True)[0]

    def cholesky(z):
        a = positive(z)
        low, high = L.cholesky(a), L.cholesky(a, upper=True)
        return low, high, torch.cholesky_solve(z, low), torch.cholesky_solve(z, high, upper=True), torch.cholesky_inverse(low)

    def qr(z):
        h, tau = torch.geqrf(z)
        return *L.qr(z), L.qr(z, mode="r")[1], h, tau, L.householder_product(h, tau), torch.ormqr(h, tau, z, transpose=True), torch.ormqr(h, tau, z.mT, left=False)

    def values(z):
        return L.svdvals(z), L.eigvalsh(positive(z[:3, :3])), L.eigvalsh(positive(z[:3, :3]), UPLO="U"), L.matrix_norm(z), L.matrix_norm(z, 2), L.matrix_norm(z, "nuc"), L.matrix_norm(z, -1), L.cond(z[:3, :3]), L.matrix_rank(z)

    cases = [solved, lu, triangular, cholesky, qr]
    result = [c(f.__name__, f, "c64 4x4") for f in cases] + [c(f"{f.__name__}_c128", wide(f), "f64 4x4", "f64 4x4") for f in cases]
    return result + [c("tall", lambda z: L.qr(z, mode="complete"), "c64 5x3"), c("wide", lambda z: L.qr(z), "c64 3x5"), c("values", values, "c64 3x4"), c("values_c128", wide(values), "f64 3x4", "f64 3x4"),
                     c("batches", lambda z: (L.inv(square(z)), L.det(z), L.cholesky(positive(z))), "c64 2x3x3")]


def groups():
    return {f"complex_{f.__name__}": f() for f in (functions, powers, arithmetic, reductions, places, products, factorisations)}
