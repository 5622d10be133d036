"""A cell along a sequence, in one direction or in both."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from combinators.arguments import read_flag
from combinators.arrows.program import Program
from combinators.errors import GraphError, SignatureError, message, spelt
from combinators.frozen import dataclass
from combinators.index_space.signature import Signature
from combinators.leaves.map import Map
from combinators.recording.value import Value
from tapestry_jax.nnx.modules.module import Module
from tapestry_jax.nnx.recurrent.carries import check_count, flipped, kept, read_carry, read_lengths
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

    What it takes beside the steps is said where it is made: `rnn(x, first state, lengths)` of one with `initial_carry`
    and `seq_lengths`. Steps behind the length of a row are computed, and leave its last state alone:
    a row of length 0 ends with its first state (Flax gives the one behind all steps).

    Args:
      cell: an `LSTMCell`, a `GRUCell`, or another `Cell`.
      reverse: whether it begins at the end, of every row at its own.
      keep_order: whether outputs then come in the order of the sequence, not in that in which they were made.
      initial_carry: whether a first state comes behind the steps, as the cell has it; otherwise it is the cell's own.
      seq_lengths: whether lengths come last, integers `(...)`: how many steps of each row count.
      return_carry: whether the last state is given as well, `(state, outputs)`: of a row that behind its last step, of
        one without a step its first.

    Raises:
      GraphError: when an argument is not what it should be.
    """

    def __init__(
        self,
        cell: Cell,
        *,
        reverse: bool = False,
        keep_order: bool = False,
        initial_carry: bool = False,
        seq_lengths: bool = False,
        return_carry: bool = False,
    ) -> None:
        if not isinstance(cell, Cell):  # pyright: ignore[reportUnnecessaryIsInstance]
            details = ("expected a tp.nnx.LSTMCell or tp.nnx.GRUCell", f"got {type(cell).__name__}: {spelt(cell)}")
            raise GraphError(
                message("cell= of RNN is no cell of tp.nnx", *details, remedy="Pass tp.nnx.LSTMCell(8, 16, rngs=rngs).")
            )
        self.cell = cell
        self.reverse = read_flag(reverse, "reverse= of RNN")
        self.keep_order = read_flag(keep_order, "keep_order= of RNN")
        self.initial_carry = read_flag(initial_carry, "initial_carry= of RNN")
        self.seq_lengths = read_flag(seq_lengths, "seq_lengths= of RNN")
        self.return_carry = read_flag(return_carry, "return_carry= of RNN")

    @property
    def signature(self) -> str | None:
        """Positions and features come last; a state is a tree, which no signature says."""
        lengths = ", ..." if self.seq_lengths else ""
        said = f"... seq embed{lengths} -> ... seq hidden"
        return None if self.initial_carry or self.return_carry else said

    @property
    def sizes(self) -> dict[str, int]:
        """Of the features and of the state."""
        return {"embed": self.cell.in_features, "hidden": self.cell.hidden_features}

    def forward(self, x: Value, *others: Any) -> Any:
        """The outputs of all steps: `(..., seq, in_features)` to `(..., seq, hidden_features)`.

        Raises:
          SignatureError: when the features have another size, or there is no step; when a first state or lengths are
            missing, too many, or do not fit.
        """
        if x.ndim < 2 or x.shape[-1] != self.cell.in_features or not x.shape[-2]:
            details = (f"expected positions, then embed={self.cell.in_features}", f"got {x!r}")
            raise SignatureError(
                message("RNN: the input does not fit", *details, remedy="Change the cell, or the input.")
            )
        if self.signature is None:
            x = Program(lambda x: x, Signature.parse("... seq embed -> ... seq embed")).apply_top(x)
        check_count(others, self.initial_carry, self.seq_lengths, "RNN")
        lengths = read_lengths(others[-1], x, "RNN") if self.seq_lengths else None
        x = flipped(x, lengths) if self.reverse else x
        over = str(x.settle().names[-2])
        begin = self.cell.begin(x[..., 0, :])
        begin = read_carry(others[0], begin, "RNN") if self.initial_carry else begin
        carry, y = self._run(x, begin, over, lengths if self.return_carry else None)
        first = y.axis(over)  # outputs are stacked along a first axis
        order = [axis for axis in range(y.ndim) if axis != first]
        y = y.transpose(*order[:-1], first, order[-1])
        y = flipped(y, lengths) if self.reverse and self.keep_order else y
        return (carry, y) if self.return_carry else y

    def _run(self, x: Value, begin: Any, over: str, lengths: Value | None) -> tuple[Any, Value]:
        """The last state and all outputs."""

        def step(now: Value, state: Any) -> tuple[Value, Any]:
            state, y = self.cell(state, now)
            return y, state

        def counted(now: Value, carry: Any) -> tuple[Value, Any]:
            state, last, left = carry
            state, y = self.cell(state, now)
            return y, (state, kept(last, state, left), left - 1)

        if lengths is None:
            y, state = Program(step, None).feedback(over)(x, begin)
            return state, y
        y, (_, last, _) = Program(counted, None).feedback(over)(x, (begin, begin, lengths))
        return last, y


