"""What the data decides: numbers and sizes (items, masks), branches and loops; each at several contents, none and all among them."""
import math

import torch
import torch.nn.functional as F

from golden_ops import Case, N, c

Dim = torch.export.Dim


def item_sizes(x, n):
    k = n.item()
    torch._check(k >= 1)
    torch._check(k <= x.shape[0])
    return x[:k].sum(0), torch.zeros(k, 2) + k, torch.arange(k) * 2


def item_bool(x, flag):
    return x + flag.item()


def item_small(x, n):
    k = n.item()
    torch._check(k >= 0)
    torch._check(k < 4)
    return torch.full((k, 3), 1.5), k


def item_power(x, n):
    """Powers that are no short products: of a number up to a bound, and of any."""
    k = n.item()
    return x * min(k, 10)**11, torch.arange(3) * k**13


def item_float(x, scale):
    s = scale.item()
    return x * s + s, s


def item_select(x, i):
    k = i.item()
    torch._check(k >= 0)
    torch._check(k < x.shape[0])
    return x[k] * 2, x.narrow(0, k, 1) + 1


def item_arithmetic(x, n, m):
    a, b = n.item(), m.item()
    torch._check(a >= 0)
    torch._check(b >= 0)
    return torch.ones(a * 2 + b, 3), torch.cat([torch.zeros(a), torch.ones(b)]), a * b - 7


def split_by_list(x, n):
    a, b = n.tolist()
    torch._check(a >= 0)
    torch._check(b >= 0)
    torch._check(a + b == x.shape[0])
    p, q = torch.split(x, [a, b])
    return p * 2, q.sum(0)


def positions(x):
    return x.nonzero(), (x > 0).nonzero().shape[0]


def listed(x):
    return torch.argwhere(x > 0), torch.argwhere(x[0]) + 1


def columns(x):
    i, j = torch.where(x > 0)
    return i * 10 + j, x[i, j]


def masked(x):
    return x[x > 0] * 2, x.masked_select(x < 0).sum()


def masked_rows(x):
    y = x[x[:, 0] > 0]
    return y @ y.T, y.softmax(-1), y.sum(0), y.mean(1)


def masked_middle(x):
    return x[:, x[0, :, 0] > 0, 1:]


def mask_and_index(x, i):
    return x[x[:, 0, 0] > 0, :, i[0]], x[i[:1], x[0, :, 0] > 0]


def masked_twice(x, y):
    a = x[x[:, 0] > 0]
    b = a[a[:, 1] > 0]
    return a.relu(), b + 1, torch.cat([a, b], 0)


def mask_of_flags(x, m):
    return x.masked_select(m), x[m]


def vector_positions(x):
    return torch.nonzero(x).squeeze(-1) + 1, torch.nonzero(x, as_tuple=True)[0]


def scalar_position(x):
    return torch.nonzero(x)


def at_most_one(x):
    """One element or none: that a place can only be 0 does not say that there is one."""
    i = torch.where(x)[0]
    return (i + 2.5).softmax(0), i.cumsum(0) + 1, (i + 1).sort()[0], torch.digamma(i + 0.5)


def unique(x):
    return torch.unique(x), torch.unique(x, return_inverse=True, return_counts=True), torch.unique(x, return_inverse=True)[1] + 1


def unique_rows(x):
    return torch.unique(x, dim=0, return_inverse=True, return_counts=True), torch.unique(x, dim=-1)


def unique_rows_unasked(x):
    """Inverse and counts come whether or not they are asked for."""
    return *torch.ops.aten.unique_dim(x, 1)[:2], torch.ops.aten.unique_dim(x, 1)[2].sum()


def unique_neighbours(x):
    return torch.unique_consecutive(x, return_inverse=True, return_counts=True), torch.unique_consecutive(x.flatten())


def unique_neighbour_rows(x):
    return torch.unique_consecutive(x, return_inverse=True, return_counts=True, dim=1), torch.unique_consecutive(x, dim=0)


def unique_used(x, y):
    """What has the size of the result goes on."""
    values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
    return y.index_add(0, inverse, y)[: x.shape[0]], values.float().softmax(0), counts.float() / counts.sum(), values[inverse] == x


def bins(x):
    return torch.bincount(x), torch.bincount(x, minlength=7)


def counted(x):
    """Between the data's own bounds, whatever their number."""
    return torch.histc(x, 5), torch.histc(x[x > 0], 3, 0, 2)


def weighted_bins(x, w):
    return torch.bincount(x, w), torch.bincount(x, w.double(), minlength=3), torch.bincount(x, x)


def repeated(x, times):
    y = torch.repeat_interleave(x, times, dim=1)
    return torch.repeat_interleave(times), y * 2, y.sum(1), torch.repeat_interleave(x[0], times)


def repeated_to(x, times):
    return torch.repeat_interleave(x, times, dim=0, output_size=9), torch.repeat_interleave(times, output_size=9) * 2


def repeated_alike(x, times):
    return torch.repeat_interleave(x, times, dim=0), torch.repeat_interleave(x, times)


def signs(*rows):
    """Rows of random magnitudes with these signs in front; 0 for a zero."""
    x = torch.rand(len(rows), 4) + 0.5
    return x * torch.tensor([list(r) for r in rows], dtype=torch.float32)


