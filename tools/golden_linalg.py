"""Factorisations whose results are not unique, or whose blocks the data decides: what holds for all of them is computed in the model."""
import torch

from golden_ops import Case, c

L = torch.linalg
Dim = torch.export.Dim


def as_set(values):
    """What does not depend on the order of eigenvalues, of which torch promises none."""
    return values.real.sort(-1).values, values.imag.sort(-1).values, values.abs().sort(-1).values


def residual(a, values, vectors):
    wide = a.to(vectors.dtype)
    size = a.abs().amax((-2, -1), keepdim=True).clamp(min=1e-300 if a.dtype == torch.float64 else 1e-30)
    return ((wide @ vectors - vectors * values[..., None, :]) / size).abs()


def eigen(a, limit=1e-4):
    """Values, that A v = v value, and that vectors have length one and their largest element real where the value is not."""
    values, vectors = L.eig(a)
    large = vectors.abs() > vectors.abs().amax(-2, keepdim=True) - 1e-4
    return (*as_set(values), *as_set(L.eigvals(a)), residual(a, values, vectors) < limit, vectors.abs().square().sum(-2),
            ((vectors.imag.abs() < 1e-5) & large).any(-2), (vectors.imag == 0) | (values.imag != 0)[..., None, :])


def eigen_alone(a, limit=1e-4):
    """Of matrices whose values are far from exact in any arithmetic."""
    values, vectors = L.eig(a)
    return residual(a, values, vectors) < limit, vectors.abs().square().sum(-2), (values.sum(-1).real - a.diagonal(dim1=-2, dim2=-1).sum(-1)).abs() < 1e-3


def rotation(*angles):
    out = torch.zeros(2 * len(angles), 2 * len(angles))
    for k, angle in enumerate(torch.tensor(angles)):
        out[2 * k:2 * k + 2, 2 * k:2 * k + 2] = torch.stack([torch.stack([angle.cos(), -angle.sin()]), torch.stack([angle.sin(), angle.cos()])])
    return out


def general_eigenvalues():
    jordan = torch.diag(torch.full((40,), 2.0)) + torch.diag(torch.ones(39), 1)
    mixed = torch.tensor([[1, 1, 3, 2], [-1, 1, 2, 5], [0, 0, 1, 4], [0, 0, 0, -2]], dtype=torch.float64)
    cycle = torch.eye(8).roll(1, 0)
    exact = dict(exact=False)
    return [
        c("general", eigen, "f32 3x5x5"), c("general_f64", lambda a: eigen(a, 1e-12), "f64 7x7"), c("batches", eigen, "f32 2x3x4x4"), c("large", eigen, "f32 20x20"),
        c("one_row", eigen, "f32 3x1x1"), c("two_rows", eigen, "f32 20x2x2"), c("three_rows", eigen, "f64 20x3x3"), c("symmetric", lambda x: as_set(L.eigvals(x @ x.mT)), "f64 6x6"),
        c("cycle", eigen, cycle, **exact), c("rotations", eigen, rotation(0.3, 1.7, 2.9), **exact),
        c("zeros", lambda a: (L.eigvals(a), residual(a, *L.eig(a)) == 0, L.eig(a)[1].abs().sum(-2)), torch.zeros(2, 4, 4), **exact),
        c("identity", lambda a: (L.eigvals(a), residual(a, *L.eig(a)) == 0), torch.eye(5), **exact),
        c("triangular_block", eigen, mixed, **exact), c("mixed_batch", eigen, torch.stack([mixed, mixed.T, torch.eye(4, dtype=torch.float64), torch.eye(4, dtype=torch.float64).roll(1, 0)]), **exact),
        c("jordan", lambda a: (L.eigvals(a), *eigen_alone(a)), jordan, **exact), c("nilpotent", lambda a: eigen_alone(a, 1e-3), torch.diag(torch.ones(12), -1) + torch.diag(torch.ones(5), 8), **exact),
        c("defective", lambda s: eigen_alone(L.solve(s, (torch.eye(5) + torch.eye(5).roll(1, 1).triu()) @ s), 1e-3), torch.eye(5) + 0.3 * torch.arange(25.0).reshape(5, 5).sin(), **exact),
        c("pairs_twice", lambda s: eigen_alone(L.solve(s, rotation(0.5, 0.5, 0.5) @ s)), torch.eye(6) + 0.3 * torch.arange(36.0).reshape(6, 6).sin(), **exact),
        c("huge", lambda a: eigen(a * 1e30), "f32 5x5", **exact), c("tiny", lambda a: residual(a * 1e-290, *L.eig(a * 1e-290)) < 1e-10, "f64 5x5", **exact),
        c("no_rows", lambda a: L.eig(a), "f32 2x0x0"),
        Case("batch_of_any_size", eigen, lambda: (torch.randn(3, 4, 4),), dynamic=({0: Dim("batch", min=1, max=64)},), more=[lambda: (torch.randn(9, 4, 4),), lambda: (torch.randn(1, 4, 4),)]),
        c("transposed", lambda a: as_set(L.eigvals(a.mT)), "f32 2x4x4"),
    ]


