"""A model that uses script objects (torchbind): an attribute of a module and an argument of forward, by methods and by operators that are given one.

Each call of an object counts, and results say which call they are of: another order gives other numbers. The class is C++, since torch's wheel has
none: it is compiled here, and needs a compiler of C++ and a few minutes. tests/goldens/extern: objects.*; cli/test/extern_ops.c has the same in C.
"""
import pathlib
import tempfile

import torch

SOURCE = r"""
#include <ATen/ATen.h>
#include <torch/custom_class.h>
#include <torch/library.h>

struct Tally : torch::CustomClassHolder {
  double scale;
  int64_t calls = 0;
  explicit Tally(double s) : scale(s) {}
  at::Tensor next(at::Tensor x) { return x * scale + static_cast<double>(++calls); }
  std::tuple<at::Tensor, at::Tensor> both(at::Tensor x, int64_t n, double f, std::string word, std::optional<at::Tensor> y) {
    ++calls;
    return {x * static_cast<double>(n) + (y ? *y : x * f), x + static_cast<double>(word.size())};
  }
  void add(int64_t n) { calls += n; }
  std::tuple<std::tuple<std::string, double>> __obj_flatten__() { return {{"scale", scale}}; }
};

using Object = c10::intrusive_ptr<Tally>;
static at::Tensor tallied(Object t, at::Tensor x) { return t->next(x) - x; }
static void tally_into(at::Tensor x, Object t) { x.add_(static_cast<double>(++t->calls)); }
static at::Tensor two(Object a, at::Tensor x, Object b) { return a->next(x) + b->next(x); }

TORCH_LIBRARY(neso_test_objects, m) {
  m.class_<Tally>("Tally")
      .def(torch::init<double>())
      .def("next", &Tally::next)
      .def("both", &Tally::both)
      .def("add", &Tally::add)
      .def("__obj_flatten__", &Tally::__obj_flatten__)
      .def_pickle([](const Object &t) { return t->scale; }, [](double s) { return c10::make_intrusive<Tally>(s); });
  m.def("tallied(__torch__.torch.classes.neso_test_objects.Tally t, Tensor x) -> Tensor");
  m.def("tally_into(Tensor(a!) x, __torch__.torch.classes.neso_test_objects.Tally t) -> ()");
  m.def("two(__torch__.torch.classes.neso_test_objects.Tally a, Tensor x, __torch__.torch.classes.neso_test_objects.Tally b) -> Tensor");
}
TORCH_LIBRARY_IMPL(neso_test_objects, CPU, m) {
  m.impl("tallied", tallied);
  m.impl("tally_into", tally_into);
  m.impl("two", two);
}
"""


def register(folder):
    """Compiles the class in the folder, unless it is there, and tells torch.export what its methods give."""
    from torch.utils import cpp_extension
    source = pathlib.Path(folder) / "script_objects.cpp"
    if not source.exists() or source.read_text() != SOURCE:
        source.write_text(SOURCE)
    cpp_extension.load("script_objects", [str(source)], is_python_module=False, build_directory=str(folder), extra_cflags=["-O0"])

    @torch._library.register_fake_class("neso_test_objects::Tally")
    class _:
        def __init__(self, scale):
            self.scale = scale

        @classmethod
        def __obj_unflatten__(cls, state):
            return cls(**dict(state))

        def next(self, x):
            return torch.empty_like(x)

        def both(self, x, n, f, word, y):
            return torch.empty_like(x), torch.empty_like(x)

        def add(self, n):
            return None

    torch.library.register_fake("neso_test_objects::tallied", lambda t, x: torch.empty_like(x))
    torch.library.register_fake("neso_test_objects::two", lambda a, x, b: torch.empty_like(x))
    torch.library.register_fake("neso_test_objects::tally_into", lambda x, t: None)


def tally(scale):
    return torch.classes.neso_test_objects.Tally(scale)


class Inner(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tally = tally(2.0)

    def forward(self, x):
        return self.tally.next(x)


class Objects(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
        self.scale = torch.nn.Parameter(torch.randn(5))

    def forward(self, t, x, z):
        # The first call waits for a product, those after it wait for nothing.
        a = self.inner((x @ z.t()).softmax(1) @ z * self.scale)
        t.add(3)
        b = t.next(x)
        self.inner.tally.next(z)
        c = torch.ops.neso_test_objects.tallied(self.inner.tally, x + b)
        y = z.t() * 2
        torch.ops.neso_test_objects.tally_into(y, t)
        with torch.no_grad():
            d = t.next(y.exp())
        return a, b + 1, c, y, d.relu(), torch.ops.neso_test_objects.two(t, z, self.inner.tally), t.next(x) * 2


class Methods(torch.nn.Module):
    """Methods alone: one with two results, which torch 2.15 cannot decompose, and arguments of several kinds."""

    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, t, x, z):
        a = self.inner((x @ z.t()).softmax(1) @ z)
        self.inner.tally.add(x.shape[0])
        b, c = t.both(x, x.shape[0], 0.5, "word", z)
        return a, b, c * 2, self.inner(x) + t.next(z), self.inner(z).relu()


def inputs(rows):
    return torch.randn(rows, 5) * 0.3, torch.randn(rows, 5)


def write(folder, build):
    import neso_cases
    register(build)
    torch.manual_seed(7)
    rows = torch.export.Dim("rows", min=3, max=64)
    schemas = "\n".join(str(torch.ops.neso_test_objects.__getattr__(op).default._schema) for op in ("tallied", "tally_into", "two"))
    models = {"objects": Objects().eval(), "methods": Methods().eval()}
    for name, model in models.items():
        program = torch.export.export(model, (tally(0.5), *inputs(4)), dynamic_shapes=(None, {0: rows}, {0: rows}), strict=False)
        neso_cases.save_program(program, folder / f"{name}.export.pt2", lean=True, extra_files={"neso_operators": schemas})
        if name == "objects":
            neso_cases.save_program(program.run_decompositions(), folder / f"{name}.decomposed.pt2", lean=True, extra_files={"neso_operators": schemas})
    for count in (4, 9):
        given = inputs(count)
        neso_cases.write_safetensors(folder / f"objects.inputs.{count}.safetensors", {str(i + 1): t for i, t in enumerate(given)})
        for name, model in models.items():
            model.inner.tally = tally(2.0)
            with torch.no_grad():
                results = model(tally(0.5), *(t.clone() for t in given))
            neso_cases.write_safetensors(folder / f"{name}.outputs.{count}.safetensors", {str(i): t.contiguous() for i, t in enumerate(results)})


if __name__ == "__main__":
    import sys
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent / "tests/goldens/extern")
    with tempfile.TemporaryDirectory() as build:
        write(out, sys.argv[2] if len(sys.argv) > 2 else build)