def uniques(n):
    digits = lambda *s, t=torch.int64, high=4: torch.randint(0, high, s).to(t)
    nans = lambda: torch.tensor([float("nan"), 1.0, -2.0, float("nan"), 1.0, float("inf"), -2.0, -2.0])
    rows, long = {0: Dim("rows", min=2, max=64)}, {0: Dim("rows", min=2, max=4096)}
    case = lambda name, f, first, *more, **rest: Case(name, f, first, more=list(more), exact=False, **rest)
    return [
        case("unique", unique, lambda: (digits(5, 4),), lambda: (torch.arange(20).reshape(5, 4),), lambda: (n([[3] * 4] * 5),)),
        case("unique_i8", unique, lambda: (digits(30, t=torch.int8) - 2,)),
        case("unique_bool", unique, lambda: (digits(9) > 1,), lambda: (digits(9) > 9,)),
        case("unique_f32", unique, lambda: (digits(40, t=torch.float32) / 2,), lambda: (torch.randn(40),)),
        case("unique_nan", unique, lambda: (nans(),)),
        case("unique_bf16", unique, lambda: (digits(40, t=torch.bfloat16),)),
        case("unique_scalar", unique, lambda: (n(3),)),
        case("unique_dynamic", unique, lambda: (digits(7, high=9),), lambda: (digits(3000, high=100),), lambda: (n([5, 5]),), dynamic=(long,)),
        case("unique_rows", unique_rows, lambda: (digits(9, 3, high=2),), lambda: (n([[1, 2, 2]] * 9),), lambda: (digits(9, 3, high=50),)),
        case("unique_rows_unasked", unique_rows_unasked, lambda: (digits(3, 7, high=2),)),
        case("unique_planes", unique_rows, lambda: (digits(6, 2, 5, high=2),)),
        case("unique_rows_f32", unique_rows, lambda: (digits(9, 4, high=2, t=torch.float32) - 0.5,)),
        case("unique_rows_bool", unique_rows, lambda: (digits(9, 2) > 1,)),
        case("unique_rows_dynamic", unique_rows, lambda: (digits(9, 3, high=2),), lambda: (digits(64, 1, high=5),), lambda: (digits(2, 9, high=2),),
             dynamic=({0: Dim("rows", min=2, max=64), 1: Dim("columns", min=1, max=9)},)),
        case("unique_neighbours", unique_neighbours, lambda: (digits(5, 6, high=2),), lambda: (n([[1] * 6] * 5),), lambda: (torch.arange(30).reshape(5, 6),)),
        case("unique_neighbours_f32", unique_neighbours, lambda: (nans(),)),
        case("unique_neighbour_rows", unique_neighbour_rows, lambda: (digits(8, 5, high=2)[:, :1].expand(8, 5).contiguous(),), lambda: (digits(8, 5, high=2),)),
        case("unique_used", unique_used, lambda: (digits(11), torch.randn(11, 3)), dynamic=(rows, rows), ),
        case("bins", bins, lambda: (digits(12),), lambda: (digits(12, high=30),), lambda: (n([0] * 12),)),
        case("bins_i32", bins, lambda: (digits(12, t=torch.int32),)),
        case("bins_dynamic", bins, lambda: (digits(12),), lambda: (digits(64, high=30),), dynamic=(rows,)),
        case("counted_dynamic", counted, lambda: (torch.randn(12),), lambda: (torch.zeros(5),), lambda: (torch.randn(60),), dynamic=(rows,)),
        case("weighted_bins", weighted_bins, lambda: (digits(12), torch.randn(12)), lambda: (digits(12, high=30), torch.randn(12))),
        case("repeated", repeated, lambda: (torch.randn(3, 5), n([2, 0, 1, 3, 1])), lambda: (torch.randn(3, 5), n([0, 0, 0, 0, 0])),
             lambda: (torch.randn(3, 5), n([0, 0, 0, 0, 9]))),
        case("repeated_i32", repeated, lambda: (torch.randn(3, 2), n([2, 3], torch.int32))),
        case("repeated_to", repeated_to, lambda: (torch.randn(3, 5), n([2, 0, 7])), lambda: (torch.randn(3, 5), n([0, 9, 0]))),
        case("repeated_dynamic", repeated_to, lambda: (torch.randn(3, 5), n([2, 0, 7])), lambda: (torch.randn(6, 5), n([1, 1, 1, 1, 2, 3])), dynamic=(rows, rows)),
        case("repeated_alike", repeated_alike, lambda: (torch.randn(3, 2), n([2])), lambda: (torch.randn(3, 2), n([0]))),
    ]


def data_sizes():
    n = lambda v, t=torch.int64: torch.tensor(v, dtype=t)
    x = lambda: torch.randn(6, 4)
    grid = lambda: signs((1, -1, 0, 1), (-1, 0, 0, 1), (1, 1, 1, -1), (-1, 1, -1, 0), (0, -1, 1, 1), (1, 0, -1, 1))
    none, every = lambda: -torch.rand(6, 4) - 0.1, lambda: torch.rand(6, 4) + 0.1
    cube = lambda: torch.randn(5, 4, 3)
    return [
        Case("item_sizes", item_sizes, lambda: (x(), n(3)), more=[lambda: (x(), n(1)), lambda: (x(), n(6))]),
        Case("item_bool", item_bool, lambda: (x(), n(True, torch.bool)), more=[lambda: (x(), n(False, torch.bool))], exact=False),
        Case("item_u8", item_small, lambda: (x(), n(2, torch.uint8)), more=[lambda: (x(), n(0, torch.uint8))], exact=False),
        Case("item_i32", item_small, lambda: (x(), n(3, torch.int32)), more=[lambda: (x(), n(0, torch.int32))], exact=False),
        Case("item_i8", item_small, lambda: (x(), n(1, torch.int8)), exact=False),
        Case("item_power", item_power, lambda: (x(), n(3, torch.int64)), more=[lambda v=v: (x(), n(v, torch.int64)) for v in (0, -1, -7, 12)], exact=False),
        Case("item_float", item_float, lambda: (x(), n(2.5, torch.float32)), more=[lambda: (x(), n(-0.75, torch.float32))], exact=False),
        Case("item_half", item_float, lambda: (x(), n(2.5, torch.float16)), exact=False),
        Case("item_select", item_select, lambda: (x(), n(3)), more=[lambda: (x(), n(0)), lambda: (x(), n(5))]),
        Case("item_arithmetic", item_arithmetic, lambda: (x(), n(3), n(2)), more=[lambda: (x(), n(0), n(4)), lambda: (x(), n(0), n(0))], exact=False),
        Case("split_by_list", split_by_list, lambda: (x(), n([2, 4])), more=[lambda: (x(), n([6, 0])), lambda: (x(), n([0, 6]))]),
        Case("positions", positions, lambda: (grid(),), more=[lambda: (torch.zeros(6, 4),), lambda: (every(),)], exact=False),
        Case("listed", listed, lambda: (grid(),), more=[lambda: (torch.zeros(6, 4),), lambda: (every(),)], exact=False),
        Case("columns", columns, lambda: (grid(),), more=[lambda: (none(),), lambda: (every(),)], exact=False),
        Case("masked", masked, lambda: (grid(),), more=[lambda: (none(),), lambda: (every(),)]),
        Case("masked_rows", masked_rows, lambda: (grid(),), more=[lambda: (none(),), lambda: (every(),)]),
        Case("masked_middle", masked_middle, lambda: (cube(),), more=[lambda: (-cube().abs(),), lambda: (cube().abs(),)]),
        Case("mask_and_index", mask_and_index, lambda: (cube(), n([2, 0])), more=[lambda: (-cube().abs(), n([1, 3]))]),
        Case("masked_twice", masked_twice, lambda: (grid(), x()), more=[lambda: (none(), x()), lambda: (every(), x())]),
        Case("mask_of_flags", mask_of_flags, lambda: (x(), x() > 0), more=[lambda: (x(), x() > 100)]),
        Case("vector_positions", vector_positions, lambda: (n([0, 3, 0, -1, 2]),), more=[lambda: (n([0, 0, 0, 0, 0]),)], exact=False),
        Case("scalar_position", scalar_position, lambda: (n(3.0, torch.float32),), more=[lambda: (n(0.0, torch.float32),)], exact=False),
        Case("at_most_one", at_most_one, lambda: (n(0.0, torch.float32),), more=[lambda: (n(3.0, torch.float32),)], exact=False),
        *uniques(n),
        Case("dynamic_rows", masked_rows, lambda: (grid(),), dynamic=({0: Dim("rows", min=2, max=64)},),
             more=[lambda: (torch.randn(33, 4),), lambda: (-torch.rand(2, 4),)]),
        Case("dynamic_positions", positions, lambda: (grid(),), dynamic=({0: Dim("rows", min=2, max=4096), 1: Dim("columns", min=2, max=64)},),
             more=[lambda: (torch.randn(700, 7).relu(),), lambda: (torch.zeros(2, 2),)], exact=False),
    ]


