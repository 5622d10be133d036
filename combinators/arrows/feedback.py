"""A part repeated along a sequence, with a state fed back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from combinators.arguments import read_dimension
from combinators.arrows.compose import as_operands
from combinators.arrows.part import Part
from combinators.arrows.repeated import record_loop, sliced_axis
from combinators.errors import CompositionError, GraphError, message
from combinators.recording.value import Value


class Feedback(Part):
    """`(x, state) -> (y, state)` along a dimension: `(xs, state) -> (ys, final state)`."""

    def __init__(self, step: Part, over: str) -> None:
        self._step, self._over = step, read_dimension(over, "what feedback goes along")
        self.name = f"{step.name}.feedback"

    @property
    def arity(self) -> int:
        """The sequence and the first state."""
        return 2

    def parts(self) -> Sequence[Part]:
        """The step."""
        return (self._step,)

    def apply(self, *values: Any) -> Any:
        """Run along the sequence."""
        if len(values) != 2:
            raise CompositionError(
                message(
                    f"`{self.name}` takes a sequence and a state, got {len(values)} operands",
                    remedy="Put several sequences, or several states, into one pytree.",
                )
            )
        sequence, state = values
        leaves, tree = jax.tree.flatten((sequence,))
        length = _length(leaves, self._over, self.name)
        stacked = [(leaf, sliced_axis(leaf, self._over, length, self.name)) for leaf in leaves]

        def turn(carry: Any, slices: Any) -> tuple[Any, Any]:
            result = as_operands(self._step.apply(slices, carry))
            if len(result) != 2:
                raise CompositionError(
                    message(
                        f"`{self.name}` feeds the second result of its step back",
                        f"the step gives {len(result)} result{'s' * (len(result) != 1)}",
                        remedy="Return the output and the next state.",
                    )
                )
            return result[1], result[0]

        carry, outputs = record_loop(self, turn, state, stacked, length=length, over=self._over, stacked_tree=tree)
        return outputs, carry


def _length(leaves: Sequence[Value], over: str, where: str) -> int:
    for leaf in leaves:
        if over in leaf.names:
            return leaf.shape[leaf.axis(over)]
    if leaves and leaves[0].ndim:
        return leaves[0].shape[0]
    raise GraphError(message(f"`{where}` has no sequence along `{over}`", remedy="Pass one, or name its axis."))
