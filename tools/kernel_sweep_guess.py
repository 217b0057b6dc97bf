"""Guesses from its syntax how a Triton kernel is called: which parameters are pointers and to what, which are numbers, and which values
its constexprs may have. Used by kernel_sweep.py; nothing is imported or run here.

Parameters that reach the address of a load or store are pointers. A pointer whose loaded values reach an address, a loop's bound or a shift
points to integers. A constexpr has a kind by how it is used: a size of a block, a flag, a string among those that it is compared with,
a dtype. What the syntax leaves open is decided by names.
"""
import ast
import random
import re

LOADS = {"load", "store", "atomic_add", "atomic_max", "atomic_min", "atomic_cas", "atomic_xchg", "atomic_and", "atomic_or", "atomic_xor", "make_block_ptr",
         "make_tensor_descriptor", "_experimental_make_tensor_descriptor"}
THROUGH = {"multiple_of", "max_contiguous", "advance", "broadcast_to", "expand_dims", "cast", "max_constancy", "where"}
FLOAT_NAME = re.compile(r"(^|_)(eps|epsilon|alpha|beta1?|beta2|gamma|scale|scaling|softcap|soft_cap|cap|p|lr|momentum|threshold|tau|temperature|factor|drop_?p|dropout|value|slope|"
                        r"lambda|weight_decay|logit|prob|min_val|max_val|sm|rms|limit|clamp|ratio|decay|bias_correction|smoothing|qmax|qmin|fp8_max|fp8_min)(_\w*)?$|eps$|scale$", re.I)
INT_NAME = re.compile(r"(idx|index|indices|ids?$|offset|offs|lens?$|length|seqlen|cu_|cumul|table|slot|positions?$|perm|start|sorted|expert|counts?$|num_|indptr|"
                      r"block_map|req_|loc$|labels?$|target|rank|map$|block_ids)", re.I)
STAT_NAME = re.compile(r"(scale|lse|mean|rstd|max|sum|absmax|logits|weights?$|delta|logsum|norm|loss|stat)", re.I)
FLAG_NAME = re.compile(r"(IS|HAS|USE|DO|ENABLE|APPLY|WITH|NEED|STORE|RETURN|SAVE|ALLOW|EVEN|USING|CAUSAL|REVERSE|INPLACE|TRANS)(_|$)", re.I)
DTYPE_NAME = re.compile(r"dtype|_type$|_ty$|^ACC_TYPE|^acc_t|TYPE$", re.I)


def is_jit(decorator):
    text = ast.unparse(decorator)
    return bool(re.match(r"(\w+\.)*(jit|triton_jit|libentry_jit)(\(|$)", text)) and not re.match(r"(cute|cutlass|gluon|torch|numba|nb|jax|ti|tilelang|T)\.", text)


def called(node):
    """The last word of what a call calls."""
    f = node.func
    return f.attr if isinstance(f, ast.Attribute) else f.id if isinstance(f, ast.Name) else ""