def symmetric(x):
    return x + x.mT


def solved(a, b):
    factors, pivots = L.ldl_factor(a)
    return L.ldl_solve(factors, pivots, b)


def block_factors():
    hollow = torch.tensor([[0.0, 1, 2, 0], [1, 0, 3, 1], [2, 3, 0, 5], [0, 1, 5, 0]])
    odd = torch.tensor([[1e-6, 1, 0, 2, 0], [1, 1, 4, 0, 1], [0, 4, 0, 1, 3], [2, 0, 1, 1e-3, 7], [0, 1, 3, 7, 2]])
    return [
        c("factors", lambda x: L.ldl_factor(symmetric(x)), "f32 4x5x5"), c("factors_f64", lambda x: L.ldl_factor_ex(symmetric(x)), "f64 9x9"),
        c("lower_counts", lambda x: L.ldl_factor(x), "f32 3x4x4"), c("positive", lambda x: L.ldl_factor(x @ x.mT + 2 * torch.eye(4)), "f32 4x4"),
        c("hollow", lambda x: L.ldl_factor(x), hollow), c("swaps", lambda x: L.ldl_factor_ex(x), torch.stack([odd, -odd, odd.flip(0, 1)])),
        c("nothing", lambda x: L.ldl_factor_ex(x), torch.stack([torch.zeros(3, 3), torch.diag(torch.tensor([1.0, 0, 2])), torch.ones(3, 3)])),
        c("one_row", lambda x: L.ldl_factor(x), "f32 2x1x1"), c("no_rows", lambda x: (*L.ldl_factor_ex(x), L.ldl_solve(*L.ldl_factor(x), x)), "f32 2x0x0"),
        c("large", lambda x, b: (L.ldl_factor(symmetric(x))[1], solved(symmetric(x), b)), "f64 40x40", "f64 40x2"),
        c("solves", lambda x, b: solved(symmetric(x), b), "f32 3x6x6", "f32 3x6x2"), c("solves_hollow", solved, hollow, "f32 4x3"), c("solves_swapped", solved, torch.stack([odd, -odd, odd.flip(0, 1)]), "f32 3x5x1"),
        c("solves_for_all", lambda x, b: solved(symmetric(x), b), "f64 4x4", "f64 3x4x2"), c("solves_each", lambda x, b: solved(symmetric(x), b), "f64 3x4x4", "f64 4x2"),
        c("given", L.ldl_solve, torch.tensor([[2.0, 0, 0], [0.5, 3, 0], [1, 0.25, 4]]), torch.tensor([1, 2, 3], dtype=torch.int32), "f32 3x2"),
    ]


def cut(x, at):
    return [p * 2 for p in x.tensor_split(at, 1)]


def data_splits():
    n = lambda *v: torch.tensor(v)
    x = lambda: torch.randn(3, 7)
    return [
        Case("at_indices", cut, lambda: (x(), n(2, 5)), more=[lambda: (x(), n(5, 2)), lambda: (x(), n(0, 7)), lambda: (x(), n(-3, -1)), lambda: (x(), n(-20, 20))]),
        Case("at_one_index", lambda x, at: x.tensor_split(at)[1], lambda: (x(), n(1)), more=[lambda: (x(), n(3)), lambda: (x(), n(-1))], exact=False),
        Case("into_parts", lambda x: cut(x, torch.tensor(3)), lambda: (x(),)),
    ]


