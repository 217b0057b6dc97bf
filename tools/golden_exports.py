"""What PyTorch's own tests of torch.export make of models, and other exports do not have: layers by their fast path, recurrent layers over sequences of any length, sub-graphs
that say something to other compilers.
"""
import torch
from torch._higher_order_ops.flex_gemm import flex_gemm
from torch._higher_order_ops.foreach_map import foreach_map
from torch._higher_order_ops.hints_wrap import hints_wrapper
from torch._higher_order_ops.strict_mode import strict_mode
from torch._higher_order_ops.while_loop import while_loop_stack_output_op as while_loop_stack_output
from torch.export import Dim
from torch.export._patches import register_gru_while_loop_decomposition, register_lstm_while_loop_decomposition

from golden_ops import c

A = torch.ops.aten
SHORT = "written out it is a program of hundreds of operators"
T = Dim("steps", min=1, max=600)


def heads(m, q, k, v, mask=None, *rest):
    return A._native_multi_head_attention(q, k, v, 8, 2, m.win, m.bin, m.wout, m.bout, mask, *rest)


def layer(m, x, mask=None, kind=None, gelu=False, first=False):
    return A._transformer_encoder_layer_fwd(x, 8, 2, m.win, m.bin, m.wout, m.bout, gelu, first, 1e-5, m.g1, m.b1, m.g2, m.b2, m.up, m.upb, m.down, m.downb, mask, kind)


def fast_paths():
    """Rows of which everything is masked give no numbers here, unlike with scaled_dot_product_attention."""
    attention = {"win": "f32 24x8", "bin": "f32 24", "wout": "f32 8x8", "bout": "f32 8"}
    whole = attention | {"g1": "f32 8", "b1": "f32 8", "g2": "f32 8", "b2": "f32 8", "up": "f32 16x8", "upb": "f32 16", "down": "f32 8x16", "downb": "f32 8"}
    x, keys = "f32 2x5x8", "bool 2x5"
    causal = torch.ones(5, 5, dtype=torch.bool).triu(1)
    return [
        c("averaged", lambda m, q, k, v: heads(m, q, k, v), x, x, x, state=attention), c("each_head", lambda m, x: heads(m, x, x, x, None, True, False), x, state=attention),
        c("no_weights", lambda m, x: heads(m, x, x, x, None, False)[0], x, state=attention),
        c("masked_keys", lambda m, x, mask: heads(m, x, x, x, mask, True, False, 1), x, keys, more=[[x, torch.ones(2, 5, dtype=torch.bool)]], state=attention),
        c("causal", lambda m, x: heads(m, x, x, x, causal, False, True, 0)[0], x, state=attention),
        c("masked_heads", lambda m, x, mask: heads(m, x, x, x, mask, True, True, 2), x, "bool 2x2x5x5", state=attention),
        c("layer", layer, x, state=whole), c("layer_gelu_first", lambda m, x: layer(m, x, gelu=True, first=True), x, state=whole),
        c("layer_masked", lambda m, x, mask: layer(m, x, mask, 1), x, keys, state=whole),
        # What is to be left out as numbers of -infinity.
        c("layer_causal", lambda m, x: layer(m, x, torch.full((5, 5), float("-inf")).triu(1).expand(2, 2, 5, 5), 2), x, state=whole),
    ]


class Weights:
    """The flat parameters of a recurrent layer, by name."""

    def __init__(self, gates, width, hidden, layers, directions, projected=0):
        out = projected or hidden
        self.specs = {}
        for n in range(layers):
            for d in range(directions):
                inner = width if n == 0 else out * directions
                shapes = [f"{gates * hidden}x{inner}", f"{gates * hidden}x{out}", f"{gates * hidden}", f"{gates * hidden}", *([f"{projected}x{hidden}"] if projected else [])]
                self.specs |= {f"w{n}{d}{k}": "f32 " + s for k, s in enumerate(shapes)}

    def of(self, m):
        return [getattr(m, name) for name in self.specs]