class Bidirectional(Module):
    """Two recurrent layers, from the beginning and from the end, side by side, as `flax.nnx.Bidirectional`.

    Args:
      forward_rnn: from the beginning, whatever its own flags say.
      backward_rnn: from the end, in the order of the sequence, whatever its own flags say.
      initial_carry: whether first states of both come behind the steps, `(forwards, backwards)`.
      seq_lengths: whether lengths come last, as of `RNN`.
      return_carry: whether the last states are given as well, `((forwards, backwards), outputs)`.

    Raises:
      GraphError: when one is no `RNN`.
    """

    def __init__(
        self,
        forward_rnn: RNN,
        backward_rnn: RNN,
        *,
        initial_carry: bool = False,
        seq_lengths: bool = False,
        return_carry: bool = False,
    ) -> None:
        for name, rnn in (("forward_rnn", forward_rnn), ("backward_rnn", backward_rnn)):
            if not isinstance(rnn, RNN):  # pyright: ignore[reportUnnecessaryIsInstance]
                details = ("expected an RNN", f"got {type(rnn).__name__}: {spelt(rnn)}")
                remedy = "Pass tp.nnx.RNN(cell)."
                raise GraphError(message(f"{name}= of Bidirectional is none", *details, remedy=remedy))
        self.initial_carry = read_flag(initial_carry, "initial_carry= of Bidirectional")
        self.seq_lengths = read_flag(seq_lengths, "seq_lengths= of Bidirectional")
        self.return_carry = read_flag(return_carry, "return_carry= of Bidirectional")
        flags = {name: getattr(self, name) for name in ("initial_carry", "seq_lengths", "return_carry")}
        self.forward_rnn = RNN(forward_rnn.cell, **flags)
        self.backward_rnn = RNN(backward_rnn.cell, reverse=True, keep_order=True, **flags)

    def forward(self, x: Value, *others: Any) -> Any:
        """Outputs of both, one behind the other along the last axis: `(..., seq, embed)` to `(..., seq, both)`."""
        check_count(others, self.initial_carry, self.seq_lengths, "Bidirectional")
        lengths, states = others[len(others) - self.seq_lengths :], [(), ()]
        if self.initial_carry:
            if not isinstance(others[0], tuple | list) or len(others[0]) != 2:
                details = ("expected a pair, of both directions", f"got {spelt(others[0])}")
                remedy = "Pass (forwards, backwards)."
                raise SignatureError(message("Bidirectional: the first states do not fit", *details, remedy=remedy))
            states = [(state,) for state in others[0]]
        left, right = self.forward_rnn(x, *states[0], *lengths), self.backward_rnn(x, *states[1], *lengths)
        last = None
        if self.return_carry:
            (ahead, left), (back, right) = left, right
            last = ahead, back
        sizes = {"both": left.shape[-1] + right.shape[-1]}
        y = Map(Join(), "... [a], ... [b] -> ... [both]", sizes=sizes, name="join")(left, right)
        return (last, y) if self.return_carry else y