def exponentials():
    return [
        c("large_norm", torch.matrix_exp, "f64 4x4"), c("zero", torch.matrix_exp, torch.zeros(2, 3, 3)), c("nilpotent", torch.matrix_exp, torch.diag(torch.full((5,), 3.0), 1)),
        c("one_row", torch.matrix_exp, "f32 4x1x1"), c("none", torch.matrix_exp, "f32 0x3x3"), c("complex", lambda z: (torch.matrix_exp(2 * z), torch.matrix_exp(z.conj())), "c64 5x5"),
    ]


def eigen_complex(a, limit=1e-4):
    """The same, but for what holds of real values of real matrices."""
    return eigen(a, limit)[:-1]


def complex_eigenvalues():
    wide = lambda limit=1e-12: lambda re, im: eigen_complex(torch.complex(re, im), limit)
    exact = dict(exact=False)
    jordan = (torch.diag(torch.full((12,), 2.0)) + torch.diag(torch.ones(11), 1)).to(torch.complex64)
    spiral = torch.diag(torch.polar(torch.arange(1.0, 7.0), torch.arange(6.0)))
    return [
        c("general", eigen_complex, "c64 3x5x5"), c("general_c128", wide(), "f64 7x7", "f64 7x7"), c("batches", eigen_complex, "c64 2x3x4x4"), c("large", wide(1e-11), "f64 20x20", "f64 20x20"),
        c("one_row", eigen_complex, "c64 3x1x1"), c("two_rows", wide(), "f64 20x2x2", "f64 20x2x2"), c("three_rows", wide(), "f64 20x3x3", "f64 20x3x3"),
        c("hermitian", lambda x: L.eigvals(x @ x.mH).real.sort(-1).values, "c64 6x6"), c("real_parts", eigen_complex, torch.randn(5, 5, generator=torch.Generator().manual_seed(4)).to(torch.complex64), **exact),
        c("unitary", eigen_complex, L.qr(torch.randn(5, 5, dtype=torch.complex64, generator=torch.Generator().manual_seed(6)))[0], **exact),
        c("cycle", eigen_complex, (torch.eye(8).roll(1, 0) * 1j), **exact), c("diagonal", eigen_complex, spiral, **exact), c("triangular", lambda a: eigen_complex(a.triu()), "c64 6x6", **exact),
        c("zeros", lambda a: (L.eigvals(a), residual(a, *L.eig(a)) == 0, L.eig(a)[1].abs().sum(-2)), torch.zeros(2, 4, 4, dtype=torch.complex64), **exact),
        c("jordan", lambda a: (residual(a, *L.eig(a)) < 1e-3, L.eig(a)[1].abs().square().sum(-2), (L.eigvals(a) - 2).abs() < 0.3), jordan, **exact),
        c("mixed_batch", eigen_complex, torch.stack([spiral, spiral.roll(1, 0), torch.eye(6).roll(1, 0) + 0j, torch.randn(6, 6, dtype=torch.complex64, generator=torch.Generator().manual_seed(5))]), **exact),
        c("huge", lambda a: eigen_complex(a * 1e30), "c64 5x5", **exact), c("tiny", lambda re, im: residual(torch.complex(re, im) * 1e-290, *L.eig(torch.complex(re, im) * 1e-290)) < 1e-10, "f64 5x5", "f64 5x5", **exact),
        c("no_rows", lambda a: L.eig(a), "c64 2x0x0"), c("transposed", lambda a: as_set(L.eigvals(a.mT)), "c64 2x4x4"), c("conjugated", lambda a: as_set(L.eigvals(a.conj())), "c64 2x4x4"),
        Case("batch_of_any_size", eigen_complex, lambda: (torch.randn(3, 4, 4, dtype=torch.complex64),), dynamic=({0: Dim("batch", min=1, max=64)},), more=[lambda: (torch.randn(9, 4, 4, dtype=torch.complex64),), lambda: (torch.randn(1, 4, 4, dtype=torch.complex64),)]),
    ]


def factors(z, full=False):
    """Singular values, what the factors multiply to, and the products of the vectors with each other."""
    u, s, vh = L.svd(z, full_matrices=full)
    k = s.shape[-1]
    return s, (u[..., :k] * s[..., None, :].to(u.dtype)) @ vh[..., :k, :], u.mH @ u, vh @ vh.mH


