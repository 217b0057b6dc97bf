"""In-place changes of the shape of an argument, x.transpose_(0, 1): the run changes the elements, where they lie; afterwards the caller's tensor is given the
shape that the exported program leaves it with. The package says which calls do that, under "input.NAME.reshaped"."""

import json

from ._errors import InputError


class _Reshape:
    def __init__(self, calls):
        self.calls = calls  # (number of the input, its name, [["transpose_", 0, 1], ...])

    def __call__(self, values):
        """Before a run on these flat inputs. Gives what is called behind it."""
        import sys
        torch = sys.modules.get("torch")
        taken = [(values[i], calls) for i, _, calls in self.calls if i < len(values)]
        for (i, name, calls), (tensor, _) in zip(self.calls, taken):
            if torch is None or not isinstance(tensor, torch.Tensor):
                raise InputError(f"the model gives its argument '{name}' another shape ({calls[0][0]}), which a {type(tensor).__name__} cannot take: pass a torch.Tensor",
                                 "E0821", "INVALID_ARGUMENT")

        def after():
            with torch.no_grad():
                for tensor, calls in taken:
                    for method, *numbers in calls:
                        getattr(tensor, method)(*numbers)
        return after


def of(model):
    """None: the model leaves the shapes of its arguments alone."""
    notes = model.info["metadata"]
    calls = [(i, v.name, json.loads(notes[key])) for i, v in enumerate(model.inputs) if (key := f"input.{v.name}.reshaped") in notes]
    return _Reshape(calls) if calls else None