def big_cond(x, y):
    """Too much work to compute both ways."""
    return torch.cond(x.sum() > 0, lambda x, y: (x @ y).softmax(-1), lambda x, y: (x - y).relu() * 2, (x, y))


def cond_with_check(x, i):
    """The way that is not taken would read out of range, and would break its own assertion."""
    def some(x, i):
        k = i.item()
        torch._check(k >= 0)
        torch._check(k < x.shape[0])
        return x.index_select(0, i.reshape(1)) * 2 + k
    return torch.cond(i.sum() < 6, some, lambda x, i: x[:1] + 1, (x, i))


def cond_two_results(x, y):
    return torch.cond(x.sum() > 0, lambda x, y: (x.sin() + y, y.sum(0)), lambda x, y: (y.cos() * 2, (x * y).amax(0)), (x, y))


def cond_nested(x, y):
    def inner(x, y):
        return torch.cond(y.sum() > 0, lambda x, y: (x @ y).sin(), lambda x, y: (x @ y).cos(), (x, y))
    return torch.cond(x.sum() > 0, inner, lambda x, y: x * 3 - y, (x, y)) + 1


def cond_after_lazy(x, y):
    """What both ways use and what is used behind them is computed before, whoever is taken."""
    z = (x.exp() + y).sigmoid()
    r = torch.cond(y.sum() > 0, lambda z, y: z @ y, lambda z, y: z - y, (z, y))
    return r, z * 2


def cond_other_sizes(x):
    return torch.cond(x.sum() > 0, lambda x: x[:2] * 2, lambda x: x[:3] + 1, (x,))


def cond_on_size(x):
    return torch.cond(x.shape[0] > 4, lambda x: (x @ x.T).sum(0), lambda x: (x * x).sum(1), (x,))


def cond_data_inside(x, y):
    return torch.cond(y.sum() > 0, lambda x: x[x > 0].sum() + x.nonzero().sum(), lambda x: x.sum(), (x,))


def cond_sizes_inside(x, y):
    """How many rows there are only the branch that is taken can tell; a branch inside a branch too."""
    def some(x):
        return torch.cond(x.amax() > 1, lambda x: x[x[:, 0] > 1] * 2, lambda x: x[x[:, 1] > 0].sin(), (x,))
    r = torch.cond(y.sum() > 0, some, lambda x: x[x[:, 0] < 0] + 1, (x,))
    return r, r.sum(0), r.shape[0]


def cond_data_around(x, y):
    z = x[x[:, 0] > 0]
    return torch.cond(y.sum() > 0, lambda z: z.sin() * 2, lambda z: z.cos(), (z,)), z.shape[0]


def while_counts(x, n):
    from torch._higher_order_ops.while_loop import while_loop
    return while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y * 2 + n), (torch.zeros((), dtype=torch.int64), x))


def while_converges(x, w):
    from torch._higher_order_ops.while_loop import while_loop
    return while_loop(lambda y, d: d > 1e-3, lambda y, d: (((y @ w).tanh()), ((y @ w).tanh() - y).abs().amax()),
                      (x, torch.ones(())))


def while_swaps(a, b, n):
    """Each takes the other's place: what a turn computes is stored when all of it is there."""
    from torch._higher_order_ops.while_loop import while_loop
    return while_loop(lambda i, a, b: i < n, lambda i, a, b: (i + 1, b.clone(), (a + b).flip(0)), (torch.zeros((), dtype=torch.int64), a, b))


def while_nested(x, n):
    from torch._higher_order_ops.while_loop import while_loop

    def body(i, y):
        j, z = while_loop(lambda j, z: j < i, lambda j, z: (j + 1, z + 0.5), (torch.zeros((), dtype=torch.int64), y))
        return i + 1, torch.cond(z.sum() > 0, lambda z: z * 0.5, lambda z: z.abs().clone(), (z,))
    return while_loop(lambda i, y: i < n, body, (torch.zeros((), dtype=torch.int64), x))


def while_data_inside(x, n):
    from torch._higher_order_ops.while_loop import while_loop
    return while_loop(lambda i, s: i < n, lambda i, s: (i + 1, s + x[x > i].sum() + x.nonzero().shape[0]),
                      (torch.zeros((), dtype=torch.int64), torch.zeros(())))


def map_rows(xs, y):
    from torch._higher_order_ops.map import map as over
    return over(lambda x, y: (x.softmax(-1) * y).cumsum(-1), xs, y)


def map_matrices(xs, y):
    from torch._higher_order_ops.map import map as over
    return over(lambda x, y: (x @ y).relu(), xs, y)


def scan_rows(xs, first):
    from torch._higher_order_ops.scan import scan
    return scan(lambda c, x: ((c * 0.5 + x).tanh(), c @ x), first, xs, dim=0)


def scan_back(xs, first):
    from torch._higher_order_ops.scan import scan
    return scan(lambda c, x: (c + x, c * x), first, xs, dim=0, reverse=True)


def distinct(draws):
    """Uniform numbers, none of them drawn twice."""
    return (draws.sort()[0].diff() > 0).all(), draws.amax() < 1


def while_draws(x, n):
    """Each turn draws others, in a branch inside the loop; so does what comes behind it."""
    from torch._higher_order_ops.while_loop import while_loop

    def body(i, y):
        drawn = torch.cond(y.sum() < 1e9, lambda y: torch.rand_like(y), lambda y: y * 2, (y,))
        return i + 1, torch.where(torch.arange(8) == i, drawn, y)
    i, y = while_loop(lambda i, y: i < n, body, (torch.zeros((), dtype=torch.int64), -torch.arange(1.0, 9)))
    return i, *distinct(torch.cat([torch.rand_like(x), y, torch.rand_like(x)]))


def scan_draws(xs, first):
    from torch._higher_order_ops.scan import scan
    before = torch.rand_like(first)
    c, rows = scan(lambda c, x: (c + x, torch.rand_like(x)), first, xs, dim=0)
    return c, *distinct(torch.cat([before, rows.flatten(), torch.rand_like(first)]))


def fold_rows(xs):
    from torch._higher_order_ops.associative_scan import associative_scan
    return associative_scan(lambda a, b: a * b + a + b, xs, dim=0, combine_mode="pointwise")