def hermitian(z):
    return z + z.mH


def spectrum(z, uplo="L"):
    w, v = L.eigh(z, UPLO=uplo)
    return w, (v * w[..., None, :].to(v.dtype)) @ v.mH, v.mH @ v


def of_parts(f):
    """f of complex128, of which inputs come as two parts."""
    return lambda re, im: f(torch.complex(re, im))


def complex_factors():
    """Factors of complex matrices that are free in their phases: what holds for all of them."""
    low = torch.tensor([[1 + 1j, 2, 0, 1j], [2j, 1 - 1j, 3, 0]])
    special = torch.stack([torch.zeros(3, 3), torch.arange(9.0).reshape(3, 3), torch.diag(torch.tensor([3.0, -1, -1]))]) + 0j

    def older(z):
        u, s, v = torch.svd(z)
        return s, (u * s.to(u.dtype)) @ v.mH, v.mH @ v

    def of_shapes(z):
        return *factors(z), *factors(z[:, 0]), *factors(z[:, :, :2]), *factors(z[0, 0, :, :3], True), *factors(z[0, 0, :2], True), *older(z[0, 1])

    def spectra(z):
        return *spectrum(hermitian(z)), *spectrum(z, "U"), *spectrum(z[0])

    def large(x):
        z = torch.polar(torch.outer(x, x.flip(0)).cos(), torch.outer(x, x * x))
        values, product, left, right = factors(z[:, :17])
        return values, (product - z[:, :17]).abs() < 1e-10, left[0], right[0], spectrum(hermitian(z))[0], L.eigvalsh(z), L.svdvals(z)

    def inverses(z):
        return L.pinv(z), torch.pinverse(z.mT), L.pinv(z, rtol=0.3), L.pinv(z @ z.mH, hermitian=True, rtol=1e-4), L.pinv(z[:2])

    def numbers(z):
        return L.matrix_rank(z @ z.mH, hermitian=True, rtol=1e-4), L.matrix_rank(z), L.matrix_norm(z, "nuc"), L.cond(z[:2, :2], "nuc")

    def roots(z):
        return *L.polar(z), L.matrix_sqrth(z.mH @ z)

    return [
        c("shapes", of_shapes, "c64 2x2x4x4"), c("shapes_c128", of_parts(lambda z: (*factors(z), *factors(z.mH))), "f64 5x3", "f64 5x3"), c("less_than_full", lambda z, s: (*factors(z.mT @ z), *factors(s), *spectrum(s)[1:]), low, special),
        c("spectra", spectra, "c64 2x4x4"), c("spectra_c128", of_parts(lambda z: spectrum(hermitian(z))), "f64 6x6", "f64 6x6"), c("large", large, "f64 20"),
        c("inverses", inverses, "c64 5x3"), c("inverses_c128", of_parts(L.pinv), "f64 3x5", "f64 3x5"), c("numbers", numbers, "c64 5x3"), c("roots", roots, "c64 4x3"), c("roots_c128", of_parts(roots), "f64 3x3", "f64 3x3"),
        c("norms_of_none", lambda x: (L.matrix_norm(x, "nuc"), L.matrix_norm(x, 2), L.norm(x[0], 2), L.norm(x[0], "nuc")), "f32 2x0x3"),
    ]


def graded_factors():
    """Matrices whose values fall by powers of ten, or are of low rank: the vectors of small values must be as orthogonal as the others."""
    def kernel(x, n):
        x = (x[:n] * 3).sin() * 2
        return (-(x[:, None] - x) ** 2).exp()

    def upright(v, limit):
        return ((v.mH @ v - torch.eye(v.shape[-1], dtype=v.dtype)).abs() < limit).all()

    def pairs(a, limit):
        w, v = L.eigh(a)
        return w, ((a @ v - v * w[..., None, :].to(v.dtype)).abs() < limit * 10).all(), upright(v, limit)

    def split(a, limit):
        u, s, vh = L.svd(a, full_matrices=False)
        return s, upright(u, limit), upright(vh.mH, limit), (((u * s[..., None, :].to(u.dtype)) @ vh - a).abs() < limit * 10).all()

    def real(n, limit):
        return lambda x: (*split(kernel(x, n), limit), *pairs(kernel(x, n), limit))

    def wave(x):
        z = torch.polar(torch.outer(x, x.flip(0)).cos(), torch.outer(x, x * x))
        return *split(z, 1e-12), *pairs(z + z.mH, 1e-12)

    def far(a):
        out = []
        for scale in (1e250, 1e-250):
            u, s, _ = L.svd(a * scale)
            w, v = L.eigh((a + a.mT) * scale)
            out += [s / scale, upright(u, 1e-12), w / scale, upright(v, 1e-12)]
        return out

    return [c("far_from_one", far, "f64 5x5"), c("kernels", real(16, 2e-5), "f32 24"), c("kernels_f64", real(20, 1e-12), "f64 20"), c("waves", wave, "f64 12")]