class Use:
    """What one function does with its parameters."""

    def __init__(self, function, index, depth=0):
        self.function, self.index, self.depth = function, index, depth
        a = function.args
        self.names = [p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs)]
        self.pointers, self.ints, self.int_pointers, self.descriptors, self.maybe_none = {}, set(), set(), {}, set()
        self.bools, self.strings, self.shapes, self.counts, self.dtypes, self.functions = set(), {}, set(), set(), set(), set()
        self.addresses = set()  # pointers to pointers
        self.dots = False
        self.bases, self.loaded, self.sources = {}, {}, {}
        for _ in range(2):
            for statement in function.body:
                self.statement(statement)

    # What a value may be the address of: the parameters at the left of its sums.
    def base(self, e):
        if isinstance(e, ast.Name):
            return self.bases.get(e.id) or ({e.id} if e.id in self.names else set())
        if isinstance(e, ast.BinOp) and isinstance(e.op, (ast.Add, ast.Sub)):
            left, right = self.base(e.left), self.base(e.right)
            if left and right and isinstance(e.op, ast.Add):
                # Of two candidates the one that is already known, or that is called like a pointer.
                for side in (left, right):
                    if any(re.search(r"ptr|^[A-Z]\w{0,3}$", n, re.I) and not re.search(r"stride|^[MNK]$", n) for n in side):
                        return side
            return left or right
        if isinstance(e, ast.Subscript):
            return self.base(e.value)
        if isinstance(e, ast.IfExp):
            return self.base(e.body) | self.base(e.orelse)
        if isinstance(e, ast.Call):
            if isinstance(e.func, ast.Attribute) and e.func.attr in ("to", "cast", "reshape", "broadcast_to", "trans"):
                return self.base(e.func.value)
            if called(e) in THROUGH and e.args:
                return self.base(e.args[0])
        return set()

    # The pointers whose loaded values are in a value; comparisons end it.
    def taint(self, e):
        if isinstance(e, ast.Name):
            return self.loaded.get(e.id, set())
        if isinstance(e, (ast.Compare, ast.Constant)):
            return set()
        if isinstance(e, ast.Call):
            if called(e) in ("load", "atomic_add", "atomic_xchg", "atomic_cas") and e.args:
                return {n for n in self.base(e.args[0]) if n in self.names}
            if called(e) in ("exp", "log", "sqrt", "dot", "sum", "sigmoid", "rsqrt", "where", "max", "softmax", "exp2", "tanh", "argmax", "gather"):
                return set()
        out = set()
        for child in ast.iter_child_nodes(e):
            if isinstance(child, ast.expr):
                out |= self.taint(child)
        return out

    def address(self, e):
        base = self.base(e)
        for n in base:
            if n in self.names:
                self.pointers.setdefault(n, 0)
        for child in ast.walk(e):
            if isinstance(child, ast.Name):
                self.int_pointers |= self.loaded.get(child.id, set())
                if child.id in self.names and child.id not in base:
                    self.ints.add(child.id)
            elif isinstance(child, ast.Call):
                self.int_pointers |= self.taint(child)

    def whole(self, e):
        self.int_pointers |= self.taint(e)
        for child in ast.walk(e):
            if isinstance(child, ast.Name):
                self.ints |= {child.id} & set(self.names) or self.sources.get(child.id, set())

    def statement(self, st):
        for e in ast.walk(st):
            if isinstance(e, ast.Call):
                self.call(e)
            elif isinstance(e, ast.Compare):
                self.compare(e)
            elif isinstance(e, (ast.If, ast.IfExp)):
                self.condition(e.test)
            elif isinstance(e, ast.Assert):
                self.condition(e.test)
            elif isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.Not):
                self.condition(e.operand)
            elif isinstance(e, ast.BinOp) and isinstance(e.op, (ast.LShift, ast.RShift, ast.BitAnd, ast.FloorDiv, ast.Mod, ast.BitOr)):
                self.int_pointers |= self.taint(e.left)
                if isinstance(e.op, (ast.FloorDiv, ast.Mod)):
                    self.whole(e)
            elif isinstance(e, ast.Attribute) and isinstance(e.value, ast.Attribute) and e.value.attr == "dtype" and e.attr == "element_ty":
                for n in self.base(e.value.value):
                    self.pointers.setdefault(n, 0)
            elif isinstance(e, ast.Attribute) and e.attr in ("block_shape", "block_type") and isinstance(e.value, ast.Name) and e.value.id in self.names:
                self.descriptors.setdefault(e.value.id, 2)
            elif isinstance(e, ast.For):
                self.loop(e)
            elif isinstance(e, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
                self.assign(e)

    def loop(self, e):
        it = e.iter
        if isinstance(it, ast.Call) and called(it) in ("range", "static_range"):
            for a in it.args:
                self.whole(a)
                if called(it) == "static_range" and isinstance(a, ast.Name):
                    self.counts.add(a.id)

    def assign(self, e):
        if e.value is None:
            return
        targets = e.targets if isinstance(e, ast.Assign) else [e.target]
        for t in targets:
            if isinstance(t, ast.Tuple) and isinstance(e.value, ast.Tuple) and len(t.elts) == len(e.value.elts):
                pairs = list(zip(t.elts, e.value.elts))
            else:
                pairs = [(t, e.value)]
            for name, value in pairs:
                if not isinstance(name, ast.Name):
                    continue
                if not isinstance(e, ast.AugAssign):
                    if isinstance(value, ast.Call) and called(value) in ("make_block_ptr", "make_tensor_descriptor") and (value.args or value.keywords):
                        first = value.args[0] if value.args else value.keywords[0].value
                        self.bases[name.id] = self.base(first)
                    elif base := self.base(value):
                        self.bases[name.id] = base
                # What a whole number was computed from is whole, too.
                if isinstance(value, (ast.BinOp, ast.Name)) or isinstance(value, ast.Call) and called(value) in ("min", "max", "minimum", "maximum", "cdiv"):
                    parts = [c.id for c in ast.walk(value) if isinstance(c, ast.Name)]
                    self.sources[name.id] = {p for c in parts for p in ({c} & set(self.names) or self.sources.get(c, set()))}
                if taint := self.taint(value):
                    self.loaded[name.id] = self.loaded.get(name.id, set()) | taint

    def condition(self, test):
        parts = test.values if isinstance(test, ast.BoolOp) else [test]
        for p in parts:
            if isinstance(p, ast.UnaryOp):
                p = p.operand
            if isinstance(p, ast.Name) and p.id in self.names:
                self.bools.add(p.id)
            elif isinstance(p, ast.BoolOp):
                self.condition(p)

    def compare(self, e):
        sides = [e.left, *e.comparators]
        for s in sides:
            if isinstance(s, ast.Name) and s.id in self.names:
                for o in sides:
                    if isinstance(o, ast.Constant) and isinstance(o.value, str):
                        self.strings.setdefault(s.id, []).append(o.value)
                    elif isinstance(o, ast.Constant) and o.value is None:
                        self.maybe_none.add(s.id)
                    elif isinstance(o, ast.Attribute) and re.match(r"(tl\.)?(float|bfloat|int|uint)\d", ast.unparse(o)):
                        self.dtypes.add(s.id)
                    elif isinstance(o, (ast.Tuple, ast.List, ast.Set)):
                        self.strings.setdefault(s.id, []).extend(c.value for c in o.elts if isinstance(c, ast.Constant) and isinstance(c.value, str))
        if any(isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) for op in e.ops):
            text = ast.unparse(e)
            if "arange" in text or re.search(r"\b(offs?|idx|cols?|rows?|pid|off)\w*", text):
                self.whole(e)

    def call(self, e):
        name = called(e)
        if name in LOADS and e.args and not (isinstance(e.func, ast.Attribute) and isinstance(e.func.value, ast.Name) and e.func.value.id in self.names):
            self.address(e.args[0])
        elif name in ("make_block_ptr", "make_tensor_descriptor"):
            for k in e.keywords:
                if k.arg == "base":
                    self.address(k.value)
        if name in ("load", "store", "gather", "scatter") and isinstance(e.func, ast.Attribute) and isinstance(e.func.value, ast.Name) and e.func.value.id in self.names:
            rank = len(e.args[0].elts) if e.args and isinstance(e.args[0], (ast.List, ast.Tuple)) else 2
            self.descriptors[e.func.value.id] = rank
        if name == "load_tensor_descriptor" or name == "store_tensor_descriptor":
            if e.args and isinstance(e.args[0], ast.Name) and e.args[0].id in self.names:
                self.descriptors[e.args[0].id] = len(e.args[1].elts) if len(e.args) > 1 and isinstance(e.args[1], (ast.List, ast.Tuple)) else 2
        if name in ("dot", "dot_scaled"):
            self.dots = True
        if name in ("arange", "zeros", "full", "make_block_ptr", "cdiv", "reshape", "zeros_like", "view", "broadcast_to", "make_tensor_descriptor"):
            for a in [*e.args, *[k.value for k in e.keywords]]:
                for c in ast.walk(a):
                    if isinstance(c, ast.Name) and c.id in self.names:
                        self.shapes.add(c.id)
        if name in ("to", "zeros", "full", "cast"):
            last = e.args[-1] if e.args else None
            for a in [last, *[k.value for k in e.keywords if k.arg == "dtype"]]:
                if isinstance(a, ast.Name) and a.id in self.names and (name == "to" or DTYPE_NAME.search(a.id)):
                    self.dtypes.add(a.id)
        if name in ("to", "cast") and any("pointer_type" in ast.unparse(a) for a in e.args):
            self.addresses |= self.taint(e.func.value if name == "to" else e.args[0])
        if isinstance(e.func, ast.Name) and e.func.id in self.names:
            self.functions.add(e.func.id)
        target = self.index.get(name) if isinstance(e.func, ast.Name) else None
        if target is not None and target is not self.function and self.depth < 6:
            self.through(e, use_of(target, self.index, self.depth + 1))

    def through(self, e, use):
        """What a helper does with its parameters it does with ours."""
        pairs = list(zip(use.names, e.args)) + [(k.arg, k.value) for k in e.keywords if k.arg in use.names]
        self.dots |= use.dots
        for parameter, value in pairs:
            if isinstance(value, ast.Starred):
                return
            if parameter in use.pointers:
                self.address(value)
                if parameter in use.addresses:
                    self.addresses |= {n for n in self.base(value) if n in self.names}
                if parameter in use.int_pointers:
                    self.int_pointers |= {n for n in self.base(value) if n in self.names}
            if isinstance(value, ast.Name) and value.id in self.names:
                n = value.id
                for mine, theirs in ((self.bools, use.bools), (self.shapes, use.shapes), (self.counts, use.counts), (self.dtypes, use.dtypes),
                                     (self.maybe_none, use.maybe_none), (self.ints, use.ints), (self.functions, use.functions)):
                    if parameter in theirs:
                        mine.add(n)
                if parameter in use.strings:
                    self.strings.setdefault(n, []).extend(use.strings[parameter])
                if parameter in use.descriptors:
                    self.descriptors[n] = use.descriptors[parameter]
            elif parameter in use.ints:
                self.int_pointers |= self.taint(value)