def steps():
    def any_length(name, layer, *specs, **rest):
        """torch exports the length as a number that may differ while it has its own loop for the operator at hand, which is not used."""
        def function(m, *tensors):
            with register_lstm_while_loop_decomposition(), register_gru_while_loop_decomposition():
                return layer(m, *tensors)
        return c(name, function, *specs, raw_only="outside of that, torch takes it apart into as many steps as the example has", **rest)

    lstm, gru, both, short = Weights(4, 3, 4, 1, 1), Weights(3, 3, 4, 1, 1), Weights(4, 3, 4, 2, 2), Weights(4, 3, 4, 1, 1, 2)
    plain = Weights(1, 3, 4, 1, 2)
    few, many = "f32 5x2x3", "f32 300x2x3"
    dynamic = ({0: T}, *[None] * 2)
    x = lambda h: [[few, *h], ["f32 1x2x3", *h], ["f32 17x2x3", *h]]  # noqa: E731
    state, states = ["f32 1x2x4"], ["f32 1x2x4", "f32 1x2x4"]
    first = ["f32 4x2x4", "f32 4x2x4"]
    return [
        any_length("lstm", lambda m, x, h, s: torch.lstm(x, [h, s], lstm.of(m), True, 1, 0.0, False, False, False), *x(states)[0], more=x(states)[1:], dynamic=dynamic, state=lstm.specs),
        any_length("lstm_both_ways", lambda m, x, h, s: torch.lstm(x, [h, s], both.of(m), True, 2, 0.0, False, True, False), *x(first)[0], more=x(first)[1:], dynamic=dynamic, state=both.specs),
        any_length("lstm_batch_first", lambda m, x, h, s: torch.lstm(x, [h, s], lstm.of(m), True, 1, 0.0, False, False, True), "f32 2x6x3", *states, more=[["f32 2x1x3", *states]],
          dynamic=({1: T}, None, None), state=lstm.specs),
        any_length("lstm_projected", lambda m, x, h, s: torch.lstm(x, [h, s], short.of(m), True, 1, 0.0, False, False, False), few, "f32 1x2x2", "f32 1x2x4", more=[["f32 3x2x3", "f32 1x2x2", "f32 1x2x4"]],
          dynamic=dynamic, state=short.specs),
        any_length("gru", lambda m, x, h: torch.gru(x, h, gru.of(m), True, 1, 0.0, False, False, False), few, *state, more=[["f32 1x2x3", *state], ["f32 9x2x3", *state]], dynamic=({0: T}, None), state=gru.specs),
        c("tanh_both_ways", lambda m, x, h: torch.rnn_tanh(x, h, plain.of(m), True, 1, 0.0, False, True, False), many, "f32 2x2x4", raw_only=SHORT,
          state=plain.specs),
        c("many_steps", lambda m, x, h, s: torch.lstm(x, [h, s], lstm.of(m), True, 1, 0.0, False, False, False), many, *states, state=lstm.specs, raw_only=SHORT),
    ]


def hints():
    def inner(x, y):
        return torch.relu(x) + y

    def outer(x, y):
        return torch.abs(hints_wrapper(inner, (x, y), {}, hints={"inner": True}))

    # torch takes no apart: it has no rule for functionalising what is inside.
    return [c("hints", lambda x, y: hints_wrapper(outer, (x + y, y), {}, hints={"outer": "a"}) * 2, "f32 2x4", "f32 4", raw_only="the same in both forms")]


def fixed_size(x):
    """The sub-graph is given a size that is one number by the end of the export: its call has the number in that place."""
    x = x.flatten(1)[:, :7]
    n = x.size()[0]
    if n < 2:
        raise ValueError("one row has no variance")
    with torch.autocast("cpu", enabled=False):
        mean = x.mean(0, keepdim=True)
        y = x.reshape(n, 7) - mean
        y = y.mT @ y / float(n - 1)
    return ((x.reshape(-1, 7) - mean) @ y).reshape(x.size())


def traced_regions():
    """Regions that are traced once and called from several places, and others that are a sub-graph and no more."""
    scaled = torch.compiler.nested_compile_region(lambda x, y: torch.sin(x) @ y)
    outer = torch.compiler.nested_compile_region(lambda x, y: (scaled(x, y) + 1, x * 2))

    def nested(p, x, y):
        a, b = outer(x, y)
        return torch.cond(p, lambda a, b, y: scaled(a, y) + b, lambda a, b, y: a - b, [a, b, y])

    # Each call has sizes and numbers of its own for what is one name in the graph of the first.
    counted = torch.compiler.nested_compile_region(lambda x: x[x.nonzero().squeeze(1)] * 2)
    summed = torch.compiler.nested_compile_region(lambda x: x[x.nonzero().squeeze(1)].sum())

    @torch.compiler.nested_compile_region
    def ranged(x):
        n = x.sum().item()
        torch._check(n >= 0)
        torch._check(n < 100)
        return torch.arange(n) + 1

    some, few = torch.tensor([1.0, 0, 2, 0]), torch.tensor([0.0, 0, 0, 3])
    whole, less = torch.tensor([1, 0, 2]), torch.tensor([0, 0, 5])
    n = {0: Dim("n")}
    return [
        c("sizes_of_each_call", lambda x, y: (counted(x), counted(y), counted(x + y)), some, few, more=[[few, some], [torch.zeros(4), few]], strict=True),
        c("sums_of_each_call", lambda x, y: summed(x) + summed(y) * 2, some, few, more=[[torch.zeros(4), some]], strict=True),
        c("numbers_of_each_call", lambda x, y: (ranged(x), ranged(y)), whole, less, more=[[less * 0, whole]], strict=True),
        c("called_twice", lambda x, y: scaled(x, y) + scaled(x * 2, y), "f32 3x4", "f32 4x4", more=[["f32 7x4", "f32 4x4"]], dynamic=(n, None), strict=True),
        c("nested", nested, torch.tensor(True), "f32 3x4", "f32 4x4", more=[[torch.tensor(False), "f32 3x4", "f32 4x4"]], strict=True),
        c("each_of_a_list", lambda x, y: foreach_map(torch.add, [x, x * 2], [y, y]), "f32 5", "f32 5", strict=True),
        c("product_with_epilogue", lambda x, y, b: flex_gemm(torch.addmm, (b, x, y), lambda acc: (torch.relu(acc), acc.sum(1))), "f32 5x8", "f32 8x3", "f32 3"),
        c("fixed_size", fixed_size, "f32 3x2x5", dynamic=({0: Dim.AUTO},), raw_only="decompositions leave no sub-graph"),
        c("strict_mode", lambda x: strict_mode(lambda x: (x + 1, x * 2), (x,)), "f32 5"),
    ]


