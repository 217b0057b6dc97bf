"""Values of random Triton kernels (campaign_kernels.py): what is known of each, and statements that compute integers, masks and floats.

Of every integer an interval is known, so that addresses stay inside their buffers; of every float its magnitude, granularity and the error
that it may carry: what is decided (comparisons, casts to integers, sorting) is decided on exact values alone.
"""
import random

INTS = {"i8": (8, True), "i16": (16, True), "i32": (32, True), "i64": (64, True), "u8": (8, False), "u16": (16, False), "u32": (32, False), "u64": (64, False)}
# Bits of precision, largest magnitude that is used.
FLOATS = {"fp16": (11, 2**14), "bf16": (8, 2**60), "fp32": (24, 2**60), "fp64": (53, 2**200)}
NARROW = {"fp8e4nv": (4, 240), "fp8e5": (3, 2**14)}
TL = {"i1": "tl.int1", "i8": "tl.int8", "i16": "tl.int16", "i32": "tl.int32", "i64": "tl.int64", "u8": "tl.uint8", "u16": "tl.uint16", "u32": "tl.uint32",
      "u64": "tl.uint64", "fp16": "tl.float16", "bf16": "tl.bfloat16", "fp32": "tl.float32", "fp64": "tl.float64", "fp8e4nv": "tl.float8e4nv", "fp8e5": "tl.float8e5"}
# Where a type is chosen, how often.
COMMON_INTS = ["i32"] * 8 + ["i64", "i64", "i16", "i8", "u8", "u16", "u32", "u32", "u64"]
COMMON_FLOATS = ["fp32"] * 6 + ["fp16", "fp16", "bf16", "bf16", "fp64"]


def limits(dtype):
    bits, signed = INTS[dtype]
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


class Value:
    """A name with its type: of integers [lo, hi] is known, of floats |v| <= bound, v * 2**grain is whole, and the error."""

    def __init__(self, name, shape, dtype, lo=0, hi=1, bound=0.0, grain=0, err=0.0):
        self.name, self.shape, self.dtype = name, tuple(shape), dtype
        self.lo, self.hi, self.bound, self.grain, self.err = lo, hi, bound, grain, err
        self.is_float = dtype in FLOATS or dtype in NARROW
        self.is_int = dtype in INTS

    def numel(self):
        n = 1
        for d in self.shape:
            n *= d
        return n

    def exact(self):
        return self.err == 0


class Unfit(Exception):
    """This choice does not fit what there is: another is made."""