USES = {}


def use_of(function, index, depth=0):
    key = id(function)
    if key not in USES:
        USES[key] = None  # a helper that calls itself
        USES[key] = (function, Use(function, index, depth))
    return USES[key][1] if USES[key] else Use(ast.parse("def f(): pass").body[0], {}, 9)


def is_constexpr(parameter):
    return parameter.annotation is not None and "constexpr" in ast.unparse(parameter.annotation)


def guess(function, index, known, tries):
    """Calls of `function` to try in turn: lists of (name, type, value) with type "constexpr" and the value's text, or a signature's type and
    None. `known` are values of constexprs (those of autotune's first config); `tries` bounds their number."""
    use = use_of(function, index)
    a = function.args
    parameters = [*a.posonlyargs, *a.args, *a.kwonlyargs]
    defaults = dict(zip([p.arg for p in [*a.posonlyargs, *a.args]][::-1], a.defaults[::-1]))
    defaults.update({p.arg: d for p, d in zip(a.kwonlyargs, a.kw_defaults) if d is not None})
    plans = [Plan(real, block, flag, none) for real in (["bf16", "fp16", "fp32"] if use.dots else ["fp32", "bf16", "fp16"])
             for block, flag, none in ((32, False, False), (64, True, False), (32, False, True), (64, True, True), (16, False, False), (128, False, True))]
    plans = plans[:9] + plans[12:14] + [Plan("i32", 32, False, False), Plan("i8", 32, False, False), Plan("u8", 32, True, False), Plan("i64", 32, True, False), Plan("fp8e4nv", 32, False, False)]
    draw = random.Random(function.name)
    plans += [Drawn(draw, "bf16" if use.dots else "fp32") for _ in range(max(0, tries - len(plans)))]
    out, seen = [], set()
    for plan in plans:
        row = [(p.arg, *typed(use, p, defaults.get(p.arg), known, plan)) for p in parameters]
        key = repr(row)
        if key not in seen:
            seen.add(key)
            out.append(row)
    return out[:tries]


