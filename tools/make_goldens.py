#!/usr/bin/env python3
"""Writes tests/goldens: small programs with inputs and the outputs that PyTorch gives for them.

    tools/make_goldens.py [--out tests/goldens] [--only REGEX] [--list]

A case is a folder with programs (.pt2), tensors (.safetensors) and case.json:
    {"seed", "torch", "runs": [{"name", "program", "inputs", "outputs", "prefix", "tolerance": {"0": [rtol, atol]}}]}
A run gives the tensors of file `inputs` whose names start with `prefix` (which is cut off) to `program`, and expects those
of `outputs`: |got - expected| <= atol + rtol * |expected|, equal for integers, and equal shape and dtype.
models/<family> holds both forms, straight from torch.export and after run_decompositions(), at one to three sizes.
ops/<group> holds one program an operator, <case>.pt2, and after run_decompositions() where that changes it, <case>.core.pt2.
Same torch, same bytes.
state holds models that change buffers and inputs: a run's "then" is the next call in the same context, with its own
"inputs", "outputs", "prefix" and "tolerance".
"""
import argparse
import json
import re
import shutil
import sys
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
import torch  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

import neso_cases as cases  # noqa: E402

SEED = 20260101


def expected(program, inputs):
    """Outputs by number, and what the program changed: input.K and buffer.NAME."""
    state = {name: tensor.clone() for name, tensor in program.state_dict.items()}
    args, kwargs = (), {}
    if isinstance(inputs, dict):
        kwargs = {name: tensor.clone() for name, tensor in inputs.items()}
    else:
        args = pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, inputs)
    module = program.module(check_guards=False)
    with torch.no_grad():
        outputs = cases.flatten(module(*args, **kwargs))
    named = {str(i): cases.to_tensor(o) for i, o in enumerate(outputs) if o is not None}
    for name, before in state.items():
        after = module.state_dict().get(name)
        if after is not None and not torch.equal(before, after):
            named["buffer." + name] = after.clone()
    for i, (before, after) in enumerate(zip(cases.flatten(inputs), cases.flatten((args, kwargs)))):
        if isinstance(before, torch.Tensor) and not torch.equal(before, after):
            named[f"input.{i}"] = after
    return named


def bounds(named, wide=None, scale=4.0):
    """name → [rtol, atol]; `wide` are the same outputs in float64, which show how far eager itself is off."""
    result = {}
    for name, tensor in named.items():
        if not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.numel():
            result[name] = [0.0, 0.0]
            continue
        rtol, atol = cases.TOLERANCE[cases.DTYPE_NAMES.get(tensor.dtype, "F64")]
        magnitude = tensor.abs().to(torch.float64) if tensor.is_complex() else tensor.to(torch.float64).abs()
        magnitude = magnitude[torch.isfinite(magnitude)]
        largest = max(1e-3, min(1e6, float(magnitude.max()))) if magnitude.numel() else 1.0
        atol *= max(largest, 0.05)
        if wide is not None and name in wide and wide[name].shape == tensor.shape and not tensor.is_complex():
            atol = max(atol, min(scale * cases.worst_error(tensor, wide[name]), 1e-2 * largest))
        result[name] = [rtol, float(f"{atol:.3g}")]
    return result


def as_double(inputs):
    def one(value):
        return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
    return pytree.tree_map(one, inputs)


def randomise(model):
    """Statistics and scales that a fresh model leaves at 0 and 1 would hide mistakes."""
    for name, tensor in list(model.named_parameters()) + list(model.named_buffers()):
        if name.endswith(("running_mean", "bias")):
            tensor.data.normal_(0, 0.1)
        elif name.endswith("running_var") or (tensor.dim() == 1 and name.endswith("weight")):
            tensor.data.uniform_(0.6, 1.4)


