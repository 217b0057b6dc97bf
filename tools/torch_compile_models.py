"""Whole models under torch.compile(backend="neso") beside eager: what `torch_compile_check.py --models` runs.

The models are those of check_models.py and of the zoo, with their input sets: several sizes of one model make torch ask for dynamic sizes.
"""
import time

# Of the largest value of a result: deep networks of random weights stay an order below it, and gradients pass through twice as many layers.
RESULT_BOUND, GRADIENT_BOUND = 1e-3, 1e-2
LEAST_GRADIENT = 1e-3
# How much further from the gradients in float64 than eager's own in float32 may be what is beyond the bound.
ROUNDING_FACTOR = 4


def jobs():
    from check_models import MODELS
    return [("model", entry, name) for name, entry in MODELS.items()]


def tensors(result):
    import torch
    from torch.utils import _pytree
    return [v for v in _pytree.tree_leaves(result) if isinstance(v, torch.Tensor)]


def forward(function, args):
    import torch
    with torch.no_grad():
        # A result may be memory that the next call writes again.
        return [v.clone() for v in tensors(function(*args))]


def gradients(function, model, args):
    """(names, gradients) of the parameters that the results depend on, for a loss that weighs every result."""
    model.zero_grad()
    outs = [v for v in tensors(function(*args)) if v.is_floating_point() and v.requires_grad]
    sum(v.square().mean() for v in outs).backward()
    found = [(name, p.grad) for name, p in model.named_parameters() if p.grad is not None]
    return [name for name, _ in found], [grad for _, grad in found]


def distance(got, want, least=0.0):
    """The greatest difference as a share of the largest value, or of `least` where that is more. Where it is not a number, infinity."""
    import torch
    if got.shape != want.shape:
        return float("inf")
    got, want = got.detach().double() if not got.is_complex() else got.detach(), want.detach().double() if not want.is_complex() else want.detach()
    bad = ~torch.isfinite(want)
    if not torch.equal(bad, ~torch.isfinite(got)):
        return float("inf")
    difference = (got - want).masked_fill(bad, 0).abs().max().item() if want.numel() else 0.0
    largest = max(want.masked_fill(bad, 0).abs().max().item() if want.numel() else 0.0, least)
    return difference / largest if largest else difference


def worst(got, want, least=0.0):
    """(distance, index) of the result that is furthest off."""
    if len(got) != len(want):
        return float("inf"), -1
    return max(((distance(g, w, least), i) for i, (g, w) in enumerate(zip(got, want))), default=(0.0, -1))


def exact_gradients(model, args):
    """The same in float64."""
    import copy
    import torch
    precise = copy.deepcopy(model).double()
    return gradients(precise, precise, tuple(v.double() if v.is_floating_point() else v for v in args))[1]


def build(entry):
    import torch
    make, sets, _ = entry
    torch.manual_seed(7)
    model = make().eval()
    for key, tensor in model.named_buffers():
        # Fresh statistics are 0 and 1 and would hide mistakes.
        if key.endswith("running_mean"):
            tensor.normal_(0, 0.05)
        elif key.endswith("running_var"):
            tensor.uniform_(0.8, 1.2)
    return model, sets()


def compiled(model, fresh=True):
    import torch
    import neso.torch as ours
    if fresh:
        torch._dynamo.reset()
    return torch.compile(model, backend=ours.backend, options={"fallback": "silent", "cached": False, "threads": 1})


def summary(report):
    return {"refused": sorted({name for name, _, _ in report.refused}), "share": round(report.share, 4), "graphs": len(report.packages),
            "operators": sum(p.operators for p in report.pieces), "compile_s": round(sum(p.seconds for p in report.pieces), 2)}


def check(entry, backward):
    """One row. `backward`: gradients of all parameters as well."""
    import neso.torch as ours
    model, sets = build(entry)
    want = [forward(model, args) for args in sets]
    if worst(forward(model, sets[0]), want[0])[0] != 0:
        return {"status": "skipped", "why": "eager itself gives other numbers a second time"}
    begun = time.monotonic()
    with ours.watch() as report:
        function = compiled(model)
        got = [forward(function, args) for args in sets]
    row = {**summary(report), "wall_s": round(time.monotonic() - begun, 2)}
    for i, (one, other) in enumerate(zip(got, want)):
        error, at = worst(one, other)
        row["error"] = max(row.get("error", 0.0), error)
        if error > RESULT_BOUND:
            return {**row, "status": "wrong", "why": f"result {at} of call {i} is off by {error:.2g} of its largest value"}
    if backward:
        row["backward"] = check_backward(model, sets[0])
        if row["backward"].get("why"):
            return {**row, "status": "wrong", "why": "backward: " + row["backward"]["why"]}
    whole = all(r["share"] == 1 and not r["refused"] for r in (row, row.get("backward", row)))
    return {**row, "status": "nothing" if not row["graphs"] else "whole" if whole else "part"}


def check_backward(model, args):
    import neso.torch as ours
    names, want = gradients(model, model, args)
    with ours.watch() as report:
        same, got = gradients(compiled(model), model, args)
    row = summary(report)
    if names != same:
        return {**row, "why": f"gradients of other parameters: {sorted(set(names) ^ set(same))[:4]}"}
    # Sums that cancel, as the gradients of a key's bias, are rounding alone: they are measured against the others.
    least = LEAST_GRADIENT * max(float(w.abs().max()) for w in want)
    row["error"] = worst(got, want, least)[0]
    if row["error"] <= GRADIENT_BOUND:
        return row
    exact = exact_gradients(model, args)
    beyond = [(name, distance(g, e, least), distance(w, e, least)) for name, g, w, e in zip(names, got, want, exact)]
    bad = [(name, ours_, eager) for name, ours_, eager in beyond if ours_ > max(GRADIENT_BOUND, ROUNDING_FACTOR * eager)]
    if bad:
        name, ours_, eager = max(bad, key=lambda b: b[1])
        return {**row, "why": f"the gradient of {name} is off by {ours_:.2g} of its largest value (eager: {eager:.2g}), {len(bad)} of {len(names)} such"}
    return row