class Plan:
    """How what is open is decided: the element of pointers to numbers, sizes of blocks, flags, and whether what may be None is."""

    def __init__(self, real, block, flag, none):
        self.real, self.size, self.flag, self.none = real, block, flag, none

    def element(self):
        return self.real

    def block(self):
        return self.size

    def is_set(self):
        return self.flag

    def is_none(self):
        return self.none

    def number(self, kind):
        return kind


class Drawn(Plan):
    """Each alone, by lot."""

    def __init__(self, draw, usual):
        super().__init__(usual, 32, False, False)
        self.draw, self.odd = draw, draw.random() < 0.5

    def element(self):
        return self.draw.choice([self.real, self.real, "fp32", "bf16", "i32", "i8"]) if self.odd else self.real

    def block(self):
        return self.draw.choice([16, 32, 64, 128])

    def is_set(self):
        return self.draw.random() < 0.5

    is_none = is_set

    def number(self, kind):
        return self.draw.choice([kind, kind, kind, "fp32" if kind == "i32" else "i32"]) if self.odd else kind


def typed(use, parameter, default, known, plan):
    """(type, text of a constexpr's value or None) of a parameter."""
    n = parameter.arg
    annotation = ast.unparse(parameter.annotation) if parameter.annotation is not None else ""
    if is_constexpr(parameter) or n in known:
        return "constexpr", known.get(n) or constant(use, n, default, plan)
    if m := re.search(r"\b(u?int|float|bfloat)(\d+)\b", annotation):
        return {"uint": "u", "int": "i", "float": "fp", "bfloat": "bf"}[m[1]] + m[2], None
    if n in use.descriptors and n not in use.pointers:
        rank = use.descriptors[n]
        return f"tensordesc<{plan.element()}[{','.join(['1'] * (rank - 2) + [str(plan.block())] * min(rank, 2))}]>", None
    if n in use.functions:
        return "constexpr", "None"
    nothing = n in use.maybe_none or isinstance(default, ast.Constant) and default.value is None
    if n in use.pointers or n.lower().endswith(("_ptr", "ptrs")):
        return ("constexpr", "None") if nothing and plan.is_none() else ("*" + element(use, n, plan.element()), None)
    if nothing and (plan.is_none() or default is not None):
        return "constexpr", "None"
    if isinstance(default, ast.Constant) and isinstance(default.value, bool) or n in use.bools and n not in use.ints:
        return "u1", None
    if isinstance(default, ast.Constant) and isinstance(default.value, float):
        return "fp32", None
    if n not in use.ints and FLOAT_NAME.search(n) and not re.search(r"stride|^n_|num|size|len", n):
        return plan.number("fp32"), None
    return plan.number("i32"), None