def regions():
    n = lambda v: torch.tensor(v)
    up, down = lambda *s: torch.rand(*s) + 0.1, lambda *s: -torch.rand(*s) - 0.1
    big = (96, 96)
    rows = {0: Dim("rows", min=2, max=64)}
    return [
        Case("big_cond", big_cond, lambda: (up(*big), up(*big)), more=[lambda: (down(*big), up(*big))]),
        Case("cond_with_check", cond_with_check, lambda: (up(5, 3), n(2)), more=[lambda: (up(5, 3), n(9))]),
        Case("cond_two_results", cond_two_results, lambda: (up(*big), up(*big)), more=[lambda: (down(*big), up(*big))]),
        Case("cond_nested", cond_nested, lambda: (up(*big), up(*big)),
             more=[lambda: (down(*big), up(*big)), lambda: (up(*big), down(*big))]),
        Case("cond_after_lazy", cond_after_lazy, lambda: (up(*big), up(*big)), more=[lambda: (up(*big), down(*big))]),
        Case("cond_other_sizes", cond_other_sizes, lambda: (up(5, 4),), more=[lambda: (down(5, 4),)]),
        Case("cond_on_size", cond_on_size, lambda: (up(7, 4),), dynamic=(rows,), more=[lambda: (up(3, 4),), lambda: (up(5, 4),)]),
        Case("cond_data_inside", cond_data_inside, lambda: (torch.randn(9, 4), up(2)), more=[lambda: (torch.randn(9, 4), down(2)), lambda: (down(9, 4), up(2))]),
        Case("cond_sizes_inside", cond_sizes_inside, lambda: (torch.randn(40, 4), up(2)),
             more=[lambda: (torch.randn(40, 4), down(2)), lambda: (torch.rand(40, 4), up(2)), lambda: (torch.rand(40, 4), down(2))]),
        Case("cond_data_around", cond_data_around, lambda: (torch.randn(9, 4), up(2)), more=[lambda: (torch.randn(9, 4), down(2)), lambda: (down(9, 4), up(2))]),
        Case("while_counts", while_counts, lambda: (up(6, 4), n(3)), more=[lambda: (up(6, 4), n(0)), lambda: (up(6, 4), n(7))]),
        Case("while_converges", while_converges, lambda: (up(3, 8), torch.randn(8, 8) * 0.2)),
        Case("while_swaps", while_swaps, lambda: (up(6), up(6), n(3)), more=[lambda: (up(6), up(6), n(0)), lambda: (up(6), up(6), n(4))]),
        Case("while_nested", while_nested, lambda: (up(3, 4), n(4)), more=[lambda: (down(3, 4), n(3)), lambda: (up(3, 4), n(0))]),
        Case("while_data_inside", while_data_inside, lambda: (torch.randn(5, 4), n(3)), more=[lambda: (torch.randn(5, 4), n(0))]),
        Case("while_draws", while_draws, lambda: (up(5), n(3)), more=[lambda: (up(5), n(0)), lambda: (up(5), n(8))]),
        Case("scan_draws", scan_draws, lambda: (up(6, 9), up(9)), dynamic=(rows, None), more=[lambda: (up(2, 9), up(9)), lambda: (up(31, 9), up(9))]),
        Case("map_rows", map_rows, lambda: (up(6, 9), up(9)), more=[]),
        Case("map_dynamic", map_matrices, lambda: (up(6, 3, 5), up(5, 4)), dynamic=(rows, None), more=[lambda: (up(2, 3, 5), up(5, 4)), lambda: (up(11, 3, 5), up(5, 4))]),
        Case("scan_rows", scan_rows, lambda: (up(6, 9), up(9))),
        Case("scan_dynamic", scan_rows, lambda: (up(6, 9), up(9)), dynamic=(rows, None), more=[lambda: (up(2, 9), up(9)), lambda: (up(31, 9), up(9))]),
        Case("scan_back", scan_back, lambda: (up(6, 9), up(9))),
        Case("fold_rows", fold_rows, lambda: (up(6, 9),), more=[]),
    ]


def late_sorts():
    """Rows that are sorted by digits where they are long, of a length that the data decides: none, some, all."""
    some = lambda v: (lambda: (torch.where(torch.rand(100) < v, 1.0, -1.0) * (torch.rand(100) + 0.5),))
    return [Case("sorted_selection", lambda x: x.masked_select(x > 0).sort(0)[0], some(0.5), more=[some(0.0), some(1.0)])]


def lengths_of_sorts():
    """Long rows of a length that only the run knows: parts that are sorted, then merged; and reductions in parts."""
    def numbers(n, rows=()):
        return lambda: (torch.randint(-2000, 2000, (*rows, n), dtype=torch.int16),)

    def some(values, places):
        weights = torch.arange(places.shape[-1]) % 1009
        return (values.long() * weights).sum(-1), (places * weights).sum(-1), values.amax(-1)

    def extremes(x):
        y = torch.where(x.remainder(1999) == 5, float("nan"), x.float())
        return x.sum(), x.amax(), x.argmin(), x.argmax(), y.argmax(), (-y).argmin(), x.float().prod(), (x == 1999).any(), y.abs().sum().isnan()

    length, many = {0: Dim("n", min=2)}, lambda f: lambda x: some(*f(x))
    case = lambda name, f, *inputs, dynamic=length: Case(name, f, inputs[0], dynamic=(dynamic,), more=list(inputs[1:]))
    return [case("sorted", many(lambda x: x.sort(stable=True)), numbers(9000), numbers(2), numbers(1024), numbers(1025), numbers(8193), numbers(17000)),
            case("from_the_greatest", many(lambda x: x.sort(stable=True, descending=True)), numbers(9000), numbers(7), numbers(33000)),
            case("rows", many(lambda x: x.sort(stable=True)), numbers(8300, (2,)), numbers(5, (3,)), numbers(1100, (2,)), dynamic={0: Dim("rows", min=2), 1: Dim("n", min=2)}),
            case("first", lambda x: x.topk(3)[0], numbers(9000), numbers(3), numbers(17000), dynamic={0: Dim("n", min=3)}),
            case("middle", lambda x: (x.median(), x.kthvalue(2)[0]), numbers(9001), numbers(3), numbers(16999), dynamic={0: Dim("n", min=2)}),
            case("extremes", extremes, numbers(40000), numbers(2), numbers(17), numbers(70001)),
            case("planes", lambda x: (x.sum((1, 2)), x.amin((1, 2)), x.flatten(1).argmax(1)), numbers(40, (2, 512)), numbers(2, (100, 512)), numbers(3, (3, 512)),
                 dynamic={0: Dim("rows", min=2), 2: Dim("n", min=2)}),
            case("extremes_of_rows", lambda x: (x.argmax(1), x.float().sum(1), x.argmin(0), x.amax((0, 1))), numbers(20000, (2,)), numbers(3, (3,)), numbers(33000, (2,)),
                 dynamic={0: Dim("rows", min=2), 1: Dim("n", min=2)})]


