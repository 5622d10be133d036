"""Primitives whose parameters hold sizes, on blocks: the sizes of what is cut come from the block."""

from __future__ import annotations

from typing import Any

from combinators.frozen import dataclass
from tapestry_jax.lifting.kernels.primitives import Params, run


@dataclass(frozen=True)
class Resized:
    """A primitive one of whose parameters lists a size for every axis of an operand.

    Attributes:
      primitive: its name.
      params: its parameters.
      parameter: the one with sizes.
      operand: whose axes they are of.
      cut: the axes that may be cut: of these the block's size is taken.
    """

    primitive: str
    params: Params
    parameter: str
    operand: int
    cut: tuple[int, ...]

    def __call__(self, *blocks: Any) -> Any:
        """Its result, or the tuple of its results."""
        params = dict(self.params)
        shape = blocks[self.operand].shape
        sizes = [shape[axis] if axis in self.cut else size for axis, size in enumerate(params[self.parameter])]
        params[self.parameter] = tuple(sizes)
        out = run(self.primitive, tuple(sorted(params.items())), blocks)
        return out[0] if len(out) == 1 else tuple(out)