def complex_block_factors():
    hollow = torch.tensor([[0.0, 1 + 1j, 2, 0], [1, 0, 3 - 2j, 1], [2, 3, 0, 5j], [0, 1j, 5, 0]])
    tiny = torch.tensor([[1e-6, 1, 0, 2, 0], [1 + 2j, 1, 4, 0, 1], [0, 4 - 1j, 0, 1, 3], [2, 0, 1j, 1e-3, 7], [0, 1, 3 + 3j, 7, 2]])
    both = torch.stack([tiny, -tiny, tiny.flip(0, 1)])

    def solved_each(a, b):
        return tuple(L.ldl_solve(*L.ldl_factor(a, hermitian=h), b, hermitian=h) for h in (False, True))

    def each(a):
        return *L.ldl_factor_ex(a), *L.ldl_factor_ex(a, hermitian=True)

    return [
        c("factors", lambda z: (*each(symmetric(z)), *each(hermitian(z)), *each(z[:2, :0, :0])), "c64 4x5x5"), c("c128", of_parts(lambda z: each(symmetric(z))), "f64 6x6", "f64 6x6"),
        c("swaps", lambda a, b, z: (*each(a), *each(b), *each(torch.stack([z, 1 - z])), *each(b[:, :1, :1])), hollow, both, torch.zeros(3, 3, dtype=torch.complex64)),
        c("solves", lambda z, b: solved_each(hermitian(z), b), "c64 3x6x6", "c64 3x6x2"), c("solves_swapped", lambda h, s, x, y: (*solved_each(h, x), *solved_each(s, y)), hollow, both, "c64 4x3", "c64 3x5x1"),
    ]