def stacked_turns():
    """What each turn of a loop gives; of one without turns what it begins with."""
    def powers(start, x, w):
        return while_loop_stack_output(lambda i, x, w: i < 4, lambda i, x, w: (i + 1, torch.tanh(x @ w)), (start, x), (w,))

    def halved(z):
        return while_loop_stack_output(lambda n, z: (z.abs() > 1).any(), lambda n, z: (n + 1, z / 2), (torch.tensor(0), z), ())

    z = torch.tensor([5 + 1j, 0.5j])
    return [c("powers", powers, torch.tensor(0), "f32 2x3", "f32 3x3", more=[[torch.tensor(n), "f32 2x3", "f32 3x3"] for n in (3, 7)]), c("halved", halved, z, more=[[z / 10], [z * 10]])]


def rows_without_keys():
    """Zeros for a row whose keys are all masked; no numbers where the scores are none."""
    none = torch.full((3, 4), float("-inf"))
    nan = torch.zeros(2, 3, 4)
    nan[0, 1, 2] = float("nan")
    F = torch.nn.functional
    return [c("three_dims", lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, attn_mask=mask), "f32 2x3x4", "f32 2x4x4", "f32 2x4x4", none,
              more=[[nan, "f32 2x4x4", "f32 2x4x4", torch.zeros(3, 4)]])]


def tuples():
    """Of lists whose length is not known; and as torch 2.11 exports them, which leaves the number of tuples to the data."""
    combinations, decomposes = torch.ops.aten.combinations.default, torch._C.DispatchKey.CompositeImplicitAutograd

    def by_mask(x, r=2, with_replacement=False):
        if by_mask.as_before:
            at = torch.meshgrid([torch.arange(x.shape[0])] * r, indexing="ij")
            return x[torch.stack([a <= b if with_replacement else a < b for a, b in zip(at, at[1:])] or [at[0] >= 0]).all(0).nonzero()]
        return combinations._op_dk(decomposes, x, r, with_replacement)

    def before(x, *rest):
        by_mask.as_before = torch.compiler.is_exporting()
        try:
            return torch.combinations(x, *rest)
        finally:
            by_mask.as_before = False

    by_mask.as_before = False
    combinations.py_impl(decomposes)(by_mask)
    n, of = Dim("n", min=3, max=64), "torch decomposes them into tuples of a number that it knows"
    any_size = {"dynamic": ({0: n},), "more": [["f32 3"], ["f32 20"]]}
    return [c("pairs", lambda x: before(x), "f32 5", raw_only=of), c("pairs_again", lambda x: before(x, 2, True), "i64 5", raw_only=of), c("triples", lambda x: before(x, 3).sum(1), "c64 5", raw_only=of),
            c("singles", lambda x: before(x, 1), "f32 5", raw_only=of), c("none", lambda x: before(x, 3), "f32 2", raw_only=of), c("pairs_dynamic", lambda x: before(x) * 2, "f32 5", raw_only=of, **any_size),
            c("pairs_again_dynamic", lambda x: torch.combinations(x, 2, True), "f32 5", **any_size), c("singles_dynamic", lambda x: torch.combinations(x, 1), "f32 5", **any_size)]


def groups():
    return {f.__name__: f() for f in (fast_paths, steps, hints, traced_regions, stacked_turns, rows_without_keys, tuples)}
