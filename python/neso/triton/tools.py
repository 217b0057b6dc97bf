"""triton.tools.tensor_descriptor without Triton."""

from dataclasses import dataclass
from typing import Any, List


@dataclass
class TensorDescriptor:
    """A tensor for kernels that load and store blocks of it."""
    base: Any
    shape: List[int]
    strides: List[int]
    block_shape: List[int]
    padding: str = "zero"
    round_f32_to_tf32: bool = False

    def __post_init__(self):
        if not len(self.shape) == len(self.strides) == len(self.block_shape) > 0 or self.strides[-1] != 1:
            raise ValueError("a descriptor has as many sizes, strides and block sizes as dimensions, and its last dimension is contiguous")
        if self.padding != "zero" or self.round_f32_to_tf32:
            raise ValueError("a descriptor of the host that pads with NaN or rounds to TF32 cannot be launched; make it in the kernel")

    @staticmethod
    def from_tensor(tensor, block_shape, padding="zero", round_f32_to_tf32=False):
        strides = tensor.stride() if callable(getattr(tensor, "stride", None)) else [s // tensor.itemsize for s in tensor.strides]
        return TensorDescriptor(tensor, list(tensor.shape), list(strides), list(block_shape), padding, round_f32_to_tf32)