def element(use, n, real):
    if n in use.addresses:
        return "i64"
    if n in use.int_pointers or INT_NAME.search(n):
        return "i8" if re.search(r"mask|packed|int4|quant", n, re.I) and n in use.int_pointers else "i64" if real == "i64" else "i32"
    if re.search(r"mask|flag", n, re.I):
        return "i1"
    if real in ("bf16", "fp16", "fp8e4nv", "i8") and STAT_NAME.search(n):
        return "fp32"
    return real


def constant(use, n, default, plan):
    """The text of a constexpr's value."""
    if default is not None and not (isinstance(default, ast.Constant) and isinstance(default.value, bool) and plan.is_set()):
        return ast.unparse(default)
    if n in use.strings:
        return repr(use.strings[n][-1 if plan.is_set() else 0])
    if n in use.functions:
        return "None"
    if (n in use.dtypes or DTYPE_NAME.search(n)) and n not in use.shapes:
        return {"fp32": "tl.float32", "bf16": "tl.bfloat16", "fp16": "tl.float16"}.get(plan.element(), "tl.float32")
    if n in use.shapes and not re.match(r"(IS|HAS|USE)_", n):
        return shape(n, plan)
    if n in use.bools or FLAG_NAME.match(n):
        return str(plan.is_set())
    if n in use.maybe_none:
        return shape(n, plan) if plan.is_set() else "None"
    if n in use.counts:
        return "2"
    if FLOAT_NAME.search(n) and not n.isupper() and n not in use.ints and not re.search(r"dim|size|mapping|block|num|count", n):
        return "0.5"
    return shape(n, plan)


def shape(n, plan):
    if re.search(r"GROUP_(SIZE_)?M|num_(warps|stages|sms)|NUM_STAGES|SPLIT|UNROLL|NUM_SMS|TOPK|top_?k|kernel_size|KERNEL|width|^N_?ROUNDS", n):
        return {"num_warps": "4", "num_stages": "2"}.get(n, "4" if "GROUP" in n or "SMS" in n else "2")
    if re.search(r"(^|_)(stride|pad|padding|dilation|groups?)(_|$)", n, re.I):
        return "1"
    return str(plan.block())