def matrices_of_any_size():
    """Triangular solves, LU and Cholesky of matrices whose sizes are inputs, or larger than what is written out column by column."""
    n, batch, any_n = Dim("n", min=8, max=200), Dim("b", min=1, max=64), Dim("n", min=2, max=200)
    real = lambda *shape: torch.randn(*shape, dtype=torch.float64)
    square = dict(dynamic=({0: batch, 1: n, 2: n}, {0: batch, 1: n}), more=[lambda: (real(1, 8, 8), real(1, 8, 3)), lambda: (real(1, 11, 11), real(1, 11, 3))])

    def positive(a):
        return a @ a.mH + 0.5 * torch.eye(a.shape[-1], dtype=a.dtype)

    def triangular(a, b):
        a = a.tanh() + 3 * torch.eye(a.shape[-1], dtype=a.dtype)
        return (L.solve_triangular(a, b, upper=True), L.solve_triangular(a, b, upper=False, unitriangular=True), L.solve_triangular(a, b.mT, upper=True, left=False),
                torch.triangular_solve(b, a, upper=False, transpose=True)[0], L.solve_triangular(a[0], b[:, :, :1], upper=False))

    def systems(a, b):
        packed, pivots = L.lu_factor(a)
        return L.solve(a, b), L.solve(a, b.mT, left=False), L.solve(a, b[..., 0]), L.lu_solve(packed, pivots, b), L.lu_solve(packed, pivots, b.mT, left=False), L.lu_solve(packed, pivots, b, adjoint=True)

    def wide(a, b):
        return L.lu_factor_ex(torch.cat([a, b], 2))

    def tall(a, b):
        return L.lu(torch.cat([a, b], 2).mT)

    def unpacked(a, b):
        return (*torch.lu_unpack(*L.lu_factor(a)), L.lu_factor_ex(a * 0)[2])

    def numbers_of(a, b):
        return L.inv(a), L.inv_ex(a * 0 + torch.eye(a.shape[-1], dtype=a.dtype).tril(-1))[1], L.det(a), *L.slogdet(a), torch.logdet(positive(a))

    def cholesky(a, b):
        a = positive(a)
        low, high = L.cholesky(a), L.cholesky(a, upper=True)
        bad = torch.eye(a.shape[-1], dtype=a.dtype) * torch.where(torch.arange(a.shape[-1]) > 0, -1, 1)
        return low, high, torch.cholesky_solve(b, low), torch.cholesky_solve(b, high, upper=True), torch.cholesky_inverse(low), L.cholesky_ex(bad)[1], L.cholesky_ex(a)[1]

    def of_complex(re, im):
        z = torch.complex(re, im)
        low = L.cholesky(positive(z))
        return L.solve(z, im.to(z.dtype)), L.det(z), low, L.solve_triangular(low, z, upper=False), torch.cholesky_solve(z, low), *L.lu_factor(z)

    def large(x):
        a = torch.outer(x, x.flip(0)).cos() + 4 * torch.diag(x)
        low = L.cholesky(positive(a))
        sign, size = L.slogdet(a)
        return L.solve(a, x), L.inv(a)[3], sign, size, low[-1], L.solve_triangular(low, x[:, None], upper=False), L.lu_factor(a)[1]

    both = lambda: (real(2, 9, 9), real(2, 9, 3))
    return [Case(f.__name__, f, both, **square) for f in (triangular, systems, wide, tall, unpacked, numbers_of, cholesky)] + [
        Case("complex", of_complex, lambda: (real(9, 9), real(9, 9)), dynamic=({0: n, 1: n}, {0: n, 1: n}), more=[lambda: (real(8, 8), real(8, 8)), lambda: (real(11, 11), real(11, 11))]),
        Case("float32", lambda a: (L.inv(a), L.cholesky(positive(a))), lambda: (torch.randn(6, 6),), dynamic=({0: any_n, 1: any_n},), more=[lambda: (torch.randn(2, 2),), lambda: (torch.randn(3, 3),)]),
        c("large", large, "f64 70"),
    ]


def large_factors():
    """Matrices of more columns than are written out one by one: QR by blocks, eigenvalues by dividing and conquering, singular values by the polar factor."""
    n = Dim("n", min=4, max=200)
    real = lambda *shape: torch.randn(*shape, dtype=torch.float64)

    def triangles(a):
        q, r = L.qr(a)
        whole, wide = L.qr(a, mode="complete")[0], L.qr(a.mT)[1]
        packed, tau = torch.geqrf(a)
        return (r, ((q @ r - a).abs() < 1e-12).all(), upright(q), upright(whole), wide[-1], packed[:, -2], tau, L.householder_product(packed[:, :tau.shape[0]], tau)[:, 3],
                torch.ormqr(packed, tau, a)[:, 1], torch.ormqr(packed, tau, a.mH, left=False, transpose=True)[1])

    def ends(a, scale):
        """Numbers whose squares overflow or vanish, and what rounding leaves of a matrix of ones, which vanishes too."""
        # 66 rows: four roundings a row.
        limit, out = 4 * 66 * torch.finfo(a.dtype).eps, []
        for m in (a * scale, a / scale, a * 0 + 1):
            q, r = L.qr(m)
            size = m.abs().amax()
            out += [upright(q, limit), (q @ (r / size) - m / size).abs().amax() < limit]
        return out

    def special(x):
        k = torch.arange(33.0, dtype=torch.float64)
        gap = torch.outer(torch.ones(33, dtype=torch.float64), k)
        beside = ((gap - gap.mT).abs() == 1).to(torch.float64)
        return torch.stack([1 / (k[:, None] + k + 1), torch.diag((k - 16).abs()) + beside, torch.outer(x, x) + beside * 1e-9])

    def upright(v, limit=1e-13):
        return (v.mH @ v - torch.eye(v.shape[-1])).abs().amax((-2, -1)) < limit

    def pairs(x):
        a = special(x)
        w, v = L.eigh(a)
        return w, (a @ v - v * w[..., None, :]).abs().amax((-2, -1)) < 1e-12, upright(v), L.eigvalsh(a)

    def split(x):
        a = special(x)[0]
        u, s, vh = L.svd(a)
        return s, (u * s @ vh - a).abs().amax() < 1e-12, upright(u), upright(vh.mH)

    def of_complex(re, im):
        z = hermitian(torch.complex(re, im))
        w, v = L.eigh(z)
        return w, (z @ v - v * w[None, :]).abs().amax() < 1e-12, upright(v)

    return [
        c("triangles", triangles, "f64 40x34"), c("triangles_f32", lambda a: L.qr(a)[1], "f32 2x68x33"), c("triangles_complex", of_parts(triangles), "f64 35x33", "f64 35x33"),
        c("triangles_wide", lambda a: (*L.qr(a), *torch.geqrf(a)), "f64 34x66"),
        Case("triangles_of_any_size", lambda a: (*L.qr(a), L.qr(a[:, :3], mode="complete")[1]), lambda: (real(9, 9),), dynamic=({0: n, 1: n},), more=[lambda: (real(4, 4),), lambda: (real(35, 35),)]),
        c("ends", lambda a, b, x, y: (*ends(a, 1e25), *ends(b, 1e25), *ends(x, 1e200), *ends(y, 1e200)), "f32 12x12", "f32 66x66", "f64 12x12", "f64 66x66"),
        c("pairs", pairs, "f64 33"), c("split", split, "f64 33"), c("tall", lambda a: factors(a)[:2], "f32 40x33"), c("complex", of_complex, "f64 33x33", "f64 33x33"),
    ]