def updates_in_any_order():
    """Elements that several updates meet: products, and the extremes of floats, with NaN and zeros of both signs, and of short words."""
    nan, inf = float("nan"), float("inf")
    index = torch.tensor([0, 3, 3, 1, 0, 6, 5, 5, 5, 2, 0, 1, 6, 3, 4, 4])
    floats = lambda t: (torch.tensor([1.5, -0.0, 0.0, -2.0, nan, -inf, -0.0, 3.0, inf], dtype=t), torch.tensor([2.0, -0.0, -1.0, 5.0, -3.0, -4.0, nan, 2.0, -1.0, 0.0, 7.0, -8.0, -1.0, -2.0, 0.5, -9.0], dtype=t))
    whole = lambda t: (torch.tensor([1, -2, 3, -4, 5, 6, -7, 8, 0]).to(t), torch.tensor([2, 3, -1, 5, -3, -4, 9, 2, -1, 0, 7, -8, -1, -2, 5, -9]).to(t))
    def signed(x):
        """NaN of both signs: what is stored first must stay whatever its bits say."""
        return torch.where(x.isnan(), torch.copysign(x, -torch.ones_like(x)), x)

    def update(mode, include):
        return lambda x, s: x.scatter_reduce(0, index, s, mode, include_self=include)

    cases = [Case(f"{mode}_{str(t)[6:]}", lambda x, s, mode=mode: (update(mode, True)(signed(x), s), update(mode, False)(x, signed(s))), lambda t=t: floats(t))
             for mode in ("amax", "amin", "prod") for t in (torch.float32, torch.float64, torch.float16, torch.bfloat16)]
    cases += [Case(f"{mode}_{str(t)[6:]}", update(mode, True), lambda t=t: whole(t))
              for mode in ("amax", "amin", "prod", "mean", "sum") for t in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)]
    cases += [Case("few_places", lambda x: (torch.zeros(7, dtype=torch.int64).index_add(0, x.long(), x.long() + 1), torch.zeros(7).index_add(0, x.long(), x * 0.5)),
                   lambda: (torch.randint(0, 7, (20001,), dtype=torch.uint8),))]
    cases += [Case("bool", lambda x, s: x.index_put((index,), s, accumulate=True), lambda: (torch.tensor([True] + [False] * 8), torch.tensor([True, False] * 8)))]
    return cases


def diagonals_written(x):
    """Strides 4 and 3 of any number of rows: no two elements meet."""
    y = x.new_ones(x.shape[0] * 4)
    y.as_strided((x.shape[0], 2), (4, 3)).copy_(x)
    return y.view(-1, 2, 2) * 2


def wide_bounds():
    """Torch writes bounds of sizes as wide as the user gave them, and those that it derives in assertions, too."""
    long = {d: Dim(f"long{d}", max=10**7) for d in range(3)}
    return [
        Case("rows", lambda x: x.softmax(0) * 2, lambda: (torch.randn(6, 4),), dynamic=({0: Dim("rows", min=2, max=1 << 70)},), more=[lambda: (torch.randn(9, 4),)]),
        Case("diagonals_written", diagonals_written, lambda: (torch.randn(3, 2),), dynamic=({0: Dim("rows", min=2, max=1 << 70)},), more=[lambda: (torch.randn(9, 2),)]),
        Case("positions", lambda x: ((x > 0).nonzero(), x[x > 0] * 2), lambda: (torch.randn(3, 4, 5),), dynamic=(long,), more=[lambda: (torch.randn(2, 3, 7),)], exact=False),
    ]


def grouped(a, b, offs=None):
    return torch.nn.functional.grouped_mm(a, b, offs=offs)


def grouped_to_last(a, b, offs):
    """What lies behind the last group is nobody's."""
    y = grouped(a, b, offs)
    return torch.where(torch.arange(y.shape[0])[:, None] < offs[-1], y, 0)


def mixture(x, gate, up, down):
    """Each row goes to one expert: rows are sorted by it, and two products are made of the groups."""
    expert = (x.float() @ gate).argmax(-1)
    order = expert.argsort(stable=True)
    ends = torch.bincount(expert, minlength=up.shape[0]).cumsum(0).int()
    y = grouped(grouped(x[order], up, ends).relu(), down, ends)
    return torch.empty_like(y).index_copy(0, order, y), ends


