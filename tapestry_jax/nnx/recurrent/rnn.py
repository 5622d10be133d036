"""A cell along a sequence, in one direction or in both."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from combinators.arguments import read_flag
from combinators.arrows.program import Program
from combinators.errors import GraphError, SignatureError, message
from combinators.frozen import dataclass
from combinators.leaves.map import Map
from combinators.recording.value import Value
from tapestry_jax.nnx.modules.module import Module
from tapestry_jax.nnx.recurrent.cells import Cell
from tapestry_jax.nnx.recurrent.recurrence import Recurrence


@dataclass(frozen=True)
class Join:
    """Two blocks side by side along their last axes."""

    def __call__(self, left: Any, right: Any) -> Any:
        """The other axes, then both of these as one."""
        return jnp.concatenate([left, right], axis=-1)


class RNN(Recurrence):
    """A cell along `seq`, the last dimension but one, as `flax.nnx.RNN`: its state is fed back from step to step.

    Steps come one after the other, so `seq` is whole in every plan; the batch and the cells of the state can be cut.

    Args:
      cell: an `LSTMCell`, a `GRUCell`, or another `Cell`.
      reverse: whether it begins at the end.
      keep_order: whether outputs then come in the order of the sequence, not in that in which they were made.

    Raises:
      GraphError: when an argument is not what it should be.
    """

    def __init__(self, cell: Cell, *, reverse: bool = False, keep_order: bool = False) -> None:
        if not isinstance(cell, Cell):  # pyright: ignore[reportUnnecessaryIsInstance]
            details = ("expected a cell", f"got {type(cell).__name__}: {cell!r:.80}")
            raise GraphError(
                message("cell= of RNN is none", *details, remedy="Pass tp.nnx.LSTMCell(8, 16, rngs=rngs).")
            )
        self.cell = cell
        self.reverse = read_flag(reverse, "reverse= of RNN")
        self.keep_order = read_flag(keep_order, "keep_order= of RNN")

    @property
    def signature(self) -> str:
        """Positions and features come last."""
        return "... seq embed -> ... seq hidden"

    @property
    def sizes(self) -> dict[str, int]:
        """Of the features and of the state."""
        return {"embed": self.cell.in_features, "hidden": self.cell.hidden_features}

    def forward(self, x: Value) -> Value:
        """The outputs of all steps: `(..., seq, in_features)` to `(..., seq, hidden_features)`.

        Raises:
          SignatureError: when the features have another size, or there is no step.
        """
        if x.ndim < 2 or x.shape[-1] != self.cell.in_features or not x.shape[-2]:
            details = (f"expected positions, then embed={self.cell.in_features}", f"got {x!r}")
            raise SignatureError(
                message("RNN: the input does not fit", *details, remedy="Change the cell, or the input.")
            )
        back = (..., slice(None, None, -1), slice(None))
        x = x[back] if self.reverse else x

        def step(now: Value, state: Any) -> tuple[Value, Any]:
            state, y = self.cell(state, now)
            return y, state

        over = str(x.settle().names[-2])
        y, _ = Program(step, None).feedback(over)(x, self.cell.begin(x[..., 0, :]))
        first = y.axis(over)  # outputs are stacked along a first axis
        order = [axis for axis in range(y.ndim) if axis != first]
        y = y.transpose(*order[:-1], first, order[-1])
        return y[back] if self.reverse and self.keep_order else y


class Bidirectional(Module):
    """Two recurrent layers, from the beginning and from the end, side by side, as `flax.nnx.Bidirectional`.

    Args:
      forward_rnn: from the beginning, whatever its own flags say.
      backward_rnn: from the end, in the order of the sequence, whatever its own flags say.

    Raises:
      GraphError: when one is no `RNN`.
    """

    def __init__(self, forward_rnn: RNN, backward_rnn: RNN) -> None:
        for name, rnn in (("forward_rnn", forward_rnn), ("backward_rnn", backward_rnn)):
            if not isinstance(rnn, RNN):  # pyright: ignore[reportUnnecessaryIsInstance]
                details = ("expected an RNN", f"got {type(rnn).__name__}: {rnn!r:.80}")
                remedy = "Pass tp.nnx.RNN(cell)."
                raise GraphError(message(f"{name}= of Bidirectional is none", *details, remedy=remedy))
        self.forward_rnn = RNN(forward_rnn.cell)
        self.backward_rnn = RNN(backward_rnn.cell, reverse=True, keep_order=True)

    def forward(self, x: Value) -> Value:
        """Outputs of both, one behind the other along the last axis: `(..., seq, embed)` to `(..., seq, both)`."""
        left, right = self.forward_rnn(x), self.backward_rnn(x)
        sizes = {"both": left.shape[-1] + right.shape[-1]}
        return Map(Join(), "... [a], ... [b] -> ... [both]", sizes=sizes, name="join")(left, right)