def values_of_any_size():
    """Eigenvalues and vectors of symmetric matrices, and singular values, where the sizes are inputs: odd and even ones, few, and more than are written out."""
    m, n, batch = Dim("m", min=1, max=200), Dim("n", min=1, max=200), Dim("b", min=1, max=64)
    real = lambda *shape: torch.randn(*shape, dtype=torch.float64)  # noqa: E731
    square = dict(dynamic=({0: batch, 1: n, 2: n},), more=[lambda k=k: (real(2, k, k),) for k in (1, 2, 3, 8, 33)])
    either = dict(dynamic=({0: batch, 1: m, 2: n},), more=[lambda k=k: (real(2, *k),) for k in ((1, 1), (1, 6), (7, 2), (3, 3), (40, 9))])

    def special(x):
        """A symmetric one, zeros, equal values, values that fall by powers of ten."""
        a, i = symmetric(x[0]), torch.arange(x.shape[-1])
        falling = torch.exp(-i.double())
        return torch.stack([a, a * 0, a * 0 + torch.eye(x.shape[-1], dtype=a.dtype), a * falling[:, None] * falling, a * 0 + 1])

    def pairs(x):
        a = special(x)
        w, v = L.eigh(a)
        return w, (a @ v - v * w[..., None, :]).abs().amax((-2, -1)) < 1e-11, upright(v, 1e-12), L.eigvalsh(a, UPLO="U")

    def upright(v, limit):
        return (v.mH @ v - torch.eye(v.shape[-1], dtype=v.dtype)).abs().amax((-2, -1)) < limit

    def of_complex(x):
        z = hermitian(torch.complex(x, x.flip(-1)))
        w, v = L.eigh(z)
        return w, (z @ v - v * w[..., None, :]).abs().amax((-2, -1)) < 1e-11, upright(v, 1e-12), L.eigvalsh(z)

    def of_float(x):
        a = symmetric(x.float())
        w, v = L.eigh(a)
        return w, (a @ v - v * w[..., None, :]).abs().amax((-2, -1)) < 1e-4, L.eigvalsh(a)

    return [
        Case("pairs", pairs, lambda: (real(2, 9, 9),), **square), Case("pairs_complex", of_complex, lambda: (real(2, 9, 9),), **square), Case("pairs_f32", of_float, lambda: (real(2, 9, 9),), exact=False, **square),
        Case("singular", lambda x: (L.svdvals(x), L.svdvals(x * 0), L.svd(x, full_matrices=False)[1]), lambda: (real(2, 9, 5),), **either),
        Case("singular_complex", lambda x: L.svdvals(torch.complex(x, x.flip(1))), lambda: (real(2, 9, 5),), **either), Case("singular_f32", lambda x: L.svdvals(x.float()), lambda: (real(2, 9, 5),), **either),
        Case("one_size_known", lambda x: (L.svdvals(x), L.svdvals(x.mT)), lambda: (real(9, 5),), dynamic=({0: m},), more=[lambda: (real(3, 5),)]),
    ]