def write_model(family, folder):
    torch.manual_seed(SEED)
    model = family.build().eval()
    randomise(model)
    sets = family.sets()
    first = sets[0]
    args, kwargs = ((), first) if isinstance(first, dict) else (first, {})
    with torch.no_grad():
        program = torch.export.export(model, args, kwargs, dynamic_shapes=family.dynamic, strict=False)
        decomposed = torch.export.export(model, args, kwargs, dynamic_shapes=family.dynamic, strict=False).run_decompositions()
    cases.save_program(program, folder / "export.pt2", lean=True)
    cases.save_program(decomposed, folder / "decomposed.pt2", lean=True)
    # The float64 twin is built after the programs are saved, since it changes the model in place.
    wanted = [expected(program, inputs) for inputs in sets]
    wide_model = family.build().eval().double()
    wide_model.load_state_dict({k: v.double() if v.is_floating_point() else v for k, v in model.state_dict().items()})
    runs = []
    for i, (inputs, named) in enumerate(zip(sets, wanted)):
        suffix = "" if i == 0 else f".{i + 1}"
        cases.write_safetensors(folder / f"inputs{suffix}.safetensors", cases.flatten(inputs))
        cases.write_safetensors(folder / f"outputs{suffix}.safetensors", named)
        try:
            with torch.no_grad():
                exact = as_double(inputs)
                outputs = cases.flatten(wide_model(**exact) if isinstance(exact, dict) else wide_model(*exact))
            wide = {str(k): cases.to_tensor(v) for k, v in enumerate(outputs)}
        except Exception:
            wide = None
        tolerance = bounds(named, wide)
        for form in ("export", "decomposed"):
            runs.append({"name": f"{form}{suffix}", "program": f"{form}.pt2", "inputs": f"inputs{suffix}.safetensors",
                         "outputs": f"outputs{suffix}.safetensors", "prefix": "", "tolerance": tolerance})
    return runs


class Op(torch.nn.Module):
    def __init__(self, function, state):
        super().__init__()
        self.function = function
        for name, tensor in (state or {}).items():
            self.register_buffer(name, tensor)

    def forward(self, *inputs):
        return self.function(self, *inputs) if dict(self.named_buffers()) else self.function(*inputs)


def write_group(group, folder):
    inputs_file, outputs_file, runs = {}, {}, []
    for case in group:
        torch.manual_seed(SEED)
        inputs = tuple(case.inputs())
        torch.manual_seed(SEED + 1)
        module = Op(case.function, case.state() if case.state else None).eval()
        try:
            program = torch.export.export(module, inputs, dynamic_shapes=({} if case.dynamic is None else {"inputs": case.dynamic}) or None,
                                          strict=case.strict)
        except Exception as error:
            raise RuntimeError(f"{case.name}: {error}") from error
        forms = [case.name]
        cases.save_program(program, folder / f"{case.name}.pt2", lean=True)
        if not case.raw_only:
            core = torch.export.export(module, inputs, dynamic_shapes=({} if case.dynamic is None else {"inputs": case.dynamic}) or None,
                                       strict=case.strict).run_decompositions()
            # Many programs are the same in both forms.
            if str(core.graph) != str(program.graph):
                cases.save_program(core, folder / f"{case.name}.core.pt2", lean=True)
                forms.append(case.name + ".core")
        for i, data in enumerate([inputs] + [tuple(more()) for more in case.more]):
            prefix = f"{case.name}{'' if i == 0 else f'.{i + 1}'}/"
            if case.written_out:
                named = {str(k): cases.to_tensor(v) for k, v in enumerate(cases.flatten(module(*data)))}
            else:
                named = expected(program, data)
            wide = None
            if case.exact:
                try:
                    module_64 = Op(case.function, case.state() if case.state else None).eval()
                    if case.state:
                        torch.manual_seed(SEED + 1)
                        module_64 = Op(case.function, case.state()).eval().double()
                    with torch.no_grad():
                        wide = {str(k): cases.to_tensor(v) for k, v in enumerate(cases.flatten(module_64(*as_double(data))))}
                except Exception:
                    wide = None
            inputs_file |= {prefix + str(k): cases.to_tensor(v) for k, v in enumerate(cases.flatten(data)) if v is not None}
            outputs_file |= {prefix + k: v for k, v in named.items()}
            for form in forms:
                runs.append({"name": prefix[:-1] + form[len(case.name):], "program": f"{form}.pt2", "inputs": "inputs.safetensors",
                             "outputs": "outputs.safetensors", "prefix": prefix, "tolerance": bounds(named, wide)})
    cases.write_safetensors(folder / "inputs.safetensors", inputs_file)
    cases.write_safetensors(folder / "outputs.safetensors", outputs_file)
    return runs