def grouped_by_transformers():
    """The operator that the library transformers registers for its mixtures of experts (transformers.integrations.moe), by what it says of it:
    rows of a group are multiplied by its matrix, rows of none are zero."""
    @torch.library.custom_op("transformers::grouped_mm_fallback", mutates_args=())
    def fallback(input: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(input.shape[0], weight.shape[2], dtype=input.dtype)
        begin = 0
        for group, end in enumerate(offs.tolist()):
            out[begin:end] = input[begin:end] @ weight[group]
            begin = end
        return out

    fallback.register_fake(lambda input, weight, offs: input.new_empty(input.shape[0], weight.shape[2]))
    some, most = (lambda n, *at: (lambda: (torch.randn(n, 32), torch.randn(4, 32, 24), torch.tensor(at, dtype=torch.int32)))), {0: Dim("rows", min=2, max=64)}
    return [c("static", fallback, "f32 40x32", "f32 4x32x24", torch.tensor([2, 7, 7, 33])), c("static_bf16", fallback, "bf16 16x32", "bf16 4x32x24", torch.tensor([2, 7, 7, 16])),
            Case("dynamic", fallback, some(16, 2, 7, 7, 16), dynamic=(most, None, None), more=[some(5, 1, 1, 3, 4), some(40, 1, 30, 31, 40)])]


def scaled_groups(a, b, scale_a, scale_b, offs=None):
    a, b = a.to(torch.float8_e4m3fn), b.mT.contiguous().to(torch.float8_e4m3fn).mT
    return torch._scaled_grouped_mm(a, b, scale_a, scale_b, offs=offs, out_dtype=torch.bfloat16)


def grouped_products():
    import eager_on_cpu
    eager_on_cpu.define()
    ends = lambda *at: torch.tensor(at, dtype=torch.int32)
    rows = {0: Dim("rows", min=2, max=64)}

    some, uneven, terms = ends(2, 7, 7, 16), ends(0, 1, 9, 24), ends(8, 8, 16, 32)
    return [
        c("rows", grouped, "f32 16x32", "f32 4x32x24", some), c("rows_bf16", grouped, "bf16 16x32", "bf16 4x32x24", some), c("rows_f16", grouped, "f16 16x32", "f16 4x32x24", some),
        c("rows_transposed", lambda a, b, o: grouped(a, b.mT, o), "bf16 16x32", "bf16 4x24x32", some), c("rows_to_last", grouped_to_last, "f32 16x32", "f32 4x32x24", ends(2, 7, 7, 12)),
        c("no_group_has_rows", grouped_to_last, "f32 16x32", "f32 4x32x24", ends(0, 0, 0, 0)), c("many_rows", grouped, "f32 40x32", "f32 4x32x24", ends(2, 7, 7, 40)), c("many_rows_bf16", grouped, "bf16 40x32", "bf16 4x32x24", ends(0, 17, 33, 40)),
        c("many_to_last", grouped_to_last, "f32 40x32", "f32 4x32x24", ends(2, 7, 7, 33)), c("many_of_nobody", grouped_to_last, "f32 40x32", "f32 4x32x24", ends(0, 0, 0, 0)),
        c("one_group", grouped, "f32 16x32", "f32 1x32x24", ends(16)),
        c("all_rows_in_one", grouped, "f32 16x32", "f32 4x32x24", ends(0, 16, 16, 16)), c("batch", grouped, "f32 4x16x32", "f32 4x32x24"), c("batch_bf16", grouped, "bf16 4x16x32", "bf16 4x32x24"),
        c("columns", grouped, "f32 4x16x32", "f32 32x24", uneven), c("columns_bf16", grouped, "bf16 4x16x32", "bf16 32x24", uneven),
        c("terms", grouped, "f32 16x32", "f32 32x24", terms), c("terms_bf16", grouped, "bf16 16x32", "bf16 32x24", terms),
        Case("rows_dynamic", grouped, lambda: (torch.randn(16, 32), torch.randn(4, 32, 24), some), dynamic=(rows, None, None),
             more=[lambda: (torch.randn(5, 32), torch.randn(4, 32, 24), ends(1, 1, 3, 5)), lambda: (torch.randn(40, 32), torch.randn(4, 32, 24), ends(1, 30, 31, 40))]),
        Case("mixture", mixture, lambda: (torch.randn(20, 32).bfloat16(), torch.randn(32, 4), torch.randn(4, 32, 48).bfloat16() / 6, torch.randn(4, 48, 32).bfloat16() / 7), dynamic=(rows, None, None, None),
             more=[lambda: (torch.randn(3, 32).bfloat16(), torch.randn(32, 4), torch.randn(4, 32, 48).bfloat16() / 6, torch.randn(4, 48, 32).bfloat16() / 7)]),
        c("scaled_rows", scaled_groups, "f32 16x32", "f32 4x32x32", "f32 16 >0", "f32 4x32 >0", some), c("scaled_batch", scaled_groups, "f32 4x16x32", "f32 4x32x32", "f32 4x16 >0", "f32 4x32 >0"),
        c("scaled_columns", scaled_groups, "f32 4x16x32", "f32 32x32", "f32 4x16 >0", "f32 32 >0", ends(0, 1, 9, 32)), c("scaled_terms", scaled_groups, "f32 16x32", "f32 32x32", "f32 64 >0", "f32 128 >0", terms),
    ]


DRAWS = 16384
# Dvoretzky, Kiefer and Wolfowitz, Massart: the shares of n draws are nowhere further than e from the probabilities but with a probability of 2 exp(-2 n e^2), here 1e-9.
FURTHEST = (math.log(2e9) / (2 * DRAWS)) ** 0.5


def shares(draws, at, wanted):
    """For each column of draws [n, m], whether the shares of those up to the points `at` [m, k] are the probabilities `wanted` [m, k]."""
    found = (draws.double()[:, :, None] <= at).double().mean(0)
    return (found - wanted).abs() < FURTHEST


def counts(draws):
    return (draws == draws.floor()).all(), draws.min() >= 0


def rows_of(*parameters):
    return [p.expand(DRAWS, -1) for p in parameters]


def drawn_poisson(rate, at, wanted):
    x = torch.poisson(*rows_of(rate))
    return shares(x, at, wanted), *counts(x), (x[:-1] != x[1:]).any(0)


def drawn_binomial(count, chance, at, wanted):
    x = torch.binomial(*rows_of(count, chance))
    return shares(x, at, wanted), *counts(x), (x <= count).all()


def drawn_gamma(shape, at, wanted):
    x = torch._standard_gamma(*rows_of(shape))
    return shares(x, at, wanted), (x > 0).all()


def drawn_dirichlet(shape, at, wanted):
    x = torch._sample_dirichlet(*rows_of(shape))
    return shares(x, at, wanted), (x.sum(-1) - 1).abs().max() < 1e-5, (x > 0).all()


def drawn_in_branch(rate, at, wanted, flag):
    x = torch.cond(flag > 0, lambda r: torch.poisson(r), lambda r: r * 0, (rate.expand(DRAWS, -1),))
    return shares(x, at, wanted) == (flag > 0), torch.poisson(rate) >= 0


def drawn_edges(shape, count):
    zero, one = torch.zeros_like(count), torch.ones_like(count)
    return (torch.poisson(zero), torch.binomial(count, zero), torch.binomial(count, one), torch.binomial(zero, one / 2), torch.binomial(count, one * float("nan")),
            torch._standard_gamma(zero), torch._standard_gamma(shape).dtype == shape.dtype, torch.poisson(shape.half()).isfinite(), torch._sample_dirichlet(shape[:, None]),
            torch.poisson(shape[:0]), torch.distributions.Beta(shape, shape).sample().le(1))


def points(least, most, count=24):
    return torch.stack([torch.linspace(a, b, count, dtype=torch.float64) for a, b in zip(least, most)])


def drawn_without_generators(x):
    """The overloads that take a generator and are given none: what is known of their numbers."""
    u, z, n = torch.rand(4000, generator=None), torch.randn(2, 2000, generator=None, dtype=x.dtype), torch.randint(-2, 5, (4000,), generator=None)
    return ((u.mean() - 0.5).abs() < 0.05, u.amin() >= 0, u.amax() < 1, z.mean().abs() < 0.1, (z.std() - 1).abs() < 0.1, n.amin(), n.amax(),
            torch.randint(9, (5, 3), generator=None) < 9, torch.randperm(50, generator=None).sort().values, x * 2)


def sampling():
    s = torch.special
    rates = torch.tensor([0.3, 4.0, 9.99, 10.0, 31.0, 1e3, 1e6])
    up_to = points((rates - 4 * rates.sqrt()).clamp(min=0).tolist(), (rates + 4 * rates.sqrt()).tolist()).floor()
    poisson = s.gammaincc(up_to + 1, rates.double()[:, None])
    shapes = torch.tensor([0.05, 0.5, 0.99, 1.0, 2.5, 40.0, 1e4])
    at = points([0] * 7, (shapes + 4 * shapes.sqrt()).tolist())
    trials, chances = torch.tensor([1, 12, 50, 50, 1000, 1000, 1e5]), torch.tensor([0.3, 0.5, 0.05, 0.9, 0.5, 0.999, 0.02])
    spread = (trials * chances * (1 - chances)).sqrt() * 4
    middle = trials * chances
    below = points((middle - spread).clamp(min=0).tolist(), torch.minimum(middle + spread, trials).tolist()).floor()
    k, n, p = torch.arange(100001, dtype=torch.float64), trials.double()[:, None], chances.double()[:, None]
    each = torch.where(k <= n, ((n + 1).lgamma() - (k + 1).lgamma() - (n - k).clamp(min=0).add(1).lgamma() + k * p.log() + (n - k) * (1 - p).log()).exp(), 0)
    binomial = each.cumsum(-1).gather(-1, below.long())
    # Beta(a, rest) by the trapezoid rule, in a variable that takes its ends away.
    of = torch.tensor([0.5, 1.0, 4.0, 20.0])
    t = torch.linspace(0, 1, 20001, dtype=torch.float64)
    x = t ** 4 / (t ** 4 + (1 - t) ** 4)
    a, rest = of.double()[:, None], (of.sum() - of).double()[:, None]
    slope = 4 * (t * (1 - t)) ** 3 / (t ** 4 + (1 - t) ** 4) ** 2
    density = x.clamp(min=1e-300) ** (a - 1) * (1 - x).clamp(min=1e-300) ** (rest - 1) * slope
    dirichlet = torch.cumulative_trapezoid(density, t) / torch.trapezoid(density, t)[:, None]
    places = torch.arange(500, 20000, 900)
    once = dict(exact=False)
    return [
        c("poisson", drawn_poisson, rates, up_to, poisson, **once), c("gamma", drawn_gamma, shapes, at, s.gammainc(shapes.double()[:, None], at), **once),
        c("gamma_f64", drawn_gamma, shapes.double(), at, s.gammainc(shapes.double()[:, None], at), **once), c("binomial", drawn_binomial, trials, chances, below, binomial, **once),
        c("dirichlet", drawn_dirichlet, of, x[places + 1].expand(4, -1).contiguous(), dirichlet[:, places], **once),
        c("in_branch", drawn_in_branch, rates[:4], up_to[:4], poisson[:4], torch.tensor(1), more=[(rates[:4], up_to[:4], poisson[:4], torch.tensor(0))], **once),
        c("edges", drawn_edges, torch.tensor([0.5, 3.0, 20.0]), torch.tensor([0.0, 3.0, 1e4]), **once),
        c("without_generators", drawn_without_generators, "f32 3", **once),
    ]


def places():
    """What a number of the data's points to: each with one that points nowhere is refused by the run (tests/errors/assertions_test.cpp)."""
    n = lambda v: lambda: (torch.randn(7, 2), torch.tensor(v, dtype=torch.int64))
    def case(name, f, *values):
        return Case(name, f, n(values[0]), more=[n(v) for v in values[1:]], raw_only=name == "row_set")
    return [
        case("row", lambda x, n: x[n.item()] + 1, 3, 6, -7), case("column", lambda x, n: x.select(1, n.item()), 1, -2),
        case("row_set", lambda x, n: x.select_scatter(torch.ones(2), 0, n.item()), 3, 6, -7), case("rows_set", lambda x, n: x.slice_scatter(torch.ones(2, 2), 0, n.item(), n.item() + 2), 3, 5),
        case("strided", lambda x, n: x.as_strided((3,), (2,), n.item()) * 2, 3, 0, 9), case("stated", lambda x, n: torch.ones(n.item(), 2) + x, 7),
        case("viewed", lambda x, n: x.view(n.item(), 2) * 2, 7), case("counted", lambda x, n: x.new_zeros((x > n).nonzero().shape[0]) + torch.ones(14), -99),
        case("divided", lambda x, n: x[:14 // n.item()].sum(0), 3, 14, -2), case("greatest", lambda x, n: (x[x > n].max(), x[x > n].amin(0)), -1, 0),
        case("gathered", lambda x, n: x.gather(0, n.reshape(1, 1)), 3, 6), case("selected", lambda x, n: x.index_select(0, n), 3, 6),
        case("scattered", lambda x, n: x.scatter(0, n.reshape(1, 1), 1.0), 3, 6), case("added", lambda x, n: x.index_add(0, n.reshape(1), torch.ones(1, 2)), 3, 6),
        case("filled", lambda x, n: x.index_fill(0, n, 1.0), 3, -7), case("label", lambda x, n: F.one_hot(n, 7) + x.long()[0, 0], 3, 6),
    ]


def asserted_regions():
    """Assertions inside of branches and loops hold where those run, and only there: the second inputs break them in the branch that is not taken.
    cli/test runs the first branch with what breaks them."""
    taken, other = torch.ones(2), -torch.ones(2)

    def of_number(x):
        u = x.sum().to(torch.int64).item()
        torch._check(u >= 2)
        torch._check(u <= 9)
        return x + u

    def of_tensor(x):
        torch._assert_async((x > 0).all(), "all must be positive")
        return x + 1

    def of_floats(x, p):
        a, b = x.sum().item(), p.max().item()
        torch._check(a > 0.5)
        torch._check(a * 2 - b > 1.0)
        return x * a

    def branch(inside):
        return lambda x, p: torch.cond(p.sum() > 0, inside, lambda x: x * 2, (x,))

    def loop(x, p):
        return torch.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, of_tensor(x - 1)), (p.sum().to(torch.int64), x))

    return [
        c("number", branch(of_number), torch.ones(4), taken, more=[(torch.zeros(4), other)]),
        c("tensor", branch(of_tensor), torch.ones(4), taken, more=[(torch.zeros(4), other)]),
        c("inverse", branch(lambda x: torch.linalg.inv(x).contiguous()), 2 * torch.eye(3), taken, more=[(torch.zeros(3, 3), other)]),
        c("loop", loop, 2 * torch.ones(4), taken, more=[(torch.zeros(4), 3 * taken)]), c("floats", of_floats, torch.ones(4), taken),
    ]


def coordinates():
    """Sparse tensors that the model makes; some coordinates are there twice."""
    at = lambda i, n=5, m=4: torch.stack([i % n, (i * 7 + 2) % m])  # noqa: E731
    of = lambda i, v, n=5, m=4: torch.sparse_coo_tensor(at(i, n, m), v, (n, m))  # noqa: E731
    few, values, by = "i64 9 <60", "f32 9", "f32 4x3"
    return [
        c("dense", lambda i, v: of(i, v).to_dense(), few, values), c("dense_i64", lambda i, v: of(i, v).to_dense(), few, "i64 9"), c("dense_c64", lambda i, v: of(i, v).to_dense(), few, "c64 9"),
        c("dense_of_rows", lambda i, v: torch.sparse_coo_tensor(at(i)[:1], v, (5, 3)).to_dense(), few, "f32 9x3"), c("dense_3d", lambda i, v: torch.sparse_coo_tensor(torch.cat([at(i), at(i)[:1]]), v, (5, 4, 5)).to_dense(), few, values),
        c("as_f64", lambda i, v: torch.sparse_coo_tensor(at(i), v, (5, 4), dtype=torch.float64).to_dense(), few, values),
        c("product", lambda i, v, x: torch.sparse.mm(of(i, v), x), few, values, by), c("product_at", lambda i, v, x: of(i, v) @ x, few, values, by), c("product_of_vector", lambda i, v, x: of(i, v) @ x[:, 0], few, values, by, raw_only="torch decomposes it into a product of elements"),
        # What is nowhere is not multiplied: no NaN of an infinity there.
        c("product_of_infinities", lambda i, v, x: torch.sparse.mm(of(i, v), x / 0), few, values, by), c("coalesced", lambda i, v, x: torch.sparse.mm(of(i, v).coalesce(), x), few, values, by),
        c("transposed", lambda i, v, x: (of(i, v, 4, 6).t() @ x, of(i, v).transpose(0, 1).to_dense(), of(i, v).transpose(-2, -1).to_dense()), few, values, by),
        c("multiples", lambda i, v, x: ((of(i, v) * 2.5) @ x, (-of(i, v) / 3).to_dense()), few, values, by, raw_only="torch cannot multiply sparse tensors there"), c("sum", lambda i, v: torch.sparse.sum(of(i, v)), few, values, raw_only="torch decomposes it into a sum of values that it takes to be none"),
        c("added", lambda i, v, x, y: (torch.sparse.addmm(y, of(i, v), x, beta=0.5, alpha=2.0), torch.sparse.addmm(y, of(i, v), x), torch.addmm(y, of(i, v), x)), few, values, by, "f32 5x3"),
        c("dynamic", lambda i, v, x: (torch.sparse.mm(of(i, v), x), of(i, v).to_dense()), few, values, by, more=[["i64 2 <60", "f32 2", by], ["i64 30 <60", "f32 30", by]], dynamic=({0: N}, {0: N}, {})),
    ]


VIEWS = "torch functionalises no views but ATen's"


def primitives():
    """What PyTorch's whole table of decompositions ends in."""
    p = torch.ops.prims
    unary = "abs ceil cos cosh digamma erf erfc exp exp2 expm1 floor isfinite lgamma neg reciprocal round sign signbit sin sinh tan tanh trunc atan asinh bessel_i0 bessel_i0e bessel_i1 bessel_j0 bessel_j1".split()
    bounded, positive = "acos asin atanh erf_inv".split(), "log log10 log1p log2 rsqrt sqrt acosh".split()
    two, whole = "add sub mul div maximum minimum fmax fmin atan2 fmod remainder hypot eq ne lt le gt ge nextafter".split(), "add sub mul div bitwise_and bitwise_or bitwise_xor fmod remainder gcd eq lt".split()
    at = lambda name, *x: getattr(p, name)(*x)  # noqa: E731
    return [
        c("unary", lambda x: [at(name, x) for name in unary], "f32 3x7"), c("bounded", lambda x: [at(name, x) for name in bounded], "f32 3x7 u"), c("positive", lambda x: [at(name, x + 1) for name in positive], "f32 3x7 >0"),
        c("two", lambda x, y: [at(name, x, y) for name in two], "f32 3x7", "f32 3x7"), c("whole", lambda x, y: [at(name, x, y) for name in whole], "i64 3x7", "i64 3x7 >0"),
        c("powers", lambda x, y: (p.pow(x, y), p.igamma(x, x), p.zeta(x + 1, x)), "f32 3x7 >0", "f32 3x7"), c("shifts", lambda x, y: (p.shift_left(x, y), p.shift_right_arithmetic(x, y)), "i64 9", "i64 9 <20"),
        c("reductions", lambda x: (p.sum(x, [1]), p.sum(x, [0, 2]), p.amax(x, [1]), p.amin(x, [0, 1, 2]), p.var(x, [1, 2], 0), p.var(x, [0], 1)), "f32 3x7x4"),
        c("sums_of_integers", lambda x: (p.sum(x, [1]), p.sum(x, [0, 1])), "i64 3x7"),
        c("views", lambda x: (p.broadcast_in_dim(x, [3, 2, 7, 4], [0, 2]) + p.broadcast_in_dim(x[0, :1], [3, 2, 7, 4], [3]), p.transpose(x, [1, 0]), p.rev(x, [1]), p.reshape(x, [7, 3]), p.squeeze(x[:, None, :1], [1, 2]), p.cat([x, x], 1), p.view_of(x) * 2, p.clone(x)), "f32 3x7", raw_only=VIEWS),
        c("made", lambda x: (p.iota(5, start=3, step=-2, dtype=torch.int64, device=x.device, requires_grad=False), p.iota(4, start=0, step=1, dtype=torch.int32, device=x.device, requires_grad=False), p.full([2, 3], 1.5, dtype=torch.float32, device=x.device, requires_grad=False), p.full_like(x, 2, dtype=torch.float64, device=x.device, requires_grad=False), p.where(x > 0, x, -x)), "f32 5"),
        c("folds", lambda x: (p.split_dim(x, 1, 2) * 2, p.collapse(x, 0, 1) * 2, p.collapse_view(x, 0, 1) * 2, p.fill(x, 2.5)), "f32 3x8", raw_only=VIEWS),
        c("folds_dynamic", lambda x: (p.split_dim(x, 1, 2) * 2, p.collapse(x, 0, 1) * 2), "f32 3x8", more=[["f32 5x8"]], dynamic=({0: Dim("n", min=2, max=64)},), raw_only=VIEWS),
        c("fourier", lambda x: (torch.view_as_real(p.fft_r2c(x, dim=[1], onesided=True)), p.fft_c2r(p.fft_r2c(x, dim=[1], onesided=True), dim=[1], last_dim_size=8), torch.view_as_real(p.fft_c2c(torch.complex(x, x), dim=[0, 1], forward=False))), "f32 3x8"),
        c("dynamic", lambda x: p.add(p.broadcast_in_dim(x, [3, x.shape[0]], [1]), p.broadcast_in_dim(p.convert_element_type(p.iota(x.shape[0], start=0, step=1, dtype=torch.int64, device=x.device, requires_grad=False), torch.float32), [3, x.shape[0]], [1])), "f32 5", more=[["f32 2"], ["f32 60"]], dynamic=({0: Dim("n", min=2, max=64)},), raw_only=VIEWS),
    ]


def sizes_in_doubles():
    """Sizes that Python computes in doubles and rounds; 49, 98 and 147 are where it comes to one less than the fraction is."""
    def shortest(x):
        h, w = x.shape
        k = 64 / torch.sym_min(h, w)
        a, b = torch.sym_int(h * k), torch.sym_int(h / 3 * (64 / w))
        return torch.nn.functional.interpolate(x[None, None], size=(a, 8), mode="nearest"), torch.arange(b) + a

    def sides(x):
        """As a vision model asks for its grid of positions."""
        h, w = x.shape[0] // 14, x.shape[1] // 14
        return x[: torch.sym_int((h + 0.1) / 14 * 14), : torch.sym_int(14 * ((w + 0.1) / 14))] * 2

    def asserted(x):
        n = int(64 / x.shape[0] * x.shape[1])
        return x.flatten()[:n] * 2

    sizes = [[f"f32 {h}x{w}"] for h, w in ((49, 49), (147, 49), (98, 196), (33, 147), (196, 147))]
    A = {0: Dim.AUTO, 1: Dim.AUTO}
    return [
        c("shortest", shortest, "f32 147x98", more=sizes, dynamic=(A,)), c("sides", sides, "f32 70x98", more=[["f32 28x42"], ["f32 98x196"]], dynamic=(A,)),
        # int() ties the size to that of the export.
        c("asserted", asserted, "f32 20x5", more=[["f32 40x10"]], dynamic=(A,)),
        c("only_asserted", lambda x: (asserted(x), x)[1], "f32 20x5", more=[["f32 40x10"]], dynamic=(A,)),
    ]


def rows_of_masks():
    """Masks of more elements than are counted together, and of as many."""
    def taken(x):
        m = x > 0.5
        return m.nonzero(), x[m], x.masked_select(~m)[-3:]

    n = ({0: Dim("n", min=8, max=5000)},)
    return [
        c("dynamic", taken, "f32 1500", more=[["f32 8"], ["f32 1023"], ["f32 1024"], ["f32 1025"], ["f32 2048"]], dynamic=n),
        c("fixed", lambda x: (x > 1).nonzero(), "f32 3x7x70"), c("fixed_whole", lambda x: x[x > 1], "f32 2x1024"),
        c("none", lambda x: (x > 100).nonzero(), "f32 1500", more=[["f32 8"]], dynamic=n),
    ]


def groups():
    return {"rows_of_masks": rows_of_masks(), "sizes_in_doubles": sizes_in_doubles(), "coordinates": coordinates(), "primitives": primitives(), "places": places(), "sampling": sampling(), "grouped_products": grouped_products(), "grouped_by_transformers": grouped_by_transformers(), "wide_bounds": wide_bounds(), "late_sorts": late_sorts(), "lengths_of_sorts": lengths_of_sorts(), "updates_in_any_order": updates_in_any_order(), "data_sizes": data_sizes(), "regions": regions(), "asserted_regions": asserted_regions()}
