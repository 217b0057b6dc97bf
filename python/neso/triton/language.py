"""The names of triton.language, for programs that are written against it: kernels are compiled from their source by Neso's front end, so that
functions are names here and nothing more. Types and constexpr are values, as host code uses them."""

import operator
import sys
from types import ModuleType

from ._device import spec_of


class constexpr:
    """A value that is known when a kernel is compiled; also the annotation of such parameters."""

    def __init__(self, value):
        self.value = value.value if isinstance(value, constexpr) else value

    def __class_getitem__(cls, _):
        return cls

    def __repr__(self):
        return f"constexpr[{self.value}]"

    def __eq__(self, other):
        return self.value == (other.value if isinstance(other, constexpr) else other)

    def __hash__(self):
        return hash(self.value)

    def __bool__(self):
        return bool(self.value)

    def __index__(self):
        return self.value

    def __int__(self):
        return int(self.value)

    def __float__(self):
        return float(self.value)

    def __call__(self, *args, **kwargs):
        return self.value(*args, **kwargs)


def _constexpr_operator(name):
    def apply(self, *others):
        return constexpr(getattr(operator, name)(self.value, *[o.value if isinstance(o, constexpr) else o for o in others]))

    def reversed_(self, other):
        return constexpr(getattr(operator, name)(other, self.value))
    return apply, reversed_


# Constants of modules are computed from one another. Comparisons give constexprs in Triton too, but for ==, by which constants are found in tables.
for _name in "add sub mul truediv floordiv mod pow lshift rshift and or xor lt le gt ge neg pos invert".split():
    _apply, _reversed = _constexpr_operator(f"__{_name}__")
    setattr(constexpr, f"__{_name}__", _apply)
    if _name not in ("lt", "le", "gt", "ge", "neg", "pos", "invert"):
        setattr(constexpr, f"__r{_name}__", _reversed)


CONSTEXPR_0, TRITON_MAX_TENSOR_NUMEL = constexpr(0), 1048576


class dtype:
    """An element type. `short`: as signatures spell it."""

    def __init__(self, name, short, bits):
        self.name, self.short, self.primitive_bitwidth = name, short, bits

    def __repr__(self):
        return "triton.language." + self.name

    def is_floating(self):
        return self.name.startswith(("fp", "float", "bfloat"))


class PropagateNan:
    """Whether maximum, minimum and clamp give NaN where an operand is one; compile-time values, as kernels have them."""
    NONE, ALL = "NONE", "ALL"


class Function:
    """A function of the language. It has a meaning in kernels alone."""

    def __init__(self, module, name):
        self.__module__, self.__name__, self.__qualname__ = "triton." + module, name, name

    def __call__(self, *args, **kwargs):
        raise RuntimeError(f"{self.__module__}.{self.__name__} has a meaning in kernels alone: functions that are decorated with triton.jit")

    def __repr__(self):
        return f"<{self.__module__}.{self.__name__}>"


class _Unwrap(Function):
    """Private to Triton, and used by libraries."""

    def __call__(self, value):
        return value.value if isinstance(value, constexpr) else value


_unwrap_if_constexpr = _Unwrap("language.core", "_unwrap_if_constexpr")


def _aggregate(cls):
    """Marks a class whose objects kernels make: fields with annotations, and methods. Its body goes along with the kernels that name it."""
    cls.__triton_aggregate__ = True
    return cls


# name → (as signatures spell it, bits)
TYPES = {"int1": ("i1", 1), "int8": ("i8", 8), "int16": ("i16", 16), "int32": ("i32", 32), "int64": ("i64", 64), "uint8": ("u8", 8), "uint16": ("u16", 16), "uint32": ("u32", 32),
         "uint64": ("u64", 64), "float8e4nv": ("fp8e4nv", 8), "float8e5": ("fp8e5", 8), "float8e4b8": ("fp8e4b8", 8), "float8e5b16": ("fp8e5b16", 8),
         "float8e4b15": ("fp8e4b15", 8), "float16": ("fp16", 16), "bfloat16": ("bf16", 16), "float32": ("fp32", 32), "float64": ("fp64", 64)}
# What the front end knows; its tables are the truth, and a test compares.
FUNCTIONS = """PointerType _experimental_descriptor_load _experimental_make_tensor_descriptor add advance aggregate_replace arange argmax argmin associative_scan assume
atomic_add atomic_and atomic_cas atomic_load atomic_max atomic_min atomic_or atomic_poll atomic_store atomic_xchg atomic_xor bitonic_merge block_type broadcast broadcast_to
builtin cast cat cdiv clamp condition const constexpr_function cumprod cumsum debug_barrier device_assert device_print dot dot_scaled expand_dims extern_elementwise flip full
full_like gather get_int_dtype histogram inline_asm_elementwise interleave item join load load_tensor_descriptor logical_and logical_or make_block_ptr make_tensor_descriptor
map_elementwise max max_constancy max_contiguous maximum min minimum mul multiple_of num_programs pair_uniform_to_normal permute philox philox_impl pointer_type program_id rand
rand4x randint randint4x randn randn4x range ravel reduce reduce_or reshape sigmoid softmax sort split squeeze static_assert static_print static_range store
store_tensor_descriptor str_to_ty sub sum swizzle2d tensor tensor_descriptor to_tensor topk trans tuple uint_to_uniform_float uint32_to_uniform_float unsqueeze view where
xor_sum zeros zeros_like""".split()
MATH = "abs ceil cos div_rn erf exp exp2 fdiv floor fma log log2 rsqrt sin sqrt sqrt_rn umulhi".split()

for _name, (_short, _bits) in TYPES.items():
    globals()[_name] = dtype(_name, _short, _bits)
for _name in (*FUNCTIONS, *MATH):
    globals()[_name] = Function("language.math" if _name in MATH else "language", _name)


class _Open(ModuleType):
    """A module of functions whose names the front end alone knows."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Function(self.__name__.partition("triton.")[2], name)


def _module(name, kind=ModuleType):
    made = kind(f"{__name__}.{name}")
    made.__spec__ = spec_of(made)
    sys.modules[made.__name__] = made
    return made


math, extra = _module("math"), _module("extra")
for _name in MATH:
    setattr(math, _name, globals()[_name])
extra.cuda, extra.libdevice = _module("extra.cuda", _Open), _module("extra.libdevice", _Open)
extra.cuda.libdevice = _module("extra.cuda.libdevice", _Open)
target_info = _module("target_info", _Open)
# Where Triton itself keeps its names.
core, standard, random = sys.modules[__name__], _module("standard", _Open), _module("random", _Open)
sys.modules[f"{__name__}.core"] = core