def more_than_64_rows():
    """General eigenvalues, block factors, inverses of tensors and powers of matrices that are too large to be written out column by column."""
    def grid(n, k=1.0, dtype=torch.float64):
        x = torch.arange(n * n, dtype=dtype).reshape(n, n)
        return (x * x * 0.37 * k + x * 0.11).sin()

    def special():
        """A symmetric one, zeros, a cycle that no first shift moves, one with real values, one whose rows fall by powers of ten."""
        n, x = 66, grid(66)
        cycle = torch.eye(n, dtype=torch.float64).roll(1, 0)
        return torch.stack([x + x.mT, x * 0, cycle, x.triu(), torch.logspace(0, -12, n, dtype=torch.float64)[:, None] * x])

    def defective(n):
        """Blocks of three equal values, in another basis."""
        basis = torch.eye(n, dtype=torch.float64) + 0.1 * grid(n)
        blocks = torch.diag((torch.arange(n) // 3).double() / 8) + torch.diag((torch.arange(n - 1) % 3 != 2).double(), 1)
        return L.solve(basis, blocks @ basis)

    def hidden(n):
        """A triangle around a block of ten rows, in another order: the values outside of the block stand on the diagonal, and none but those are exact."""
        x, order = grid(n).tril(), torch.arange(n) * 7 % n
        x[20:30, 20:30] = grid(10)
        return x[order][:, order]

    def exactly(a):
        values, vectors = L.eig(a)
        return (*as_set(values), *as_set(L.eigvals(a)), residual(a, values, vectors) < 1e-11)

    def residuals(a, limit):
        values, vectors = L.eig(a)
        apart = (values.sum(-1) - a.diagonal(dim1=-2, dim2=-1).sum(-1)).abs() < limit
        return residual(a, values, vectors) < limit, vectors.abs().square().sum(-2), apart, (L.eigvals(a).sum(-1) - values.sum(-1)).abs() < limit

    def indefinite(a, b, h):
        packed, pivots, info = L.ldl_factor_ex(a, hermitian=h)
        return pivots, info, L.ldl_solve(packed, pivots, b, hermitian=h), packed.diagonal(dim1=-2, dim2=-1)

    def blocks(x, b):
        a = symmetric(x) - torch.diag_embed(symmetric(x).diagonal(dim1=-2, dim2=-1) * 0.9)
        return indefinite(a, b, False)

    def complex_blocks(re, im, b):
        z = torch.complex(re, im)
        return *indefinite(symmetric(z), b.to(z.dtype), False), *indefinite(hermitian(z), b.to(z.dtype), True)

    def of_tensors(x):
        x = x + 3 * torch.eye(72, dtype=x.dtype)
        t = x.reshape(8, 9, 72)
        return L.tensorinv(t), L.tensorsolve(t, x[:8, :9]), L.matrix_power(x, -3)

    exact = dict(exact=False)
    return [
        c("general", lambda a: eigen(a, 1e-11), "f64 65x65"), c("complex", lambda re, im: eigen_complex(torch.complex(re, im), 1e-11), "f64 65x65", "f64 65x65"),
        c("special", lambda a: residuals(a, 1e-11), special(), **exact), c("special_complex", lambda a: residuals(torch.complex(a, a.flip(0) / 2), 1e-11), special(), **exact),
        c("defective", lambda a: residuals(a, 1e-8), defective(69), **exact), c("hidden_triangle", exactly, hidden(66), **exact), c("hidden_triangle_complex", lambda a: exactly(torch.complex(a, -2 * a)), hidden(66), **exact),
        c("blocks", blocks, "f64 2x70x70", "f64 2x70x3"), c("complex_blocks", complex_blocks, "f64 66x66", "f64 66x66", "f64 66x2"),
        c("tensors", of_tensors, "f64 72x72"),
    ]


def groups():
    return {f.__name__: f() for f in (general_eigenvalues, complex_eigenvalues, block_factors, data_splits, exponentials, complex_factors, complex_block_factors, graded_factors, matrices_of_any_size, values_of_any_size, more_than_64_rows, large_factors)}