class Values:
    """The statements so far, and the ways to add one that computes a value from others."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.seed = seed
        self.lines, self.indent = [], 1
        self.values = []
        self.params = []  # (name, signature type, argument text)
        self.constexprs = []
        self.helpers = set()
        self.features = set()
        self.counter = 0
        self.outputs = {}  # dtype -> [name, elements used, tolerance]
        self.loops = []  # (name, trips) of the loops around
        self.stored = 0
        self.grid = [self.rng.choice([1, 1, 2, 3]), self.rng.choice([1, 1, 1, 2]), 1]

    # ---- Choices ----

    def chance(self, percent):
        return self.rng.randrange(100) < percent

    def pick(self, items):
        items = list(items)
        if not items:
            raise Unfit
        return self.rng.choice(items)

    def feature(self, name):
        self.features.add(name)

    # ---- Text ----

    def emit(self, text):
        self.lines.append("    " * self.indent + text)

    def name(self):
        self.counter += 1
        return f"v{self.counter}"

    def define(self, text, shape, dtype, **facts):
        v = Value(self.name(), shape, dtype, **facts)
        self.emit(f"{v.name} = {text}")
        self.values.append(v)
        return v

    def integer(self, text, shape, dtype, lo, hi):
        least, most = limits(dtype)
        if lo < least or hi > most:
            lo, hi = least, most
        return self.define(text, shape, dtype, lo=lo, hi=hi)

    def real(self, text, shape, dtype, bound, grain, err):
        """A float result of magnitude `bound` and granularity 2**-grain; rounding makes it inexact, or it is refused."""
        bits, most = FLOATS[dtype]
        if bound > most:
            raise Unfit
        if bound * 2.0**grain >= 2**bits or grain > 24:
            err = err + bound * 2.0**-bits * 2
            grain = 60
        if err > 0 and grain < 60:
            grain = 60
        if err > 0.02:
            raise Unfit
        return self.define(text, shape, dtype, bound=bound, grain=grain, err=err)

    # ---- What there is ----

    def of(self, test):
        return self.pick([v for v in self.values[-24:] if test(v)] or [v for v in self.values if test(v)])

    def int_value(self, shape=None, dtype=None):
        return self.of(lambda v: v.is_int and (shape is None or v.shape == shape) and (dtype is None or v.dtype == dtype))

    def fits(self, v, shape):
        """v's text where a value of that shape is wanted, by broadcasting; or None."""
        if v.shape == shape or v.shape == ():
            return v.name
        if len(v.shape) == 1 and len(shape) == 2:
            if shape[0] == shape[1] == v.shape[0]:
                return f"{v.name}[:, None]" if self.chance(50) else f"{v.name}[None, :]"
            if v.shape[0] == shape[0]:
                return f"{v.name}[:, None]"
            if v.shape[0] == shape[1]:
                return f"{v.name}[None, :]"
        if len(v.shape) == 1 and len(shape) == 3:
            for axis, text in enumerate(["[:, None, None]", "[None, :, None]", "[None, None, :]"]):
                if v.shape[0] == shape[axis]:
                    return v.name + text
        if len(v.shape) == 2 and len(shape) == 3:
            if v.shape == shape[:2]:
                return f"{v.name}[:, :, None]"
            if v.shape == shape[1:]:
                return f"{v.name}[None, :, :]"
        return None

    def operand(self, shape, test):
        """Some value that fits the shape, and its text there."""
        found = []
        for v in self.values[-30:]:
            if test(v):
                text = self.fits(v, shape)
                if text:
                    found.append((v, text))
        return self.pick(found)

    def shape(self):
        return self.pick(self.shapes)

    # ---- Parameters ----

    def scalar_param(self):
        name = f"n{len([p for p in self.params if p[0][0] == 'n'])}"
        base = self.pick(self.dims + [self.dims[0] * self.dims[-1]])
        value = self.pick([1, 2, 3, 5, 7, 8, 13, 16, 20, 32, base, base - 1, base + 1, base // 2, base + base // 2, 3 * base // 4, 48, 64])
        dtype = "i64" if self.chance(8) else "i32"
        if self.chance(6):
            value = self.pick([2147483640, 2147483594, -5, -16, 0])
        self.params.append((name, dtype, str(value)))
        v = Value(name, (), dtype, lo=value, hi=value)
        # Not among the values: an argument of 1 is a Python number, which has no methods.
        self.scalars.append(v)
        return v

    def input_buffer(self, dtype, size):
        name = f"x{len([p for p in self.params if p[0][0] == 'x'])}"
        seed = self.rng.randrange(10**6)
        if dtype in FLOATS or dtype in NARROW:
            if self.chance(5) and dtype in FLOATS:
                contents, facts = f"special,{seed}", None
            else:
                contents, facts = f"range,-8,8,4,{seed}", dict(bound=2.0, grain=2)
        elif dtype == "i1":
            contents, facts = f"range,0,1,1,{seed}", dict(lo=0, hi=1)
        elif self.chance(25):
            lo, hi = limits(dtype)
            contents, facts = f"bits,{seed}", dict(lo=lo, hi=hi)
        else:
            lo, hi = self.pick([(0, 15), (0, 40), (-9, 9), (0, 100)])
            lo = max(lo, limits(dtype)[0])
            contents, facts = f"range,{lo},{hi},1,{seed}", dict(lo=lo, hi=hi)
        self.params.append((name, "*" + dtype, f"{dtype}[{size}]={contents}"))
        return name, facts

    def output(self, dtype, count, tolerance):
        """Room for `count` elements of an output buffer: its name and the first of them."""
        if dtype not in self.outputs:
            self.outputs[dtype] = [f"o{len(self.outputs)}", 0, 0.0]
        out = self.outputs[dtype]
        first = out[1]
        out[1] += count
        out[2] = max(out[2], tolerance)
        return out[0], first

    # ---- Integers and masks ----

    def constant(self, dtype):
        lo, hi = limits(dtype)
        c = self.pick([0, 1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 17, 20, 31, 32, 40, 63, 64, 100, 127] + ([-1, -2, -5] if lo < 0 else []) + [1 << self.rng.randrange(0, 7)])
        if self.chance(2):
            c = self.pick([hi, hi - 5, lo, lo + 3])
        return max(lo, min(hi, c))

    def make_int(self):
        shape = self.shape() if self.chance(85) else ()
        a, at = self.operand(shape, lambda v: v.is_int)
        kind = self.rng.randrange(100)
        if at == a.name and a.shape != shape and shape != ():
            shape = a.shape if kind >= 30 else shape
        if kind < 24:
            return self.int_binary(shape)
        if kind < 60:
            return self.int_constant(a)
        if kind < 74:
            return self.int_cast(a)
        if kind < 80:
            m = self.of(lambda v: v.dtype == "i1" and v.shape == a.shape)
            b = self.of(lambda v: v.dtype == a.dtype and v.shape == a.shape)
            self.feature("where int")
            return self.integer(f"tl.where({m.name}, {a.name}, {b.name})", a.shape, a.dtype, min(a.lo, b.lo), max(a.hi, b.hi))
        if kind < 84:
            b = self.of(lambda v: v.dtype == a.dtype and v.shape == a.shape)
            if self.chance(50):
                self.feature("minimum int")
                return self.integer(f"tl.minimum({a.name}, {b.name})", a.shape, a.dtype, min(a.lo, b.lo), min(a.hi, b.hi))
            self.feature("maximum int")
            return self.integer(f"tl.maximum({a.name}, {b.name})", a.shape, a.dtype, max(a.lo, b.lo), max(a.hi, b.hi))
        if kind < 86 and INTS[a.dtype][0] >= 32:
            b = self.of(lambda v: v.dtype == a.dtype and v.shape == a.shape)
            if a.dtype in ("i32", "u32", "u64", "i64"):
                # The high half of the product of the bits as unsigned numbers.
                self.feature("umulhi")
                return self.integer(f"tl.umulhi({a.name}, {b.name})", a.shape, a.dtype, *limits(a.dtype))
        if kind < 88 and INTS[a.dtype][1] and a.lo > limits(a.dtype)[0]:
            self.feature("abs int")
            return self.integer(f"tl.abs({a.name})", a.shape, a.dtype, 0, max(abs(a.lo), abs(a.hi)))
        if kind < 92:
            m = self.of(lambda v: v.dtype == "i1")
            self.feature("mask to int")
            dtype = self.pick(COMMON_INTS)
            return self.integer(f"{m.name}.to({TL[dtype]})", m.shape, dtype, 0, 1)
        if kind < 94 and a.lo >= 0 and a.hi < 2**30:
            c = self.pick([2, 3, 8, 10])
            self.feature("cdiv")
            return self.integer(f"tl.cdiv({a.name}, {c})", a.shape, a.dtype, 0, (a.hi + c - 1) // c) if c < limits(a.dtype)[1] else None
        if kind < 97 and INTS[a.dtype][1]:
            if self.chance(50):
                return self.integer(f"~{a.name}", a.shape, a.dtype, -a.hi - 1, -a.lo - 1)
            if a.lo > limits(a.dtype)[0]:
                return self.integer(f"-{a.name}", a.shape, a.dtype, -a.hi, -a.lo)
        return self.int_binary(shape)

    def promote(self, a, b):
        (wa, sa), (wb, sb) = INTS[a], INTS[b]
        if sa == sb:
            return a if wa > wb else b
        if not sa:
            return a if wa >= wb else b
        return b if wb >= wa else a

    def int_binary(self, shape):
        a, at = self.operand(shape, lambda v: v.is_int)
        b, bt = self.operand(shape, lambda v: v.is_int)
        rank = {len(a.shape), len(b.shape)}
        result = shape if a.shape == shape or b.shape == shape or (rank == {1} and a.shape != b.shape and at != bt) else None
        if result is None:
            result = a.shape or b.shape
            if a.shape and b.shape and a.shape != b.shape:
                raise Unfit
            at, bt = a.name, b.name
        elif rank == {1} and len(shape) == 2 and not (("None, :" in at and ":, None" in bt) or ("None, :" in bt and ":, None" in at)):
            raise Unfit
        if len(result) == 3 and a.shape != result and b.shape != result:
            raise Unfit
        op = self.pick(["+", "+", "+", "-", "-", "*", "&", "|", "^", "<<", ">>", "//", "%"])
        dtype = self.promote(a.dtype, b.dtype)
        if op in ("//", "%") and INTS[a.dtype][1] != INTS[b.dtype][1]:
            raise Unfit
        # Exactly how Triton promotes is tried as well; interval facts of a mixed pair hold after the conversion alone.
        alo, ahi = self.wrapped(a, dtype)
        blo, bhi = self.wrapped(b, dtype)
        self.feature(f"int {op}")
        if op == "+":
            return self.integer(f"{at} + {bt}", result, dtype, alo + blo, ahi + bhi)
        if op == "-":
            return self.integer(f"{at} - {bt}", result, dtype, alo - bhi, ahi - blo)
        if op == "*":
            p = [alo * blo, alo * bhi, ahi * blo, ahi * bhi]
            return self.integer(f"{at} * {bt}", result, dtype, min(p), max(p))
        if op in ("&", "|", "^"):
            if alo >= 0 and blo >= 0:
                hi = min(ahi, bhi) if op == "&" else (1 << max(ahi, bhi).bit_length()) - 1
                return self.integer(f"{at} {op} {bt}", result, dtype, 0, hi)
            return self.integer(f"{at} {op} {bt}", result, dtype, *limits(dtype))
        if op in ("<<", ">>"):
            n = INTS[dtype][0]
            if blo < 0 or bhi >= n:
                bt, blo, bhi = f"({bt} & {self.pick([3, 7])})", 0, 7
            if op == "<<":
                return self.integer(f"{at} << {bt}", result, dtype, min(alo << blo, alo << bhi), max(ahi << bhi, ahi << blo))
            return self.integer(f"{at} >> {bt}", result, dtype, min(alo >> blo, alo >> bhi), max(ahi >> blo, ahi >> bhi))
        if blo <= 0:
            bt = f"(({bt} & {self.pick([3, 7, 15])}) + 1)"
            blo, bhi = 1, 16
        if op == "//":
            q = [self.trunc(x, y) for x in (alo, ahi) for y in (blo, bhi)]
            return self.integer(f"{at} // {bt}", result, dtype, min(q + [0]), max(q + [0]))
        return self.integer(f"{at} % {bt}", result, dtype, 0 if alo >= 0 else -bhi + 1, bhi - 1)

    @staticmethod
    def trunc(x, y):
        q = abs(x) // abs(y)
        return q if (x < 0) == (y < 0) else -q

    def wrapped(self, v, dtype):
        lo, hi = limits(dtype)
        return (v.lo, v.hi) if v.lo >= lo and v.hi <= hi else (lo, hi)

    def int_constant(self, a):
        op = self.pick(["+", "+", "+", "-", "-", "*", "*", "&", "&", "|", "^", "<<", ">>", "//", "%", "%", "reversed -"])
        scalars = [s for s in self.scalars if s.dtype == a.dtype]
        c = self.constant(a.dtype)
        ct, clo, chi = str(c), c, c
        if scalars and self.chance(35):
            s = self.pick(scalars)
            ct, clo, chi = s.name, s.lo, s.hi
            c = s.lo
        self.feature(f"int {op} scalar")
        dtype, shape = a.dtype, a.shape
        if op == "+":
            return self.integer(f"{a.name} + {ct}", shape, dtype, a.lo + clo, a.hi + chi)
        if op == "-":
            return self.integer(f"{a.name} - {ct}", shape, dtype, a.lo - chi, a.hi - clo)
        if op == "reversed -":
            return self.integer(f"{ct} - {a.name}", shape, dtype, clo - a.hi, chi - a.lo)
        if op == "*":
            p = [a.lo * clo, a.hi * clo, a.lo * chi, a.hi * chi]
            return self.integer(f"{a.name} * {ct}", shape, dtype, min(p), max(p))
        if clo != chi:
            raise Unfit
        if op == "&" and c >= 0:
            return self.integer(f"{a.name} & {ct}", shape, dtype, 0, c if a.lo < 0 else min(c, a.hi))
        if op in ("|", "^") and c >= 0 and a.lo >= 0:
            return self.integer(f"{a.name} {op} {ct}", shape, dtype, 0, (1 << max(a.hi, c).bit_length()) - 1)
        bits = INTS[dtype][0]
        if op in ("<<", ">>"):
            k = self.rng.randrange(0, min(bits - 1, 6))
            if op == "<<":
                return self.integer(f"{a.name} << {k}", shape, dtype, a.lo << k, a.hi << k)
            return self.integer(f"{a.name} >> {k}", shape, dtype, a.lo >> k, a.hi >> k)
        if op in ("//", "%") and c > 0:
            if op == "//":
                return self.integer(f"{a.name} // {ct}", shape, dtype, self.trunc(a.lo, c), self.trunc(a.hi, c))
            return self.integer(f"{a.name} % {ct}", shape, dtype, 0 if a.lo >= 0 else -c + 1, c - 1 if a.lo < 0 else min(a.hi, c - 1))
        raise Unfit

    def int_cast(self, a):
        dtype = self.pick(COMMON_INTS)
        self.feature(f"cast {a.dtype} to {dtype}")
        lo, hi = self.wrapped(a, dtype)
        return self.integer(f"{a.name}.to({TL[dtype]})", a.shape, dtype, lo, hi)

    def mask(self, text, shape):
        return self.define(text, shape, "i1", lo=0, hi=1)

    def comparison(self, a):
        """Text that compares an integer with something of its type."""
        op = self.pick(["<", "<", "<", "<=", ">", ">=", "==", "!="])
        same = [s for s in self.scalars if s.dtype == a.dtype]
        if same and self.chance(40):
            return f"{a.name} {op} {self.pick(same).name}"
        others = [v for v in self.values[-30:] if v.dtype == a.dtype and v.shape == a.shape and v is not a]
        if others and self.chance(25):
            return f"{a.name} {op} {self.pick(others).name}"
        lo, hi = limits(a.dtype)
        c = self.constant(a.dtype) if self.chance(50) else max(lo, min(hi, self.rng.randint(max(a.lo, -300), max(max(a.lo, -300), min(a.hi, 300)))))
        return f"{a.name} {op} {c}"

    def make_mask(self):
        kind = self.rng.randrange(100)
        shape = self.shape()
        if kind < 45:
            a = self.of(lambda v: v.is_int and v.shape != ())
            text = self.comparison(a)
            if self.chance(45):
                b = self.of(lambda v: v.is_int and v.shape == a.shape)
                text = f"({text}) {self.pick('&&&|^')} ({self.comparison(b)})"
                self.feature("mask of two comparisons")
            self.feature("comparison int")
            return self.mask(text, a.shape)
        if kind < 72 and len(shape) == 2:
            r = self.of(lambda v: v.shape == (shape[0], ) and (v.is_int or v.dtype == "i1"))
            c = self.of(lambda v: v.shape == (shape[1], ) and (v.is_int or v.dtype == "i1"))
            rt = r.name if r.dtype == "i1" else f"({self.comparison(r)})"
            ct = c.name if c.dtype == "i1" else f"({self.comparison(c)})"
            self.feature("mask of rows and columns")
            return self.mask(f"{rt}[:, None] {self.pick('&&&|')} {ct}[None, :]", shape)
        if kind < 84:
            a, at = self.operand(shape, lambda v: v.dtype == "i1")
            b = self.of(lambda v: v.dtype == "i1" and v.shape == shape)
            self.feature("mask of masks")
            return self.mask(f"{at} {self.pick('&&&|^')} {b.name}", shape)
        if kind < 88:
            a = self.of(lambda v: v.dtype == "i1")
            return self.mask(f"~{a.name}", a.shape)
        if kind < 92:
            a = self.of(lambda v: v.dtype in FLOATS and v.exact() and v.shape != ())
            self.feature("comparison float")
            return self.mask(f"{a.name} {self.pick(['<', '<=', '>', '>=', '==', '!='])} {self.pick(['0.0', '0.5', '-1.0', '1.25'])}", a.shape)
        if kind < 96:
            s = self.pick([v for v in self.values if v.is_int and v.shape == ()])
            a = self.of(lambda v: v.dtype == "i1" and v.shape != ())
            self.feature("mask and a scalar's condition")
            return self.mask(f"{a.name} & ({self.comparison(s)})", a.shape)
        a = self.of(lambda v: v.is_int and v.shape != ())
        self.feature("integer as a condition")
        return self.mask(f"({a.name} & 1) != 0" if INTS[a.dtype][1] else f"({a.name} & 2) == 0", a.shape)

    # ---- Floats ----

    def make_float(self):
        kind = self.rng.randrange(100)
        if kind < 30:
            return self.float_binary()
        a = self.of(lambda v: v.dtype in FLOATS)
        if kind < 45:
            op = self.pick(["+", "-", "*"])
            c = self.pick([0.25, 0.5, 1.0, 2.0, -1.0, 3.0])
            self.feature(f"float {op} constant")
            if op == "*":
                return self.real(f"{a.name} * {c}", a.shape, a.dtype, a.bound * abs(c), a.grain + 2, a.err * abs(c))
            return self.real(f"{a.name} {op} {c}", a.shape, a.dtype, a.bound + abs(c), max(a.grain, 2), a.err)
        if kind < 55:
            b = self.of(lambda v: v.dtype == a.dtype and v.shape == a.shape)
            m = self.of(lambda v: v.dtype == "i1" and (v.shape == a.shape))
            self.feature("where float")
            return self.real(f"tl.where({m.name}, {a.name}, {b.name})", a.shape, a.dtype, max(a.bound, b.bound), max(a.grain, b.grain), max(a.err, b.err))
        if kind < 63:
            b = self.of(lambda v: v.dtype == a.dtype and v.shape == a.shape)
            f = self.pick(["tl.maximum", "tl.minimum"])
            self.feature(f)
            return self.real(f"{f}({a.name}, {b.name})", a.shape, a.dtype, max(a.bound, b.bound), max(a.grain, b.grain), max(a.err, b.err))
        if kind < 72:
            dtype = self.pick(COMMON_FLOATS)
            self.feature(f"cast {a.dtype} to {dtype}")
            bits = FLOATS[dtype][0]
            if a.grain >= 60 or a.bound * 2.0**a.grain >= 2**bits:
                # A rounding of an exact value is the same everywhere, but further work on it would not be exact.
                return self.real(f"{a.name}.to({TL[dtype]})", a.shape, dtype, a.bound * 1.01, 60, a.err + a.bound * 2.0**-bits)
            return self.real(f"{a.name}.to({TL[dtype]})", a.shape, dtype, a.bound, a.grain, a.err)
        if kind < 78:
            i = self.of(lambda v: v.is_int and max(abs(v.lo), abs(v.hi)) < 2**11)
            dtype = self.pick(COMMON_FLOATS)
            self.feature("int to float")
            return self.real(f"{i.name}.to({TL[dtype]})", i.shape, dtype, float(max(abs(i.lo), abs(i.hi), 1)), 0, 0.0)
        if kind < 82:
            a = self.of(lambda v: v.dtype in FLOATS and v.exact() and v.bound < 100)
            dtype = self.pick(["i32", "i32", "i64", "i16", "i8"])
            self.feature("float to int")
            return self.integer(f"{a.name}.to({TL[dtype]})", a.shape, dtype, -int(a.bound) - 1, int(a.bound) + 1)
        if kind < 86:
            f = self.pick(["-", "tl.abs"])
            return self.real(f"-{a.name}" if f == "-" else f"tl.abs({a.name})", a.shape, a.dtype, a.bound, a.grain, a.err)
        if kind < 88 and a.dtype in ("fp32", "fp16", "bf16"):
            lo, hi = self.pick([(-1.0, 1.0), (0.0, 2.0), (-0.5, 3.0)])
            self.feature("clamp")
            return self.real(f"tl.clamp({a.name}, {lo}, {hi})", a.shape, a.dtype, max(abs(lo), abs(hi)), max(a.grain, 1), a.err)
        if kind < 90:
            b = self.of(lambda v: v.dtype == a.dtype and v.shape == a.shape)
            c = self.of(lambda v: v.dtype == a.dtype and v.shape == a.shape)
            self.feature("fma")
            return self.real(f"tl.fma({a.name}, {b.name}, {c.name})", a.shape, a.dtype, a.bound * b.bound + c.bound, max(a.grain + b.grain, c.grain),
                             a.bound * b.err + b.bound * a.err + c.err)
        return self.float_function()

    def float_binary(self):
        shape = self.shape()
        a, at = self.operand(shape, lambda v: v.dtype in FLOATS)
        b, bt = self.operand(shape, lambda v: v.dtype == a.dtype)
        if a.shape != shape and b.shape != shape:
            raise Unfit
        op = self.pick(["+", "+", "-", "*"])
        self.feature(f"float {op} {a.dtype}")
        if op == "*":
            return self.real(f"{at} * {bt}", shape, a.dtype, a.bound * b.bound, a.grain + b.grain, a.bound * b.err + b.bound * a.err)
        return self.real(f"{at} {op} {bt}", shape, a.dtype, a.bound + b.bound, max(a.grain, b.grain), a.err + b.err)

    def float_function(self):
        """What is rounded: exp, division, …; f32 and f64."""
        a = self.of(lambda v: v.dtype in ("fp32", "fp64") and v.bound < 8)
        eps = 2.0**-22 if a.dtype == "fp32" else 2.0**-50
        n, e = a.name, a.err
        f = self.pick(["exp", "exp2", "sin", "cos", "sqrt", "rsqrt", "log", "log2", "erf", "sigmoid", "div", "div", "fdiv", "div_rn", "sqrt_rn", "softmax", "floor", "ceil"])
        if f in ("floor", "ceil"):
            if not a.exact():
                raise Unfit
            self.feature(f)
            return self.real(f"tl.{f}({n})", a.shape, a.dtype, a.bound + 1, 0, 0.0)
        self.feature(f)
        if f in ("exp", "exp2"):
            most = 2.9**a.bound
            return self.real(f"tl.{f}({n})", a.shape, a.dtype, most, 60, most * (4 * eps * (1 + a.bound) + 2 * e))
        if f in ("sin", "cos"):
            return self.real(f"tl.{f}({n})", a.shape, a.dtype, 1.0, 60, 8 * eps + e)
        if f == "sqrt" or f == "sqrt_rn":
            if f == "sqrt_rn" and a.dtype != "fp32":
                raise Unfit
            return self.real(f"tl.{f}(tl.abs({n}) + 1.0)", a.shape, a.dtype, a.bound + 1, 60, 4 * eps * (a.bound + 1) + e)
        if f == "rsqrt":
            return self.real(f"tl.rsqrt(tl.abs({n}) + 1.0)", a.shape, a.dtype, 1.0, 60, 8 * eps + e)
        if f in ("log", "log2"):
            return self.real(f"tl.{f}(tl.abs({n}) + 1.0)", a.shape, a.dtype, 4.0, 60, 16 * eps + 2 * e)
        if f == "erf":
            return self.real(f"tl.erf({n})", a.shape, a.dtype, 1.0, 60, 16 * eps + 2 * e)
        if f == "sigmoid":
            return self.real(f"tl.sigmoid({n})", a.shape, a.dtype, 1.0, 60, 16 * eps + e)
        if f == "softmax" and len(a.shape) >= 1 and a.dtype == "fp32":
            return self.real(f"tl.softmax({n}, {len(a.shape) - 1})", a.shape, a.dtype, 1.0, 60, 64 * eps + 4 * e) if len(a.shape) == 2 else None
        b = self.of(lambda v: v.dtype == a.dtype and v.shape == a.shape and v.bound < 8)
        below = f"(tl.abs({b.name}) + 0.5)"
        text = f"{n} / {below}" if f == "div" else f"tl.fdiv({n}, {below})" if f == "fdiv" else f"tl.div_rn({n}, {below})"
        if f not in ("div", "fdiv") and a.dtype != "fp32":
            raise Unfit
        return self.real(text, a.shape, a.dtype, 2 * a.bound, 60, 8 * eps * (a.bound + 1) + 2 * e + 4 * b.err * a.bound)
