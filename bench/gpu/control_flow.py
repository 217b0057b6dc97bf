#!/usr/bin/env python3
"""What branches and loops cost on a GPU: as nodes of a CUDA graph, and walked by the host. Compile where the compiler is, run where the GPU is.

    bench/gpu/control_flow.py pack OUT [--build build/release] [--arch sm_90]     export, compile, write OUT/control_flow.tar.gz
    bench/gpu/control_flow.py run OUT --json REPORT

Each model runs in two contexts: one that records graphs, one that does not. Minima of rounds in turns, wall clock over many runs that are queued one
after the other, in microseconds:
    turn      one turn of a while_loop with two small kernels, from the difference of 1001 and 1 turns
    cond      a chain of kernels with a branch (either side), less the same chain without one
    decode    64 tokens of a small decoder greedily in one while_loop, beside 64 runs of the same decoder for one token
    scan      64 turns of a scan
Results are compared with eager's.
"""
import json
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT / "bench" / "models"), str(ROOT / "tools")]
import gpu_packing  # noqa: E402
import torch  # noqa: E402
from torch._higher_order_ops.scan import scan  # noqa: E402
from torch._higher_order_ops.while_loop import while_loop  # noqa: E402

TOKENS, WORDS, WIDTH, HEADS, LAYERS = 64, 1024, 256, 4, 4


class Turns(torch.nn.Module):
    def forward(self, x, n):
        return while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y * 0.5 + 1), (torch.zeros((), dtype=torch.int64), x.clone()))


class Chain(torch.nn.Module):
    """With `branch` one of the layers is chosen by the data, else it is the first."""

    def __init__(self, branch):
        super().__init__()
        self.branch = branch
        self.layers = torch.nn.ModuleList(torch.nn.Linear(256, 256) for _ in range(4))

    def forward(self, x, flag):
        y = self.layers[0](x).tanh()
        if self.branch:
            y = torch.cond(flag, lambda y: self.layers[1](y).sin(), lambda y: self.layers[2](y).cos(), (y,))
        else:
            y = self.layers[1](y).sin()
        return self.layers[3](y).softmax(-1)


