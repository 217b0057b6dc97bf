"""Random Triton kernels as source, for tools/campaign. Plain Python: torch and Triton are not needed to make them.

    source, case = make_kernel(seed)        a file with one kernel, and its line for check_kernels (tests/fuzz/check_kernels.cpp)

A kernel is a list of statements, each of which computes one value from earlier ones: tiles of integers, floats and booleans of
several shapes. Of every integer an interval is known, so that addresses stay inside their buffers, by a mask or by themselves; of
every float its magnitude, granularity and the error that it may carry. Decisions (comparisons, casts to integers, sorting) are made
on exact values alone, and a buffer that gets an inexact one has the bound of its error as its tolerance.
"""
import zlib

from campaign_wide import Wide
from campaign_values import COMMON_FLOATS, COMMON_INTS, FLOATS, INTS, NARROW, TL, Unfit, Value, Values, limits

HELPERS = {
    "add": "@triton.jit\ndef h_add(a, b):\n    return a + b\n",
    "mul": "@triton.jit\ndef h_mul(a, b):\n    return a * b\n",
    "max": "@triton.jit\ndef h_max(a, b):\n    return tl.maximum(a, b)\n",
    "or": "@triton.jit\ndef h_or(a, b):\n    return a | b\n",
    "best": "@triton.jit\ndef h_best(a, i, b, j):\n    t = (a > b) | ((a == b) & (i < j))\n    return tl.where(t, a, b), tl.where(t, i, j)\n",
    "linear": "@triton.jit\ndef h_linear(a, b, c, d):\n    return a * c, b * c + d\n",
    "pair": "@triton.jit\ndef h_pair(a, b, K: tl.constexpr):\n    if K % 2 == 0:\n        return a + b, a - b\n    else:\n        return a - b, a + b\n",
    "select": "@triton.jit\ndef h_select(m, a, b):\n    r = b\n    if m:\n        r = a\n    return r\n",
}


