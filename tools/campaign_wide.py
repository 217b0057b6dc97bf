"""Statements of random Triton kernels (campaign_kernels.py) that bring their own memory: products of loaded blocks in every precision, alone and
in a loop over K, block-scaled products, atomics whose answer is used, descriptors and block pointers that store, functions of the device library.
"""
from campaign_values import FLOATS, INTS, NARROW, TL, Unfit, limits

# Name, arguments, bound of the result for |x| <= 4, error in units of the type's last place; arguments that a function is not made for are kept away.
LIBRARY = [("tanh", "{x}", 1, 8), ("log1p", "tl.abs({x})", 4, 8), ("expm1", "{x}", 60, 500), ("atan", "{x}", 2, 8), ("asinh", "{x}", 4, 16), ("cosh", "{x}", 60, 500),
           ("sinh", "{x}", 60, 500), ("erfc", "{x}", 2, 60), ("cbrt", "{x}", 2, 8), ("log10", "tl.abs({x}) + 0.5", 2, 16), ("atan2", "{x}, tl.abs({y}) + 0.5", 4, 16),
           ("pow", "tl.abs({x}) + 0.5, tl.abs({y})", 400, 2000), ("hypot", "{x}, {y}", 8, 16), ("exp10", "{x} * 0.25", 12, 200), ("trunc", "{x}", 4, 0), ("rint", "{x}", 4, 0), ("round", "{x}", 4, 0),
           ("copysign", "{x}, {y}", 4, 0), ("fmod", "{x}, tl.abs({y}) + 0.5", 4, 0), ("fdim", "{x}, {y}", 8, 0)]
POINT = ["", "", "", ', sem="relaxed"', ', sem="acquire"', ', scope="cta"']