def write_state(group, folder):
    """Both forms of each, called twice. The module itself in eager mode says what its buffers hold then."""
    inputs_file, outputs_file, runs = {}, {}, []
    for case in group:
        calls = []
        torch.manual_seed(SEED)
        module = case.build()
        for call in range(2):
            torch.manual_seed(SEED + 1 + call)
            inputs = case.inputs()
            prefix = f"{case.name}{'' if call == 0 else '.then'}/"
            inputs_file |= {prefix + str(i): x.clone() for i, x in enumerate(inputs)}
            before = [x.clone() for x in inputs]
            with torch.no_grad():
                named = {str(i): cases.to_tensor(o) for i, o in enumerate(cases.flatten(module(*inputs)))}
            named |= {f"input.{i}": x for i, (x, y) in enumerate(zip(inputs, before)) if not torch.equal(x, y)}
            named |= {"buffer." + name: x for name, x in module.state_dict().items()}
            named = {name: x.detach().clone() for name, x in named.items()}
            outputs_file |= {prefix + name: x for name, x in named.items()}
            calls.append({"inputs": "inputs.safetensors", "outputs": "outputs.safetensors", "prefix": prefix, "tolerance": bounds(named)})
        for form in case.forms:
            torch.manual_seed(SEED)
            fresh = case.build()
            torch.manual_seed(SEED + 1)
            program = torch.export.export(fresh, case.inputs(), dynamic_shapes=case.dynamic, strict=False)
            if form == "decomposed":
                program = program.run_decompositions()
            cases.save_program(program, folder / f"{case.name}.{form}.pt2", lean=True)
            runs.append({"name": f"{case.name}.{form}", "program": f"{case.name}.{form}.pt2", **calls[0], "then": calls[1]})
    cases.write_safetensors(folder / "inputs.safetensors", inputs_file)
    cases.write_safetensors(folder / "outputs.safetensors", outputs_file)
    return runs


def all_jobs(write_model, families, group_tables):
    """What there is to write, by name. A name that is taken would silently replace the cases of another file: it is refused."""
    jobs = {}

    def add(name, job):
        if name in jobs:
            sys.exit(f"make_goldens: two groups are called '{name}'; give one of them another name")
        jobs[name] = job

    for family in families:
        add(f"models/{family.name}", (write_model, family))
    for table in group_tables:
        for name, group in table.items():
            add(f"ops/{name}", (write_group, group))
    return jobs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=str(Path(__file__).resolve().parent.parent / "tests" / "goldens"))
    parser.add_argument("--only", default=".", help="regular expression on models/<family> and ops/<group>")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    import golden_attention
    import golden_complex
    import golden_ctc
    import golden_data
    import golden_edges
    import golden_exports
    import golden_libraries
    import golden_linalg
    import golden_models
    import golden_ops
    import golden_pt2e
    import golden_quantised
    import golden_scaling
    import golden_siblings
    import golden_winograd
    import golden_memory
    import golden_turns
    import golden_state
    import golden_training
    import golden_vision
    jobs = all_jobs(write_model, golden_models.FAMILIES,
                    [golden_ops.groups(), golden_edges.groups(), golden_libraries.groups(), golden_scaling.groups(), golden_data.groups(), golden_training.groups(),
                     golden_quantised.groups(), golden_linalg.groups(), golden_complex.groups(), golden_ctc.groups(), golden_vision.groups(), golden_siblings.groups(), golden_winograd.groups(), golden_turns.groups(), golden_memory.groups(), golden_exports.groups(), {"attention": golden_attention.attention(), "causal_blocks": golden_attention.causal_blocks(), "few_queries": golden_attention.few_queries(), "open_blocks": golden_attention.open_blocks(), "attention_of_gpus": golden_attention.attention_of_gpus()}])
    jobs["state"] = (write_state, golden_state.CASES)
    jobs["ops/pt2e"] = (golden_pt2e.write, golden_pt2e.MODELS)
    torch.set_num_threads(1)
    failed = 0
    for name, (write, subject) in jobs.items():
        if not re.search(args.only, name):
            continue
        if args.list:
            print(name)
            continue
        folder = Path(args.out) / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            runs = write(subject, folder)
        except Exception as error:
            failed += 1
            print(f"{name}: FAILED: {str(error)[:600]}", flush=True)
            continue
        text = ",\n  ".join(json.dumps(run) for run in runs)
        (folder / "case.json").write_text(f'{{"seed": {SEED}, "torch": "{torch.__version__.split("+")[0]}", "runs": [\n  {text}\n]}}\n')
        size = sum(f.stat().st_size for f in folder.iterdir())
        print(f"{name}: {len(runs)} runs, {size / 1000:.0f} kB", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
