"""A `dot_general` among the steps, whose axes can be told from those of its result and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from jax.lax import DotAlgorithmPreset

from tapestry_jax.lifting.kernels.products import Products
from tapestry_jax.lifting.values import LeafStep, Step, Values

_OF_HALVES = {
    "bfloat16": DotAlgorithmPreset.BF16_BF16_F32,
    "float16": DotAlgorithmPreset.F16_F16_F32,
}
"""Operands as they are and sums in float32, as our kernels have them: `jax.nn.dot_product_attention` asks for that."""


def is_product(step: Step | None) -> bool:
    """Whether a step is a `dot_general`."""
    kernel = step.operation.kernel if isinstance(step, LeafStep) else None
    return isinstance(kernel, Products) and kernel.primitive == "dot_general"


class Product:
    """A `dot_general` whose axes are told.

    Args:
      step: the product.
      values: the types of all values.

    Attributes:
      folded: the axes of both operands that are contracted.
      batch: those that both share.
      shapes: of the operands.
      result: the value.
      is_plain: whether it is computed with the digits that attention is computed with.
    """

    def __init__(self, step: Any, values: Values) -> None:
        self.step = step
        params = dict(step.operation.kernel.params)
        folded, batch = params["dimension_numbers"]
        self.folded = (_listed(folded[0]), _listed(folded[1]))
        self.batch = (_listed(batch[0]), _listed(batch[1]))
        left, right = (values.dtypes[value].name for value in step.operands)
        self.is_plain = params.get("precision") in (None, _OF_HALVES.get(left) if left == right else None)
        self.shapes = [values.shapes[value] for value in step.operands]
        self.result: int = step.results[0]

    def free(self, side: int) -> list[int]:
        """The axes of an operand that only it has."""
        taken = {*self.folded[side], *self.batch[side]}
        return [axis for axis in range(len(self.shapes[side])) if axis not in taken]

    def of_result(self, operands: Sequence[Sequence[Any]]) -> list[Any]:
        """What the axes of the result are, from what those of the operands are."""
        shared = [operands[0][axis] for axis in self.batch[0]]
        return shared + [operands[side][axis] for side in (0, 1) for axis in self.free(side)]

    def of_operand(self, side: int, axes: Sequence[Any], folded: Sequence[Any]) -> list[Any]:
        """What the axes of an operand are, from what those of the result and the contracted ones are."""
        found: list[Any] = [None] * len(self.shapes[side])
        start = len(self.batch[0]) + (len(self.free(0)) if side else 0)
        for axis, own in zip(self.batch[side], axes, strict=False):
            found[axis] = own
        for axis, own in zip(self.free(side), axes[start:], strict=False):
            found[axis] = own
        for axis, own in zip(self.folded[side], folded, strict=True):
            found[axis] = own
        return found


def _listed(axes: Iterable[Any]) -> list[int]:
    return [int(axis) for axis in axes]