class Kernel(Wide, Values):
    """A whole kernel: memory, shapes, reductions, control flow."""

    # ---- Memory ----

    def address(self, size):
        """An index that lies in [0, size) wherever the mask that comes with it is on, and that mask or None."""
        v = self.of(lambda v: v.is_int and v.shape != ())
        if v.lo >= 0 and v.hi < size:
            if self.chance(60):
                return v, v.name, None
            return v, v.name, self.guard(v.shape)
        how = self.rng.randrange(3)
        if how == 0 and size - 1 <= limits(v.dtype)[1]:
            self.feature("index by &")
            return v, f"({v.name} & {size - 1})", self.guard(v.shape) if self.chance(40) else None
        if how == 1 and v.lo >= 0 and size <= limits(v.dtype)[1]:
            self.feature("index by %")
            return v, f"({v.name} % {size})", self.guard(v.shape) if self.chance(40) else None
        self.feature("index by mask")
        parts = []
        if v.lo < 0:
            parts.append(f"({v.name} >= 0)")
        if v.hi >= size:
            parts.append(f"({v.name} < {size})")
        more = self.guard(v.shape) if self.chance(40) else None
        self.rng.shuffle(parts)
        return v, v.name, " & ".join(([more] if more and self.chance(50) else []) + parts + ([more] if more and self.chance(20) else []))

    def guard(self, shape):
        masks = [text for v in self.values[-30:] if v.dtype == "i1" and (text := self.fits(v, shape)) and v.shape != ()]
        return self.pick(masks) if masks else None

    def make_load(self):
        size = self.pick([64, 256, 1024, 4096])
        dtype = self.pick(COMMON_FLOATS + COMMON_INTS + ["i1", "fp8e5", "fp8e4nv"])
        index, text, mask = self.address(size)
        if self.chance(40) and self.inputs:
            name, dtype, had, facts = self.pick(self.inputs)
            # What & makes of a negative index lies anywhere below the size.
            if had < size and (index.hi >= had or "&" in text):
                raise Unfit
        else:
            name, facts = self.input_buffer(dtype, size)
            self.inputs.append((name, dtype, size, facts))
        other = self.pick(["0", "0", "1"])
        extra = f", mask={mask}, other={other}" if mask else ""
        if self.chance(6):
            extra += ', cache_modifier=".cg"'
        call = f"tl.load({name} + {text}{extra})"
        self.feature(f"load {dtype}" + (" masked" if mask else ""))
        if facts is None:
            # Special values: they are only moved.
            v = Value(self.name(), index.shape, dtype, bound=1e300, err=1.0)
            self.emit(f"{v.name} = {call}")
            self.special.append(v)
            return v
        if dtype == "i1":
            return self.mask(f"{call} != 0", index.shape)
        if dtype in INTS:
            return self.integer(call, index.shape, dtype, min(facts["lo"], 0), max(facts["hi"], 1))
        if dtype in NARROW:
            return self.real(f"{call}.to(tl.float32)", index.shape, "fp32", 2.0, 2, 0.0)
        return self.real(call, index.shape, dtype, 2.0, 2, 0.0)

    def offsets(self, shape):
        """An index that gives each element of a tile a place of its own in [0, numel)."""
        numel = 1
        for d in shape:
            numel *= d
        kind = self.rng.randrange(8)
        if len(shape) == 1:
            r = f"tl.arange(0, {shape[0]})"
            c = self.rng.randrange(shape[0]) if shape[0] > 1 else 0
            return [r, r, r, f"({shape[0] - 1} - {r})", f"({r} ^ {c})", f"(({r} + {c}) % {shape[0]})", f"tl.flip({r}, 0)", r][kind] if shape[0] > 1 else r
        order = list(range(len(shape)))
        if kind >= 5:
            self.rng.shuffle(order)
        if kind == 4:
            return f"tl.reshape(tl.arange(0, {numel}), [{', '.join(map(str, shape))}])"
        step, strides = 1, [0] * len(shape)
        for axis in reversed(order):
            strides[axis] = step
            step *= shape[axis]
        terms = []
        for axis, d in enumerate(shape):
            at = ", ".join(":" if a == axis else "None" for a in range(len(shape)))
            own = [v for v in self.ranges if v.shape == (d, )]
            r = self.pick(own).name if own else f"tl.arange(0, {d})"
            terms.append(f"{r}[{at}] * {strides[axis]}" if strides[axis] != 1 or self.chance(20) else f"{r}[{at}]")
        return "(" + " + ".join(terms) + ")"

    def place(self, shape, dtype, tolerance):
        """Text of an address where a tile may be stored: its own for every program and every turn of the loops around."""
        numel, copies, text = 1, 1, ""
        for d in shape:
            numel *= d
        slack = self.pick([0, 0, 0, 1, 5])
        size = numel + slack
        for axis in range(2):
            if self.grid[axis] > 1:
                text += f"tl.program_id({axis}) * {size * copies} + "
                copies *= self.grid[axis]
        for name, trips in self.loops:
            text += f"{name} * {size * copies} + "
            copies *= trips
        buffer, first = self.output(dtype, size * copies, tolerance)
        shift = self.rng.randrange(slack + 1)
        text += f"{first + shift} + " if first + shift or self.chance(10) else ""
        return f"{buffer} + {text}{self.offsets(shape) if shape else '0'}"

    def make_store(self):
        v = self.of(lambda v: v.shape != () and (not v.is_float or v.err < 0.01))
        if self.special and self.chance(30):
            v = self.pick([s for s in self.special if s.name in self.visible()])
        return self.store(v)

    def visible(self):
        return {v.name for v in self.values} | {v.name for v in self.special}

    def store(self, v):
        dtype, text, tolerance = v.dtype, v.name, v.err * 4
        if v in self.special:
            tolerance = 0.0
        if dtype == "i1":
            dtype, text = self.pick([("i32", v.name), ("i8", v.name), ("i1", v.name)])
            if dtype != "i1":
                text = f"{v.name}.to({TL[dtype]})"
        elif v.is_int and self.chance(30):
            dtype = self.pick(COMMON_INTS)
        elif dtype in FLOATS and v.exact() and v.bound <= 2 and v.grain <= 2 and self.chance(10):
            dtype = self.pick(list(NARROW) if v.grain <= 1 or v.bound <= 1 else ["fp8e4nv"])
            text = f"{v.name}.to(tl.float32).to({TL[dtype]})"
        mask = self.guard(v.shape) if self.chance(60) else None
        if mask is None and self.chance(40):
            i = [x for x in self.values[-30:] if x.is_int and x.shape == v.shape]
            mask = self.comparison(self.pick(i)) if i else None
        self.emit(f"tl.store({self.place(v.shape, dtype, tolerance)}, {text}{f', mask={mask}' if mask else ''})")
        self.feature(f"store {dtype}" + (" masked" if mask else ""))
        self.stored += 1
        return v

    def make_atomic(self):
        index, text, mask = self.address(64)
        op = self.pick(["add", "add", "add", "max", "min", "and", "or", "xor"])
        dtype = self.pick(["i32", "i32", "i64", "u32"] + (["fp32", "fp32", "fp64", "fp16"] if op in ("add", ) else []))
        shape = index.shape
        trips = 1
        for _, t in self.loops:
            trips *= t
        v = self.of(lambda v: v.shape == shape and (v.is_int if dtype in INTS else v.dtype in FLOATS and v.exact() and v.grain <= 2 and v.bound <= 2))
        if dtype == "fp16" and v.numel() * trips * self.grid[0] * self.grid[1] > 200:
            raise Unfit
        buffer, first = self.output(dtype + " atomic", 64, 0.0)
        if index.numel() * trips > 4096:
            raise Unfit
        self.emit(f"tl.atomic_{op}({buffer} + {first} + {text}, {v.name}.to({TL[dtype]}){f', mask={mask}' if mask else ''})")
        self.feature(f"atomic_{op} {dtype}")
        self.stored += 1

    # ---- Shapes ----

    def like(self, v, text, shape):
        """A value that moves the elements of v."""
        if v.dtype == "i1":
            return self.mask(text, shape)
        if v.is_int:
            return self.integer(text, shape, v.dtype, v.lo, v.hi)
        return self.real(text, shape, v.dtype, v.bound, v.grain, v.err)

    def make_shape(self):
        kind = self.rng.randrange(100)
        v = self.of(lambda v: v.shape != ())
        if kind < 20:
            shape = self.pick([s for s in self.shapes if self.numel(s) == v.numel() and s != v.shape])
            self.feature("reshape")
            return self.like(v, f"tl.reshape({v.name}, [{', '.join(map(str, shape))}])", shape)
        if kind < 40:
            shape = self.shape()
            v, text = self.operand(shape, lambda v: v.shape != () and len(v.shape) < len(shape))
            self.feature("broadcast")
            return self.like(v, f"tl.broadcast_to({text}, [{', '.join(map(str, shape))}])", shape)
        if kind < 55 and len(v.shape) >= 2:
            order = list(range(len(v.shape)))
            self.rng.shuffle(order)
            self.feature("trans")
            if len(order) == 2:
                return self.like(v, f"tl.trans({v.name})", v.shape[::-1])
            return self.like(v, f"tl.permute({v.name}, [{', '.join(map(str, order))}])", tuple(v.shape[a] for a in order))
        if kind < 65 and v.numel() <= 1024:
            w = self.of(lambda w: w.shape == v.shape and w.dtype == v.dtype)
            both = Value("", v.shape, v.dtype, lo=min(v.lo, w.lo), hi=max(v.hi, w.hi), bound=max(v.bound, w.bound), grain=max(v.grain, w.grain), err=max(v.err, w.err))
            if self.chance(50):
                self.feature("interleave")
                return self.like(both, f"tl.interleave({v.name}, {w.name})", v.shape[:-1] + (v.shape[-1] * 2, ))
            self.feature("join")
            return self.like(both, f"tl.join({v.name}, {w.name})", v.shape + (2, )) if len(v.shape) < 3 else None
        if kind < 80:
            v = self.of(lambda v: v.numel() >= 2 and len(v.shape) <= 2 and v.shape[-1] >= 2)
            if v.shape[-1] > 2:
                text = f"tl.reshape({v.name}, [{', '.join(map(str, v.shape[:-1] + (v.shape[-1] // 2, 2)))}])"
                shape = v.shape[:-1] + (v.shape[-1] // 2, )
            else:
                text, shape = v.name, v.shape[:-1]
                if not shape:
                    raise Unfit
            a, b = self.like_name(v, shape), self.like_name(v, shape)
            self.emit(f"{a.name}, {b.name} = tl.split({text})")
            self.values += [a, b]
            self.feature("split")
            return a
        if kind < 88:
            axis = self.rng.randrange(len(v.shape))
            self.feature("flip")
            return self.like(v, f"tl.flip({v.name}, {axis})", v.shape)
        if kind < 95 and v.dtype != "i1":
            axis = self.rng.randrange(len(v.shape))
            i = self.of(lambda i: i.dtype in ("i32", "i64", "i16") and len(i.shape) == len(v.shape) and
                        all(a == axis or i.shape[a] == v.shape[a] for a in range(len(v.shape))))
            self.feature("gather")
            n = v.shape[axis]
            index = i.name if i.lo >= 0 and i.hi < n else f"({i.name} & {n - 1})"
            return self.like(v, f"tl.gather({v.name}, {index}.to(tl.int32), {axis})", i.shape)
        return self.like(v, f"tl.ravel({v.name})", (v.numel(), )) if len(v.shape) > 1 else None

    def like_name(self, v, shape):
        return Value(self.name(), shape, v.dtype, lo=v.lo, hi=v.hi, bound=v.bound, grain=v.grain, err=v.err)

    @staticmethod
    def numel(shape):
        n = 1
        for d in shape:
            n *= d
        return n

    # ---- Reductions, scans, sorts, products ----

    def make_reduction(self):
        v = self.of(lambda v: v.shape != () and v.dtype != "i1" and (v.is_int or v.dtype in FLOATS))
        axis = self.rng.randrange(len(v.shape))
        shape, n = v.shape[:axis] + v.shape[axis + 1:], v.shape[axis]
        kind = self.rng.randrange(100)
        t = TL[v.dtype]
        keep = len(v.shape) >= 2 and self.chance(15)
        out = v.shape[:axis] + (1, ) + v.shape[axis + 1:] if keep else shape
        more = ", keep_dims=True" if keep else ""
        if keep:
            raise Unfit
        if kind < 30:
            self.feature(f"sum {v.dtype}")
            if v.is_int:
                return self.integer(f"tl.sum({v.name}, {axis}{more}).to({t})", out, v.dtype, v.lo * n, v.hi * n)
            eps = 2.0**-FLOATS[v.dtype][0]
            return self.real(f"tl.sum({v.name}, {axis}{more}).to({t})", out, v.dtype, v.bound * n, v.grain, (v.err * n + n * n * v.bound * eps) if v.err else 0.0)
        if kind < 50:
            f = self.pick(["max", "min"])
            self.feature(f"{f} {v.dtype}")
            return self.like(v, f"tl.{f}({v.name}, {axis}{more}).to({t})", out)
        if kind < 65 and v.exact():
            f = self.pick(["argmax", "argmin"])
            self.feature(f"{f} {v.dtype}")
            return self.integer(f"tl.{f}({v.name}, {axis})", shape, "i32", 0, n - 1)
        if kind < 72 and v.exact() and v.dtype in ("fp32", "i32", "i64"):
            self.feature("max with index")
            a, b = self.like_name(v, shape), Value(self.name(), shape, "i32", lo=0, hi=n - 1)
            self.emit(f"{a.name}, {b.name} = tl.{self.pick(['max', 'min'])}({v.name}, {axis}, return_indices=True)")
            self.values += [a, b]
            return b
        if kind < 80 and v.is_int and v.dtype in ("i32", "i64", "u32"):
            f = self.pick(["xor_sum", "reduce_or"])
            self.feature(f)
            lo, hi = (0, (1 << max(v.hi, 1).bit_length()) - 1) if v.lo >= 0 else limits(v.dtype)
            return self.integer(f"tl.{f}({v.name}, {axis})", shape, v.dtype, lo, hi)
        if kind < 90:
            f = self.pick(["add", "max"] + (["or"] if v.is_int else []))
            self.helpers.add(f)
            self.feature(f"reduce by a function {v.dtype}")
            text = f"tl.reduce({v.name}, {axis}, h_{f})"
            if f == "max":
                return self.like(v, text, shape)
            if f == "or":
                return self.integer(text, shape, v.dtype, *limits(v.dtype))
            if v.is_int:
                return self.integer(text, shape, v.dtype, v.lo * n, v.hi * n)
            eps = 2.0**-FLOATS[v.dtype][0]
            return self.real(text, shape, v.dtype, v.bound * n, v.grain, (v.err * n + n * n * v.bound * eps) if v.err else 0.0)
        if not v.exact():
            raise Unfit
        i = self.of(lambda i: i.dtype in ("i32", "i64") and i.shape == v.shape)
        self.helpers.add("best")
        self.feature("reduce of two values")
        a, b = self.like_name(v, shape), self.like_name(i, shape)
        self.emit(f"{a.name}, {b.name} = tl.reduce(({v.name}, {i.name}), {axis}, h_best)")
        self.values += [a, b]
        return a

    def make_scan(self):
        v = self.of(lambda v: v.shape != () and v.dtype != "i1" and (v.is_int or v.dtype in FLOATS))
        axis, reverse = self.rng.randrange(len(v.shape)), self.pick(["", ", reverse=True"])
        n, kind = v.shape[axis], self.rng.randrange(100)
        if kind < 50:
            self.feature(f"cumsum {v.dtype}" + reverse)
            text = f"tl.cumsum({v.name}, {axis}{reverse}).to({TL[v.dtype]})"
            if v.is_int:
                return self.integer(text, v.shape, v.dtype, min(v.lo, v.lo * n), max(v.hi, v.hi * n))
            eps = 2.0**-FLOATS[v.dtype][0]
            return self.real(text, v.shape, v.dtype, v.bound * n, v.grain, (v.err * n + n * n * v.bound * eps) if v.err else 0.0)
        if kind < 60 and v.is_int:
            self.feature(f"cumprod {v.dtype}")
            return self.integer(f"tl.cumprod({v.name}, {axis}{reverse}).to({TL[v.dtype]})", v.shape, v.dtype, *limits(v.dtype))
        if kind < 85:
            f = self.pick(["max"] + (["add", "or"] if v.is_int else []))
            self.helpers.add(f)
            self.feature("scan by a function")
            text = f"tl.associative_scan({v.name}, {axis}, h_{f}{reverse})"
            return self.like(v, text, v.shape) if f == "max" else self.integer(text, v.shape, v.dtype, *limits(v.dtype))
        v = self.of(lambda v: v.dtype in ("i32", "i64") and v.shape != ())
        w = self.of(lambda w: w.dtype == v.dtype and w.shape == v.shape)
        axis = self.rng.randrange(len(v.shape))
        self.helpers.add("linear")
        self.feature("scan of two values")
        a, b = Value(self.name(), v.shape, v.dtype), Value(self.name(), v.shape, v.dtype)
        for r in (a, b):
            r.lo, r.hi = limits(v.dtype)
        self.emit(f"{a.name}, {b.name} = tl.associative_scan(({v.name}, {w.name}), {axis}, h_linear{reverse})")
        self.values += [a, b]
        return b

    def make_sort(self):
        v = self.of(lambda v: v.shape != () and v.exact() and (v.dtype in ("i32", "i16", "i64", "u8", "u32") or v.dtype in ("fp32", "fp16")) and v.numel() <= 512)
        if self.chance(20):
            i = self.of(lambda i: i.dtype == "i32" and len(i.shape) == 1)
            self.feature("histogram")
            return self.integer(f"tl.histogram({i.name} & 15, 16)", (16, ), "i32", 0, i.numel())
        if self.chance(20) and v.shape[-1] >= 4 and v.dtype in ("i32", "fp32"):
            k = v.shape[-1] // 2
            self.feature("topk")
            return self.like(v, f"tl.topk({v.name}, {k})", v.shape[:-1] + (k, ))
        self.feature(f"sort {v.dtype}")
        return self.like(v, f"tl.sort({v.name}{self.pick(['', ', descending=True'])})", v.shape)

    def make_dot(self):
        square = [v for v in self.values if len(v.shape) == 2 and min(v.shape) >= 16 and
                  (v.dtype in ("fp16", "bf16", "fp32", "fp64") and v.exact() and v.bound <= 8 and v.grain <= 2 or v.dtype == "i8")]
        a = self.pick(square)
        b = self.pick([v for v in square if v.dtype == a.dtype and v.shape[0] == a.shape[1]])
        shape, k = (a.shape[0], b.shape[1]), a.shape[1]
        self.feature(f"dot {a.dtype}")
        if a.dtype == "i8":
            most = max(abs(a.lo), abs(a.hi)) * max(abs(b.lo), abs(b.hi)) * k
            c = [v for v in self.values if v.dtype == "i32" and v.shape == shape and abs(v.lo) < 2**20 and abs(v.hi) < 2**20]
            if c and self.chance(40):
                return self.integer(f"tl.dot({a.name}, {b.name}, {self.pick(c).name})", shape, "i32", -most - 2**20, most + 2**20)
            return self.integer(f"tl.dot({a.name}, {b.name})", shape, "i32", -most, most)
        # Exact in tf32 and bf16 as well: operands have at most six bits.
        precision = self.pick(["", ', input_precision="ieee"', ', input_precision="tf32"', ', input_precision="tf32x3"']) if a.dtype == "fp32" and a.bound <= 2 and b.bound <= 2 else ""
        if precision:
            self.feature("dot" + precision[1:])
        out = "fp64" if a.dtype == "fp64" else "fp32"
        c = [v for v in self.values if v.dtype == out and v.shape == shape and v.exact() and v.grain <= 4]
        if c and self.chance(40):
            c = self.pick(c)
            return self.real(f"tl.dot({a.name}, {b.name}, {c.name}{precision})", shape, out, a.bound * b.bound * k + c.bound, max(a.grain + b.grain, c.grain), 0.0)
        return self.real(f"tl.dot({a.name}, {b.name}{precision})", shape, out, a.bound * b.bound * k, a.grain + b.grain, 0.0)

    # ---- Functions, control flow, descriptors ----

    def make_call(self):
        a = self.of(lambda v: v.dtype in ("i32", "i64") and v.shape != ())
        b = self.of(lambda v: v.dtype == a.dtype and v.shape == a.shape)
        self.helpers.add("pair")
        self.feature("call with a tuple")
        x, y = Value(self.name(), a.shape, a.dtype), Value(self.name(), a.shape, a.dtype)
        for r in (x, y):
            r.lo, r.hi = min(a.lo + b.lo, a.lo - b.hi), max(a.hi + b.hi, a.hi - b.lo)
            least, most = limits(a.dtype)
            if r.lo < least or r.hi > most:
                r.lo, r.hi = least, most
        self.emit(f"{x.name}, {y.name} = h_pair({a.name}, {b.name}, {self.rng.randrange(4)})")
        self.values += [x, y]

    def make_branch(self):
        """A value that an `if` changes."""
        a = self.of(lambda v: v.shape != () and v.dtype != "i1" and v.exact())
        s = self.pick([v for v in self.values + self.scalars if v.is_int and v.shape == ()])
        b = [v for v in self.values if v.dtype == a.dtype and v.shape == a.shape and v is not a]
        r = self.like(a, a.name, a.shape)
        self.emit(f"if {self.comparison(s)}:")
        before, special, self.indent = list(self.values), list(self.special), self.indent + 1
        if self.chance(30):
            self.statement(allow_store=True)
        w = self.pick(b) if b else a
        self.emit(f"{r.name} = {w.name}" if not a.is_int or self.chance(50) else f"{r.name} = {w.name} ^ {a.name}")
        self.indent -= 1
        self.values, self.special = before, special
        if self.chance(35):
            self.emit("else:")
            self.indent += 1
            self.emit(f"{r.name} = {self.pick(b).name if b else a.name}")
            self.indent -= 1
        r.lo, r.hi = (min(a.lo, w.lo), max(a.hi, w.hi)) if not a.is_int else limits(a.dtype)
        for v in b:
            r.bound, r.grain, r.err = max(r.bound, v.bound), max(r.grain, v.grain), max(r.err, v.err)
        self.feature("if")

    def make_loop(self):
        if len(self.loops) >= 2:
            raise Unfit
        trips = self.pick([1, 2, 3, 3, 4])
        name = f"k{self.counter}"
        self.counter += 1
        carried = []
        for _ in range(self.rng.randrange(0, 3)):
            a = self.of(lambda v: v.shape != () and v.exact() and (v.is_int or v.dtype in ("fp32", "fp64")) and v.bound < 1000)
            c = self.like(a, a.name, a.shape)
            if c.is_int:
                c.lo, c.hi = limits(c.dtype)
            else:
                c.bound, c.grain = c.bound + trips * 64, 6
            carried.append(c)
        small = [s for s in self.scalars if s.lo == trips]
        form, counter = self.rng.randrange(4), "i32"
        if form == 0:
            self.emit(f"{name} = 0")
            self.emit(f"while {name} < {self.pick(small).name if small else trips}:")
            self.feature("while")
        elif form == 1:
            self.emit(f"for {name} in tl.static_range({trips}):")
            self.feature("static_range")
        else:
            # The counter has the type of the bound, at least i32.
            bound = self.pick(small) if small else None
            counter = "i64" if bound and bound.dtype == "i64" else "i32"
            self.emit(f"for {name} in {self.pick(['range', 'range', 'tl.range'])}(0, {bound.name if bound else trips}):")
            self.feature("for")
        before, self.indent = list(self.values), self.indent + 1
        self.loops.append((name, trips))
        # The counter stands beside arguments: a static one is no tensor.
        scalars = self.scalars
        self.scalars = scalars + [Value(name, (), counter, lo=0, hi=max(trips - 1, 0))] * 2
        special = list(self.special)
        for _ in range(self.rng.randrange(2, 7)):
            self.statement(allow_store=True)
        for c in carried:
            if c.is_int:
                others = [v for v in self.values if v.dtype == c.dtype and v.shape == c.shape]
                self.emit(f"{c.name} = {c.name} {self.pick(['+', '-', '^'])} {self.pick(others).name}")
            else:
                others = [v for v in self.values if v.dtype == c.dtype and v.shape == c.shape and v.exact() and v.bound <= 64 and v.grain <= 6]
                if others:
                    self.emit(f"{c.name} += {self.pick(others).name}")
                else:
                    self.emit(f"{c.name} = {c.name} + 1.0")
        if form == 0:
            self.emit(f"{name} += 1")
        self.loops.pop()
        self.indent -= 1
        self.values, self.special, self.scalars = before, special, scalars

    def make_return(self):
        s = self.pick([v for v in self.values + self.scalars if v.is_int and v.shape == ()])
        if self.indent != 1 or self.stored == 0 or self.returned:
            raise Unfit
        self.returned = True
        self.feature("early return")
        if self.chance(50):
            self.emit(f"if {self.comparison(s)}:")
            self.emit("    return")
        else:
            self.emit(f"if (tl.program_id(0) == {self.rng.randrange(2)}) & ({self.comparison(s)}):")
            self.emit("    return")

    def make_descriptor(self):
        rows, columns = self.pick([7, 16, 20]), self.pick([16, 32, 48])
        shape = self.pick([s for s in self.shapes if len(s) == 2 and s[1] >= 8 and self.numel(s) <= 1024])
        dtype = self.pick(["fp32", "fp32", "fp16", "bf16", "i32"])
        name, facts = self.input_buffer(dtype, rows * columns)
        if facts is None:
            raise Unfit
        d = self.name()
        self.emit(f"{d} = tl.make_tensor_descriptor({name}, shape=[{rows}, {columns}], strides=[{columns}, 1], block_shape=[{shape[0]}, {shape[1]}])")
        s = self.pick([v.name for v in self.values + self.scalars if v.shape == () and v.dtype == "i32" and 0 <= v.lo and v.hi < 100] + ["0", "3"])
        self.feature(f"descriptor load {dtype}")
        text = f"{d}.load([{s}, {self.pick(['0', '8', '16'])}])"
        if dtype == "i32":
            return self.integer(text, shape, dtype, min(facts["lo"], 0), max(facts["hi"], 0))
        return self.real(text, shape, dtype, 2.0, 2, 0.0)

    # ---- The whole ----

    def statement(self, allow_store=True):
        table = [(24, self.make_int), (17, self.make_mask), (13, self.make_float), (14, self.make_load), (9, self.make_shape), (6, self.make_reduction),
                 (3, self.make_scan), (2, self.make_sort), (3, self.make_dot), (2, self.make_atomic), (2, self.make_call), (3, self.make_branch),
                 (3, self.make_loop), (1, self.make_return), (1, self.make_descriptor), (2, self.make_product), (1, self.make_scaled_product), (1, self.make_batched_product),
                 (2, self.make_exchange), (2, self.make_block_store), (1, self.make_library), (9 if allow_store else 0, self.make_store)]
        for _ in range(20):
            r = self.rng.randrange(sum(w for w, _ in table))
            for w, make in table:
                r -= w
                if r < 0:
                    break
            lines, indent, values, loops = len(self.lines), self.indent, list(self.values), list(self.loops)
            scalars = self.scalars
            special, params, inputs, outputs = list(self.special), list(self.params), list(self.inputs), {k: list(o) for k, o in self.outputs.items()}
            stored, returned = self.stored, self.returned
            try:
                make()
                if len(self.lines) > lines:
                    return
            except Unfit:
                pass
            del self.lines[lines:]
            self.indent, self.values, self.loops, self.special, self.params, self.inputs, self.outputs = indent, values, loops, special, params, inputs, outputs
            self.stored, self.returned, self.scalars = stored, returned, scalars

    def build(self):
        rng = self.rng
        # Nearly all the time goes into LLVM, and grows with the code: many short kernels over small tiles find more than few long ones. One in
        # ten is long, over tiles that need loops and the stack.
        long = self.chance(10)
        if long:
            self.feature("long kernel")
        d = [rng.choice([4, 8, 16, 16, 32, 32, 64] if long else [2, 4, 4, 8, 8, 16, 16, 32]), rng.choice([8, 16, 16, 32, 64, 64, 128] if long else [8, 8, 16, 16, 16, 32, 64]), rng.choice([2, 4, 8])]
        rank = rng.choice([1, 1, 2, 2, 2, 3])
        if rank == 1:
            d[0] = rng.choice([8, 32, 64, 128, 256, 256, 512, 1024] if long else [4, 8, 16, 32, 32, 64, 64, 128, 256])
        self.dims = d[:rank]
        self.shapes = [(d[0], )] * 3
        if rank >= 2:
            self.shapes += [(d[1], ), (d[0], d[1]), (d[0], d[1]), (d[0], d[1]), (d[1], d[0]), (d[0] * d[1], )]
        if rank == 3:
            while d[0] * d[1] * d[2] > 2048:
                d[1] //= 2
            self.dims = d[:3]
            self.shapes = [(d[0], ), (d[1], ), (d[2], ), (d[0], d[1]), (d[1], d[2]), (d[0], d[1], d[2]), (d[0], d[1], d[2]), (d[0] * d[1], d[2]), (d[0] * d[1] * d[2], )]
        self.scalars, self.inputs, self.special, self.ranges, self.returned, self.library = [], [], [], [], False, False
        for _ in range(rng.randrange(1, 4)):
            self.scalar_param()
        for axis in range(2):
            if self.grid[axis] > 1 or self.chance(30):
                self.integer(f"tl.program_id({axis})", (), "i32", 0, self.grid[axis] - 1)
        for size in sorted({n for s in self.shapes if len(s) <= 2 for n in s}):
            if self.chance(30):
                self.constexprs.append((f"B{size}", str(size)))
                self.emit(f"r{size} = tl.arange(0, B{size})")
            else:
                self.emit(f"r{size} = tl.arange(0, {size})")
            v = Value(f"r{size}", (size, ), "i32", lo=0, hi=size - 1)
            self.values.append(v)
            self.ranges.append(v)
        if self.grid[0] > 1 and self.chance(70):
            size = self.pick([v for v in self.ranges])
            self.integer(f"tl.program_id(0) * {size.shape[0]} + {size.name}", size.shape, "i32", 0, self.grid[0] * size.shape[0] - 1)
        for s in sorted({s for s in self.shapes if len(s) == 2}):
            if self.chance(60):
                self.integer(f"r{s[0]}[:, None] * {s[1]} + r{s[1]}[None, :]", s, "i32", 0, s[0] * s[1] - 1)
        for _ in range(rng.randrange(8, 34) if long else rng.randrange(4, 13)):
            self.statement()
        # What nobody used would say nothing.
        text = "\n".join(self.lines)
        unused = [v for v in self.values if text.count(f"{v.name}") == 1 and v.name[0] == "v" and (not v.is_float or v.err < 0.01)]
        for v in unused[-6:]:
            if self.chance(80):
                self.store(v)
        while self.stored < 2:
            found = [v for v in self.values if v.shape != () and (not v.is_float or v.err < 0.01)]
            self.store(self.pick(found[-6:]))

    def text(self):
        names = [p[0] for p in self.params] + [o[0] for o in self.outputs.values()]
        head = ["import triton", "import triton.language as tl"] + (["from triton.language.extra import libdevice"] if self.library else []) + ["", ""]
        for h in sorted(self.helpers):
            head += [*HELPERS[h].rstrip().split("\n"), "", ""]
        consts = "".join(f", {n}: tl.constexpr" for n, _ in self.constexprs)
        head += ["@triton.jit", f"def kernel({', '.join(names)}{consts}):"]
        return "\n".join(head + self.lines) + "\n"

    def case(self, name):
        params = list(self.params)
        for key, (o, size, tolerance) in self.outputs.items():
            dtype = key.split()[0]
            zero = "zero" if "atomic" in key or self.seed % 3 else "range,0,3,1,7"
            params.append((o, "*" + dtype, f"{dtype}[{size}]={zero}" + (f"~{tolerance:.3g}" if tolerance else "")))
        signature = ",".join(f"{n}:{t}" for n, t, _ in params)
        return "|".join([name, name + ".py", "kernel", signature, " ".join(f"{k}={v}" for k, v in self.constexprs), " ".join(map(str, self.grid)),
                         " ".join(a for _, _, a in params)])


def make_kernel(seed, name=None):
    """(source, line of the list of cases, features) of one random kernel; the same for the same seed."""
    for attempt in range(100):
        k = Kernel(zlib.crc32(f"{seed}/{attempt}".encode()) + (seed << 32))
        try:
            k.build()
        except Unfit:
            continue
        return k.text(), k.case(name or f"k{seed}"), k.features
    raise AssertionError("no kernel")


if __name__ == "__main__":
    import sys
    source, case, _ = make_kernel(int(sys.argv[1]))
    print(source)
    print("#", case)