class Decoder(torch.nn.Module):
    """One token: keys and values of all layers [LAYERS, 2, HEADS, TOKENS, WIDTH // HEADS] with those of `at` added, and the next token."""

    def __init__(self):
        super().__init__()
        self.words, self.head = torch.nn.Embedding(WORDS, WIDTH), torch.nn.Linear(WIDTH, WORDS, bias=False)
        self.into = torch.nn.ModuleList(torch.nn.Linear(WIDTH, 3 * WIDTH, bias=False) for _ in range(LAYERS))
        self.out = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS))
        self.up = torch.nn.ModuleList(torch.nn.Linear(WIDTH, 4 * WIDTH, bias=False) for _ in range(LAYERS))
        self.down = torch.nn.ModuleList(torch.nn.Linear(4 * WIDTH, WIDTH, bias=False) for _ in range(LAYERS))

    def step(self, token, at, keys, values):
        x = self.words(token).view(1, WIDTH)
        where = at.view(1)
        unseen = torch.arange(TOKENS, device=x.device) > at
        new_keys, new_values = [], []
        for l in range(LAYERS):
            q, k, v = self.into[l](torch.nn.functional.layer_norm(x, (WIDTH,))).view(3, HEADS, 1, WIDTH // HEADS)
            k, v = keys[l].index_copy(1, where, k), values[l].index_copy(1, where, v)
            new_keys.append(k), new_values.append(v)
            scores = (q @ k.transpose(1, 2) * (WIDTH // HEADS) ** -0.5).masked_fill(unseen, float("-inf"))
            x = x + self.out[l]((scores.softmax(-1) @ v).view(1, WIDTH))
            x = x + self.down[l](torch.nn.functional.gelu(self.up[l](torch.nn.functional.layer_norm(x, (WIDTH,)))))
        return self.head(x).argmax(-1).view(()), new_keys, new_values


class One(Decoder):
    """One step; what a run leaves in its inputs is what the next one begins with."""

    def forward(self, token, at, *caches):
        next_token, keys, values = self.step(token, at, caches[:LAYERS], caches[LAYERS:])
        for cache, new in zip(caches, [*keys, *values]):
            cache.copy_(new)
        token.copy_(next_token)
        at.add_(1)
        return next_token.clone()


class All(Decoder):
    def forward(self, token, *caches):
        def body(i, token, said, *caches):
            next_token, keys, values = self.step(token, i, caches[:LAYERS], caches[LAYERS:])
            return (i + 1, next_token, said.index_copy(0, i.view(1), next_token.view(1)), *keys, *values)

        start = (torch.zeros((), dtype=torch.int64), token.clone(), torch.zeros(TOKENS, dtype=torch.int64), *[c.clone() for c in caches])
        return while_loop(lambda i, *rest: i < TOKENS, body, start)[2]


class Scan(torch.nn.Module):
    def forward(self, x, xs):
        return scan(lambda c, row: ((c * 0.5 + row).tanh(), c + row), x.clone(), xs, dim=0)


def seeded(module):
    torch.manual_seed(0)
    return module().eval()


def caches():
    return [torch.zeros(HEADS, TOKENS, WIDTH // HEADS) for _ in range(2 * LAYERS)]


def cases():
    """Name, module, inputs."""
    torch.manual_seed(1)
    token, at = torch.tensor(3), torch.tensor(0)
    x = torch.rand(64, 256)
    return {"turns": (Turns(), (torch.rand(1024), torch.tensor(5))), "chain": (seeded(lambda: Chain(False)), (x, torch.tensor(True))),
            "branch": (seeded(lambda: Chain(True)), (x, torch.tensor(True))), "one": (seeded(One), (token, at, *caches())),
            "all": (seeded(All), (token.clone(), *caches())), "scan": (Scan(), (torch.rand(512), torch.rand(64, 512)))}


def pack(options):
    packing = gpu_packing.Pack(options, "control_flow")
    compiled = {}
    for name, (module, inputs) in cases().items():
        torch.export.save(torch.export.export(module, inputs, strict=name != "one"), packing.folder / "model.pt2")
        compiled[name] = packing.compile(["compile", packing.folder / "model.pt2"], name)
        print(name, compiled[name], flush=True)
    (packing.folder / "model.pt2").unlink()
    (packing.folder / "pack.json").write_text(json.dumps({"commit": gpu_packing.commit(options), "compiled": compiled}))
    print(packing.finish())


class Bench:
    def __init__(self, options):
        import neso_library
        self.neso = neso_library
        self.folder = gpu_packing.unpacked(options.out, "control_flow")
        self.library = neso_library.Library(self.folder / gpu_packing.RUNTIME)
        self.report = {"commit": json.loads((self.folder / "pack.json").read_text())["commit"], "device": torch.cuda.get_device_name(0),
                       "date": time.strftime("%Y-%m-%d")}

    def program(self, name, inputs, graphs):
        p = self.library.load(self.folder / (name + ".neso"), device=self.neso.CUDA, graphs=graphs)
        tensors = [t.cuda() for t in inputs]
        torch.cuda.synchronize()
        p.bind(tensors)
        p.tensors = tensors
        return p

    def both(self, name, inputs):
        return [self.program(name, inputs, graphs) for graphs in (0, -1)]

    def check(self, name, program, want):
        got = program.results_here()
        for g, w in zip(got, want):
            if not torch.allclose(g.double(), w.double(), rtol=1e-4, atol=1e-5):
                print(f"WRONG: {name}: differs from eager's by {(g.double() - w.double()).abs().max()}", flush=True)
                self.report.setdefault("wrong", []).append(name)
                return

    @staticmethod
    def micros(programs, count, rounds=7, before=None):
        """Microseconds a run of each, minima of rounds in turns."""
        best = [float("inf")] * len(programs)
        for _ in range(rounds):
            for i, p in enumerate(programs):
                if before:
                    before(p)
                p.synchronize()
                start = time.perf_counter()
                for _ in range(count):
                    p.run_async()
                p.synchronize()
                best[i] = min(best[i], (time.perf_counter() - start) / count * 1e6)
        return best

    def turns(self):
        module, (x, n) = cases()["turns"]
        programs = self.both("turns", (x, n))
        for turns in (5, 5, 5, 0, 1, 9, 0):
            for p in programs:
                p.tensors[1].fill_(turns)
                torch.cuda.synchronize()
                p.run()
                self.check(f"turns {turns}", p, module(x, torch.tensor(turns)))
        times = {}
        for turns in (1, 1001):
            for p in programs:
                p.tensors[1].fill_(turns)
            torch.cuda.synchronize()
            times[turns] = self.micros(programs, 10)
        nodes, host = [(b - a) / 1000 for a, b in zip(times[1], times[1001])]
        self.report["turn"] = {"node_us": round(nodes, 2), "host_us": round(host, 2), "graphs": programs[0].device_stats().graphs}

    def cond(self):
        module, (x, flag) = cases()["branch"]
        plain, _ = self.both("chain", (x, flag))
        programs = self.both("branch", (x, flag))
        result = {}
        for side in (True, False):
            for p in programs:
                p.tensors[1].fill_(side)
                torch.cuda.synchronize()
                for _ in range(3):
                    p.run()
                self.check(f"cond {side}", p, [module(x, torch.tensor(side))])
            plain.run()
            without, nodes, host = self.micros([plain, *programs], 300)
            result[str(side)] = {"without_us": round(without, 2), "node_us": round(nodes, 2), "host_us": round(host, 2), "node_adds_us": round(nodes - without, 2)}
        self.report["cond"] = result | {"graphs": programs[0].device_stats().graphs}

    def decode(self):
        module, inputs = cases()["all"]
        with torch.no_grad():
            want = module(*inputs)
        whole = self.both("all", inputs)
        single = self.program("one", cases()["one"][1], 0)

        def rewind(_=None):
            for t in single.tensors[1:]:
                t.zero_()
            single.tensors[0].fill_(3)
            torch.cuda.synchronize()

        for p in whole:
            for _ in range(3):
                p.run()
            self.check("decode", p, [want])
        rewind()
        said = []
        for _ in range(TOKENS):
            single.run()
            said.append(int(single.tensors[0]))
        if said != want.tolist():
            self.report.setdefault("wrong", []).append("decode by single runs")
        nodes, host = self.micros(whole, 5)
        # Counted in tokens, and begun anew: 64 of them are one decoding.
        alone = self.micros([single], TOKENS, before=rewind)[0] * TOKENS
        self.report["decode"] = {"loop_us": round(nodes, 1), "loop_by_host_us": round(host, 1), "single_runs_us": round(alone, 1), "loop_over_single": round(nodes / alone, 3),
                                 "library_calls": [p.device_stats().library_calls for p in (whole[0], single)], "graphs": whole[0].device_stats().graphs}

    def scan(self):
        module, inputs = cases()["scan"]
        programs = self.both("scan", inputs)
        for p in programs:
            for _ in range(3):
                p.run()
            self.check("scan", p, module(*inputs))
        nodes, host = self.micros(programs, 20)
        self.report["scan"] = {"graph_us": round(nodes, 1), "host_us": round(host, 1), "graphs": programs[0].device_stats().graphs}


def results_here(self):
    """The outputs, wherever they lie, as host tensors."""
    torch.cuda.synchronize()
    out = []
    for o in self.outputs:
        here = torch.empty([o.sizes[d] for d in range(o.rank)], dtype=self.library.dtypes[o.dtype])
        self.arrays = getattr(self, "arrays", [])
        self.library.check(self.library.api.neso_tensor_copy(self.context, self.library.byref(self.tensor(here)), self.library.byref(o)))
        self.synchronize()
        out.append(here)
    return out


def run(options):
    import ctypes
    import neso_library
    neso_library.Library.dtypes, neso_library.Library.byref = neso_library._DTYPES, staticmethod(ctypes.byref)
    neso_library.Program.results_here = results_here
    bench = Bench(options)
    for name in ("turns", "cond", "decode", "scan"):
        if options.only and name not in options.only:
            continue
        try:
            getattr(bench, name)()
        except Exception as error:  # the others are still worth having
            bench.report[name] = {"failed": str(error)}
        print(name, json.dumps(bench.report.get("turn" if name == "turns" else name)), flush=True)
    Path(options.json).write_text(json.dumps(bench.report, indent=1) + "\n")
    print(json.dumps(bench.report))


if __name__ == "__main__":
    arguments = gpu_packing.verbs(__doc__)[0].parse_args()
    {"pack": pack, "run": run}[arguments.verb](arguments)
