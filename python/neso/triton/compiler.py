"""Triton's compiler up to its TTIR, then Neso's."""

import functools
import hashlib
import os
import re
import tempfile
from dataclasses import dataclass
from types import ModuleType
from typing import Dict

from triton.backends.compiler import BaseBackend, GPUTarget, Language

from .. import _program


# Of what stands beside packages in Triton's cache; raised when it changes.
_METADATA = 2


@dataclass(frozen=True)
class NesoOptions:
    num_warps: int = 4
    num_ctas: int = 1
    num_stages: int = 3
    warp_size: int = 32
    enable_fp_fusion: bool = True
    supported_fp8_dtypes: tuple = ("fp8e5", "fp8e4nv")
    deprecated_fp8_dot_operand_dtypes: tuple = ()
    default_dot_input_precision: str = "ieee"
    allowed_dot_input_precisions: tuple = ("ieee", "tf32", "tf32x3")
    max_num_imprecise_acc_default: int = 0
    extern_libs: tuple = ()
    debug: bool = False
    backend_name: str = "cpu"
    sanitize_overflow: bool = False
    arch: str = ""
    instrumentation_mode: str = ""
    ir_override: str = None
    launch_cooperative_grid: bool = False
    launch_pdl: bool = False

    def hash(self):
        return hashlib.sha256(repr(sorted((k, str(v)) for k, v in self.__dict__.items())).encode()).hexdigest()


class NesoBackend(BaseBackend):
    binary_ext = "neso"

    @staticmethod
    def supports_target(target: GPUTarget):
        return target.backend == "cpu"

    def get_target_name(self, options):
        return "cpu"

    def parse_options(self, options):
        known = {k: v for k, v in options.items() if k in NesoOptions.__dataclass_fields__ and v is not None}
        out = NesoOptions(**{**known, "extern_libs": (), "arch": self.target.arch})
        # Triton refuses a launch whose options it does not find again: those of other backends (waves_per_eu, maxnreg, …), and what it adds.
        for name, value in options.items():
            if name not in NesoOptions.__dataclass_fields__:
                object.__setattr__(out, name, value)
        return out

    def pack_metadata(self, metadata):
        return (metadata.num_warps, metadata.num_ctas, metadata.shared)

    def get_codegen_implementation(self, options):
        from triton.language.extra import cuda
        return {"convert_custom_types": cuda.convert_custom_float8_sm80, "min_dot_size": lambda lhs, rhs: (1, 1, 1)}

    def get_module_map(self) -> Dict[str, ModuleType]:
        from triton.language.extra.cuda import libdevice
        return {"triton.language.extra.libdevice": libdevice}

    def load_dialects(self, context):
        pass

    def add_stages(self, stages, options, language):
        if language != Language.TRITON:
            raise NotImplementedError("Gluon kernels are written for GPUs; the CPU backend of neso takes Triton's")
        stages["ttir"] = lambda source, metadata: _ttir(source)
        stages["neso"] = lambda source, metadata: _package(source, metadata)

    @functools.lru_cache()
    def hash(self):
        return f"neso-{_METADATA}-{_program.identity()}-{self.target.arch}"


def _ttir(module):
    from triton._C.libtriton import ir, passes
    manager = ir.pass_manager(module.context)
    manager.enable_debug()
    # Descriptors stay: Neso takes those of the host as a tensor, its sizes and its strides.
    passes.common.add_inliner(manager)
    passes.common.add_canonicalizer(manager)
    passes.ttir.add_combine(manager)
    passes.common.add_cse(manager)
    passes.common.add_symbol_dce(manager)
    manager.run(module, "make_ttir")
    return module


def _package(module, metadata):
    text = str(module)
    metadata["name"] = re.search(r"tt\.func public @(\w+)", text)[1]
    # Programs divide a device's memory by what a kernel takes of it.
    metadata.update(shared=1, global_scratch_size=0, global_scratch_align=1, profile_scratch_size=0, profile_scratch_align=1)
    with tempfile.TemporaryDirectory(prefix="neso-") as folder:
        source, package = os.path.join(folder, "kernel.ttir"), os.path.join(folder, "kernel.neso")
        with open(source, "w") as f:
            f.write(text)
        _program.run(["kernel", "compile", source, "-o", package], names=[(source, metadata["name"])])
        with open(package, "rb") as f:
            return f.read()