class Wide:

    def condition(self, names, extents):
        """A mask of a block, by its rows, its columns, both or neither; an argument, a constant or what is known of the block bounds them."""
        parts = []
        for name, extent, at in zip(names, extents, ("[:, None]", "[None, :]")):
            if self.chance(55):
                small = [s.name for s in self.scalars if s.dtype == "i32"] + [str(self.rng.randint(1, extent)), str(extent)]
                parts.append(f"({name} < {self.pick(small)}){at}")
        if len(parts) == 2 and self.chance(10):
            return f"({parts[0]}) & ({parts[1]})"
        return " & ".join(parts)

    def load_block(self, dtype, rows, columns, r, c, step=""):
        """Text of a value of [rows, columns] of exact small numbers, whose indices are the texts r and c; as memory has it or turned."""
        span = 4 if step else 1
        name, facts = self.input_buffer(dtype, rows * columns * span)
        if facts is None or (dtype in INTS and max(abs(facts["lo"]), abs(facts["hi"])) > 128):
            raise Unfit
        self.inputs.append((name, dtype, rows * columns * span, facts))
        turned = self.chance(25)
        shift = f" + {step} * {rows * columns}" if step else ""
        mask = self.condition([r, c], [rows, columns])
        more = f", mask={mask}, other=0" if mask else ""
        if turned and not mask:
            return f"tl.trans(tl.load({name}{shift} + {c}[:, None] * {rows} + {r}[None, :]))"
        if turned:
            return f"tl.load({name}{shift} + {c}[None, :] * {rows} + {r}[:, None]{more})"
        return f"tl.load({name}{shift} + {r}[:, None] * {columns} + {c}[None, :]{more})"

    def arange(self, size):
        own = [v for v in self.ranges if v.shape == (size, )]
        if own and self.chance(70):
            return own[0].name
        name = f"a{self.counter}"
        self.counter += 1
        self.emit(f"{name} = tl.arange(0, {size})")
        return name

    def make_product(self):
        """A product of two loaded blocks, perhaps summed over blocks of K in a loop."""
        dtype = self.pick(["fp32", "fp32", "fp32", "fp16", "fp16", "bf16", "bf16", "fp64", "i8", "i8", "fp8e4nv", "fp8e5"])
        m, n, k = (self.pick([16, 16, 32, 32, 64, 128]) for _ in range(3))
        if m * n * k > 1 << 17 or max(m * k, k * n, m * n) > 4096:
            raise Unfit
        rm, rn, rk = (self.arange(s) for s in (m, n, k))
        out = "i32" if dtype == "i8" else "fp64" if dtype == "fp64" else "fp32"
        precision = self.pick(["", ', input_precision="ieee"', ', input_precision="tf32"', ', input_precision="tf32x3"', ', input_precision="bf16x3"', ', input_precision="bf16x6"']) if dtype == "fp32" else ""
        steps = self.pick([1, 1, 1, 2, 3, 4])
        acc, step = self.name(), ""
        self.feature(f"product {dtype}{precision}" + (" in a loop" if steps > 1 else ""))
        if steps > 1:
            self.emit(f"{acc} = tl.zeros([{m}, {n}], {TL[out]})")
            step = f"k{self.counter}"
            self.counter += 1
            self.emit(f"for {step} in {self.pick(['range', 'tl.range', 'tl.static_range'])}({steps}):")
            self.indent += 1
        a, b = f"{acc}a", f"{acc}b"
        self.emit(f"{a} = {self.load_block(dtype, m, k, rm, rk, step)}")
        self.emit(f"{b} = {self.load_block(dtype, k, n, rk, rn, step)}")
        if steps > 1:
            self.emit(self.pick([f"{acc} = tl.dot({a}, {b}, {acc}{precision})", f"{acc} += tl.dot({a}, {b}{precision})"]))
            self.indent -= 1
        else:
            self.emit(f"{acc} = tl.dot({a}, {b}{precision})")
        if dtype == "i8":
            return self.integer(acc, (m, n), out, -(1 << 14) * k * steps, (1 << 14) * k * steps)
        return self.real(acc, (m, n), out, 4.0 * k * steps, 4, 0.0)

    def make_batched_product(self):
        """A product of [batch, M, K] and [batch, K, N]."""
        dtype, batch = self.pick(["fp32", "fp16", "bf16"]), self.pick([2, 4])
        m, n, k = 16, self.pick([16, 32]), self.pick([16, 32])
        texts = []
        for rows, columns in ((m, k), (k, n)):
            name, facts = self.input_buffer(dtype, batch * rows * columns)
            if facts is None:
                raise Unfit
            mask = f", mask=tl.arange(0, {rows})[None, :, None] < {self.rng.randint(1, rows)}, other=0" if self.chance(40) else ""
            index = f"tl.arange(0, {batch})[:, None, None] * {rows * columns} + tl.arange(0, {rows})[None, :, None] * {columns} + tl.arange(0, {columns})[None, None, :]"
            texts.append(f"tl.load({name} + {index}{mask})")
        self.feature(f"batched product {dtype}")
        return self.real(f"tl.dot({texts[0]}, {texts[1]})", (batch, m, n), "fp32", 4.0 * k, 4, 0.0)

    def make_scaled_product(self):
        """tl.dot_scaled of exact numbers: scales of 1/2, 1 and 2."""
        m, n, k = self.pick([16, 32]), self.pick([16, 32]), self.pick([32, 64])
        form = [self.pick(["e4m3", "e5m2", "e2m1", "bf16", "fp16"]) for _ in range(2)]
        if "fp16" in form and form[0] != form[1] or form[0][0] != "e" and form[1][0] != "e":
            raise Unfit
        values, scales, texts = [], [], []
        for f, rows, columns in ((form[0], m, k), (form[1], k, n)):
            left = not texts
            packed_rows, packed_columns = (rows, columns // 2) if f == "e2m1" and left else (rows // 2, columns) if f == "e2m1" else (rows, columns)
            dtype = {"e4m3": "fp8e4nv", "e5m2": "fp8e5", "e2m1": "u8"}.get(f, f)
            name = f"x{len([p for p in self.params if p[0][0] == 'x'])}"
            contents = f"bits,{self.rng.randrange(10**6)}" if f == "e2m1" else f"range,-8,8,4,{self.rng.randrange(10**6)}"
            self.params.append((name, "*" + dtype, f"{dtype}[{packed_rows * packed_columns}]={contents}"))
            v = self.name()
            self.emit(f"{v} = tl.load({name} + tl.arange(0, {packed_rows})[:, None] * {packed_columns} + tl.arange(0, {packed_columns})[None, :])")
            other = m if left else n
            scale = "None"
            if f[0] == "e" or self.chance(30):
                s = f"x{len([p for p in self.params if p[0][0] == 'x'])}"
                self.params.append((s, "*u8", f"u8[{other * k // 32}]=range,126,128,1,{self.rng.randrange(10**6)}"))
                scale = f"tl.load({s} + tl.arange(0, {other})[:, None] * {k // 32} + tl.arange(0, {k // 32})[None, :])"
            texts.append(v)
            values.append(12.0 if f == "e2m1" else 4.0)
            scales.append(scale)
        self.feature(f"dot_scaled {form[0]} {form[1]}")
        return self.real(f'tl.dot_scaled({texts[0]}, {scales[0]}, "{form[0]}", {texts[1]}, {scales[1]}, "{form[1]}")', (m, n), "fp32", values[0] * values[1] * k, 6, 0.0)

    def make_exchange(self):
        """Atomics each on a place of its own, whose answer is used; compare and swap among them."""
        dtype = self.pick(["i32", "i32", "i64", "u32", "fp32"])
        v = self.of(lambda v: v.shape != () and v.numel() <= 512 and (v.is_int if dtype in INTS else v.dtype in FLOATS and v.exact() and v.grain <= 2 and v.bound <= 64))
        op = self.pick(["cas", "cas", "xchg", "add", "max", "min", "and", "or", "xor"] if dtype != "fp32" else ["xchg", "add", "cas"])
        if dtype == "u32" and op == "cas":
            raise Unfit
        place, t = self.place(v.shape, dtype, 0.0), TL[dtype]
        self.feature(f"atomic_{op} {dtype} whose answer is used")
        self.stored += 1
        if op == "cas":
            text = f"tl.atomic_cas({place}, ({v.name} {'& 3' if v.is_int else '* 0'}).to({t}), {v.name}.to({t}){self.pick(POINT)})"
        else:
            text = f"tl.atomic_{op}({place}, {v.name}.to({t}){self.pick(POINT)})"
        return self.integer(text, v.shape, dtype, 0, 3) if dtype in INTS else self.real(text, v.shape, dtype, 3.0, 0, 0.0)

    def own_memory(self, dtype, size):
        """Text of the address of `size` elements of an output that no other program and no other turn of a loop uses, at a multiple of 16 bytes."""
        text, copies = "", 1
        for axis in range(2):
            if self.grid[axis] > 1:
                text += f" + tl.program_id({axis}) * {size * copies}"
                copies *= self.grid[axis]
        for name, trips in self.loops:
            text += f" + {name} * {size * copies}"
            copies *= trips
        buffer, first = self.output(dtype + " block", size * copies, 0.0)
        return f"{buffer} + {first}{text}"

    def make_block_store(self):
        """A tile stored through a descriptor or a block pointer, partly outside of its tensor, and perhaps loaded again."""
        v = self.of(lambda v: len(v.shape) == 2 and v.dtype in ("fp32", "fp16", "bf16", "i32", "i16") and v.exact() and v.shape[1] * (4 if v.dtype in ("fp32", "i32") else 2) >= 16)
        rows, columns = self.pick([v.shape[0], v.shape[0] + 3, max(1, v.shape[0] - 3)]), self.pick([v.shape[1], v.shape[1] + 16, max(16, v.shape[1] - 16)])
        d, shape = self.name(), f"[{v.shape[0]}, {v.shape[1]}]"
        first = self.pick(["0", "1", "2"])
        column = self.pick(["0", "8"])
        self.stored += 1
        if self.chance(60):
            self.emit(f"{d} = tl.make_tensor_descriptor({self.own_memory(v.dtype, rows * columns)}, shape=[{rows}, {columns}], strides=[{columns}, 1], block_shape={shape})")
            if self.chance(25) and v.dtype in ("i32", "fp32") and v.bound <= 64:
                self.feature(f"descriptor atomic {v.dtype}")
                self.emit(f"{d}.atomic_{'add' if v.is_float else self.pick(['add', 'and', 'or', 'xor', 'max', 'min'])}([{first}, {column}], {v.name})")
                return
            self.feature(f"descriptor store {v.dtype}")
            self.emit(f"{d}.store([{first}, {column}], {v.name})")
            if self.chance(50):
                self.feature("descriptor store, then load")
                return self.like(v, f"{d}.load([{first}, {column}])", v.shape) if not v.is_int else self.integer(f"{d}.load([{first}, {column}])", v.shape, v.dtype, min(v.lo, 0), max(v.hi, 3))
            return
        self.feature(f"block pointer store {v.dtype}")
        self.emit(f"{d} = tl.make_block_ptr({self.own_memory(v.dtype, rows * columns)}, [{rows}, {columns}], [{columns}, 1], [{first}, {column}], {shape}, [1, 0])")
        self.emit(f"tl.store({d}, {v.name}, boundary_check=(0, 1))")
        if self.chance(30) and v.is_int:
            return self.integer(f'tl.load(tl.advance({d}, [{self.pick(["0", "1", "-1"])}, 0]), boundary_check=(0, 1), padding_option="zero")', v.shape, v.dtype, min(v.lo, 0), max(v.hi, 3))

    def make_library(self):
        """A function of the device library."""
        a = self.of(lambda v: v.dtype in ("fp32", "fp64") and v.shape != () and v.bound <= 4 and v.exact())
        b = self.of(lambda v: v.dtype == a.dtype and v.shape == a.shape and v.bound <= 4 and v.exact())
        name, arguments, bound, units = self.pick(LIBRARY)
        self.library = True
        self.feature("libdevice " + name)
        eps = 2.0**-23 if a.dtype == "fp32" else 2.0**-52
        text = f"libdevice.{name}({arguments.format(x=a.name, y=b.name)})"
        if units == 0:
            return self.real(text, a.shape, a.dtype, bound, max(a.grain, b.grain, 1), 0.0)
        return self.real(text, a.shape, a.dtype, bound, 60, max(4 * units * eps, 1e-6 if a.dtype == "fp32" else 0))
