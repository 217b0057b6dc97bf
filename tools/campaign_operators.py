"""Calls of any operator of ATen that Neso lowers, with arguments drawn by its schema, for the random modules of tools/campaign. Needs torch."""
import re

import torch

import campaign_coverage

# Random numbers, memory that nobody wrote, what has no one right answer (signs of eigenvectors, which of equal elements), what raises by value, degrees that are a rounded number
# without its fraction, the bits of a number that is rounded, views that promise that nobody writes (unsafe_split).
LEFT_OUT = re.compile(r"rand|dropout|bernoulli|poisson\.|binomial|_standard_gamma|_sample_dirichlet|normal|uniform|exponential|cauchy|geometric|multinomial|rrelu|empty|^_?linalg_|^_lu|svd|^qr|geqrf|ormqr|orgqr|lu_|cholesky|inverse|"
                      r"det\.|slogdet|as_strided|resize|pin_memory|requires_grad|_backward|_forward|mode\.|median|kthvalue|argsort|fractional|hash_tensor|to\.|sym_|rnn|gru|lstm|batch_norm|"
                      r"_flash_|_efficient_|_histogramdd|nonzero|is_nonzero|hist|^view(_copy)?\.dtype|embedding_renorm|triangular_solve|segment_reduce|unpool|poisson_nll|multi.*margin|stft|nll|cross_entropy|one_hot|ctc|put\.|unsafe_|polynomial_\w+\.(default|x_scalar)")
# Of several results only the first: the others may choose among equal elements.
ONLY_FIRST = re.compile(r"^(sort|topk|max|min|cummax|cummin|adaptive_max_pool|max_pool)")


def overloads():
    """The overloads that have a lowering here, and of which calls can be drawn."""
    out = []
    for name in sorted(campaign_coverage.expected("operators of modules")):
        if LEFT_OUT.search(name):
            continue
        packet, overload = name.rsplit(".", 1)
        try:
            found = getattr(getattr(torch.ops.aten, packet), overload)
        except AttributeError:
            continue
        if not found._schema.is_mutable and any("Tensor" in str(a.type) for a in found._schema.arguments):
            out.append((name, found._schema))
    return out


def sorted_first(name, number, word):
    """Binary search over what is not sorted has no one answer: which halves it visits is the implementation's own affair."""
    if name.startswith("searchsorted"):
        return f"{word}.sort(-1)[0]" if number == 0 else "sorter=None" if word.startswith("sorter=") else word
    if name.startswith("bucketize") and number == 1:
        return f"{word}.reshape(-1).sort()[0]"
    return word


class Operators:

    def __init__(self, rng):
        self.rng = rng
        if not hasattr(Operators, "table"):
            Operators.table = overloads()

    def argument(self, kind, tensors, rank):
        """Text of an argument of a schema's type, or None where none is drawn."""
        r = self.rng
        if kind == "Tensor":
            return r.choice(tensors)
        if kind.startswith("Optional["):
            return "None" if r.randrange(10) < 6 else self.argument(kind[9:-1], tensors, rank)
        if kind == "List[Tensor]":
            return f"[{', '.join(r.choice(tensors) for _ in range(r.randrange(1, 4)))}]"
        if kind == "int":
            return str(r.choice([0, 1, -1, r.randrange(-rank, rank), 2, 3]))
        if kind == "List[int]":
            return str([r.choice([0, 1, 2, -1, r.randrange(rank)]) for _ in range(r.choice([1, 1, 2, 2, 3]))])
        if kind == "bool":
            return str(bool(r.randrange(2)))
        if kind == "float":
            return r.choice(["0.5", "1.0", "0.25", "1e-5"])
        if kind == "number":
            return r.choice(["0", "1", "2", "0.5", "-1", "1.5", "-0.25"])
        return None

    def call(self, values):
        """Text of a call over these values (name -> tensor); eager has to say whether it is one."""
        r = self.rng
        name, schema = r.choice(self.table)
        tensors = list(values)[-8:] + list(values)
        first = r.choice(tensors)
        rank, words = max(1, values[first].dim()), []
        for number, a in enumerate(schema.arguments):
            kind = str(a.type)
            if a.has_default_value() and (r.randrange(10) < 6 or a.name in ("dtype", "layout", "device", "pin_memory", "memory_format", "generator", "out_dtype")):
                continue
            text = first if kind == "Tensor" and not words else self.argument(kind, tensors, rank)
            if text is None:
                return None
            # What is dropped is drawn, the values are not unique, and what is not sorted stands in no order that anybody promises.
            text = {"dropout_p": "0.0", "assume_unique": "False", "sorted": "True"}.get(a.name, text)
            words.append(f"{a.name}={text}" if a.kwarg_only or number != len(words) else text)
        words = [sorted_first(name, number, word) for number, word in enumerate(words)]
        text = f"torch.ops.aten.{name}({', '.join(words)})"
        if len(schema.returns) > 1 or str(schema.returns[0].type) != "Tensor":
            text += "[0]" if ONLY_FIRST.search(name) or r.randrange(2) else f"[{r.randrange(max(1, len(schema.returns)))}]"
        return text
